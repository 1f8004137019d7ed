"""Verification of chains of drafts: check the arguments, choose a backend and apply a rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.numbers import is_real
from otm.kernels.checks import check_arguments
from otm.kernels.layout import Chains
from otm.kernels.registry import AUTO, choose_backend, uniforms_per_position
from otm.kernels.results import Verified
from otm.rules import Rule, named

if TYPE_CHECKING:
    from otm.kernels.workspace import Workspace


def verify_probs(
    target_probs: Any,
    draft_probs: Any,
    draft_tokens: Any,
    uniforms: Any,
    *,
    rule: str | Rule = "chain",
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
    offsets: Any = None,
    counted: Any = None,
) -> Verified[Any]:
    """Verify drafts losslessly: the output has the target model's distribution.

    Each of B sequences has one chain of γ drafts, or K chains.  One chain is verified by
    [leviathan2023]_, Algorithm 1, or [sun2024block]_, Algorithm 2.  K chains are verified by
    [sun2023]_, Algorithm 3, or by a rule for whole chains.  Algorithm 3 selects among the drafts of
    a position by k-Seq or by the optimal rule for bins (docs/theory/verification.md, Theorems 12.1
    and 12.4; docs/theory/grid.md, Theorems 11.1 and 11.2).  The rule for whole chains is in
    docs/theory/walk-and-keep.md, Theorem 14.6.

    Parameters
    ----------
    target_probs : array or Tensor [B, γ + 1, V], for K chains [B, K, γ + 1, V]
        The target model's probabilities at each position, in float16, bfloat16, float32, float64,
        or fractions (NumPy only).  Chains with a common prefix must have equal rows along this
        prefix; only the rows of the first such chain are read.  Rows that chains share can be
        broadcast.
    draft_probs : array or Tensor [B, γ, V'], for K chains [B, K, γ, V'], SparseDrafts or None
        The distributions that the drafts were sampled from.  V' ≤ V, and tokens V', …, V − 1 have
        probability 0.  `SparseDrafts` list only the tokens with a positive probability.  None means
        that the drafts of one chain were chosen, not sampled: each distribution is one-hot.
    draft_tokens : int array or Tensor [B, γ], for K chains [B, K, γ]
        The drafts.  The first −1 ends a chain, so chains may have any length from 0 to γ.  Entries
        after the end of a chain are ignored in all arrays.  K chains must be sampled independently,
        except for draws that `counted` marks as shared.  The lengths of chains must not depend on
        tokens.
    uniforms : float64 array or Tensor [B, nγ + 2]
        Independent uniforms in [0, 1).  A rule uses n uniforms at each position: n is 1 for "chain"
        and "block", K for "grid k-Seq", and K + 1 for "grid optimal" and "grid walk and keep".  The
        last two columns are for the recovered and the bonus token.  A uniform locates a token in
        the cumulative distribution, which needs 53 bits.  Uniforms of 24 bits change the output
        distribution by about 10^−3 (TV) at V = 131,072.
    rule : {"chain", "block", "grid k-Seq", "grid optimal", "grid walk and keep"}, optional
        A name or a `Rule`.  "chain" accepts drafts up to the first rejection.  "block" considers
        all drafts of a chain together and accepts more than "chain" on average.  The "grid" rules
        are for K chains.  "grid k-Seq" is k-Seq with the smallest valid division factor of a grid.
        "grid optimal" is the optimal rule for bins of the probability ratio; it accepts more than
        "grid k-Seq" and is slower.  "grid walk and keep" considers whole chains; it accepted the
        most drafts in the measurements and is the slowest.
    backend : {"auto", "numpy", "torch", "triton"}, optional
        "auto" uses NumPy for arrays.  For tensors "auto" uses the backend that the environment
        variable OTM_BACKEND names.  If the variable is not set, "auto" uses Triton for CUDA tensors
        and torch for all other tensors.  Triton must be installed and pass a self-check against
        torch in the first call of each kind, otherwise torch is used (`self_checks`).  A backend
        that is named is neither checked nor replaced.
    validate : bool, optional
        Whether to check all arguments first, including shapes and types.  The checks read every row
        once, or twice for probabilities, and wait for the device (times are in docs/tables/cpu.md).
        Unchecked rows with NaN or a wrong sum still yield tokens of the vocabulary.
    workspace : Workspace, optional
        Work memory that calls share, so that Triton's kernels allocate only the result.  The other
        backends ignore the workspace.
    offsets : int array or Tensor [B + 1], optional
        Boundaries of packed drafts, for rules for one chain: sequence b has the drafts from
        offsets[b] to offsets[b + 1].  With N drafts in total, draft tokens have shape [N], dense
        draft rows [N, V'] and sparse lists [N, m].  The target has shape [N + B, V], because each
        sequence has one row more than drafts.  The uniforms have shape [B, γ + 2] for at most γ
        drafts per sequence.  A packed sequence uses the same uniforms as a padded sequence.
    counted : bool array or Tensor [B, K, γ], optional
        False where a draft is the same draw as a draft of an earlier chain, for example at a shared
        node of a prefix tree.  The rule counts each draw once.  The choice of shared nodes must not
        depend on tokens.  None means that every draft is a separate draw.

    Returns
    -------
    Verified
        int64 tokens [B, γ + 1], padded with −1; the number of accepted drafts [B]; and, for K
        chains, a chain that begins with the accepted drafts [B].

    Raises
    ------
    UnknownMethodError
        If the rule or backend does not exist.
    InvalidInputError
        If the backend cannot process the arrays, if the arrays belong to several libraries or
        devices, or if a CUDA graph is being captured before the self-check of its kernels.
    MissingDependencyError
        If Triton is needed and not installed.
    InvalidDistributionError
        If the probabilities have wrong shapes, types or entries, or do not sum to one.
    InvalidDraftsError
        If the drafts have a wrong shape or type, lie outside the vocabulary, or have draft
        probability zero; or if `offsets` or `counted` is invalid.
    InvalidUniformsError
        If the uniforms have a wrong shape or type, or do not lie in [0, 1).

    Notes
    -----
    All backends make the same decisions, bit for bit.  NumPy is the reference and is exact on
    fractions.

    Probabilities are not normalised, because this would read rows that are otherwise unread.  For
    one chain, a draft row with sum D and a target row with sum T change the distribution of an
    output token by at most abs(D − T) / max(D, T) (TV).  The bound is 10^−6 for a float32 softmax,
    but up to 10^−3 for a half-precision softmax.  For K chains the change of this distribution,
    where it was measured, was at most abs(D − 1) + abs(T − 1).  In half precision, give *logits* to
    `verify_logits` instead of probabilities to `verify_probs`.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import verify_probs
    >>> target = np.array([[[0.5, 0.5], [0.1, 0.9]]])
    >>> draft = np.array([[[0.8, 0.2]]])
    >>> verify_probs(target, draft, np.array([[0]]), np.array([[0.7, 0.3, 0.5]]))
    Verified(tokens=array([[ 1, -1]]), accepted=array([0]), chain=None)

    Verify two chains; the second chain begins with the accepted draft:

    >>> target, draft = (x[:, None].repeat(2, axis=1) for x in (target, draft))
    >>> tokens, uniforms = np.array([[[0], [1]]]), np.array([[0.7, 0.3, 0.5, 0.5]])
    >>> verify_probs(target, draft, tokens, uniforms, rule="grid k-Seq")
    Verified(tokens=array([[1, 1]]), accepted=array([1]), chain=array([1]))
    """
    rows = (target_probs, draft_probs, draft_tokens, uniforms)
    chains = Chains(*rows, offsets=offsets, counted=counted)
    return _check_and_verify(rule, chains, backend, workspace, validate=validate)


def verify_logits(
    target_logits: Any,
    draft_logits: Any,
    draft_tokens: Any,
    uniforms: Any,
    *,
    temperature: Any = 1.0,
    rule: str | Rule = "chain",
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
    offsets: Any = None,
    counted: Any = None,
) -> Verified[Any]:
    """Verify drafts by `verify_probs`, with probabilities softmax(logits / temperature).

    The drafts must have been sampled from the distributions of the draft logits: at the same
    temperature, after the same top-k or top-p, and in at least float32 precision.  Tokens that
    top-k or top-p removed have logit −inf.

    Parameters
    ----------
    target_logits : array or Tensor [B, γ + 1, V], for K chains [B, K, γ + 1, V]
        Logits of the target model, in float16, bfloat16, float32 or float64; −inf for impossible
        tokens.
    draft_logits : array or Tensor [B, γ, V'], for K chains [B, K, γ, V'], SparseDrafts or None
        Logits of the draft model, V' ≤ V; None for one-hot drafts of one chain.  `SparseDrafts`
        hold the probabilities that the drafts were sampled with: after temperature, top-k and
        top-p.
    draft_tokens, uniforms, rule, backend, validate, workspace, offsets, counted
        As for `verify_probs`.
    temperature : float, or float array or Tensor [B], optional
        Temperature of both models, for each sequence.  A number needs one launch more than a Tensor
        on the device.  0 means greedy: a draft is accepted if it is the token with the target's
        largest logit; in a tie this is the first token.  Greedy sequences ignore draft logits and
        lists.
        The chains of a greedy sequence should be equal; if they differ, the first chain is used.

    Returns
    -------
    Verified
        As for `verify_probs`.

    Raises
    ------
    UnknownMethodError, InvalidInputError, MissingDependencyError, InvalidDraftsError,
    InvalidUniformsError
        As for `verify_probs`.
    InvalidDistributionError
        If logits have wrong shapes or types, contain NaN or +inf, or a row is −inf everywhere; or
        if Triton is used and the vocabulary has more than 2^20 tokens.
    InvalidParameterError
        If a temperature is negative or not finite, or if there is neither a single temperature nor
        one for each sequence.

    Notes
    -----
    NumPy and torch compute the softmax of float64 logits in float64.  For logits of other types,
    and with Triton, the softmax may be computed in float32, within 10^−6 of the exact softmax (TV).
    Two backends can decide differently only if a uniform is within about 10^−6 of a boundary
    between tokens.

    This function cannot detect probabilities, and would treat them as logits without an error.
    If you have probabilities, call `verify_probs`.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import verify_logits
    >>> target = np.array([[[0.0, 2.0], [1.0, 0.0]]])
    >>> verify_logits(target, None, np.array([[1]]), np.zeros((1, 3)), temperature=0)
    Verified(tokens=array([[1, 0]]), accepted=array([1]), chain=None)
    """
    rows = (target_logits, draft_logits, draft_tokens, uniforms)
    chains = Chains(*rows, temperature, offsets, counted)
    return _check_and_verify(rule, chains, backend, workspace, validate=validate, logits=True)


def _check_and_verify(
    name: str | Rule,
    chains: Chains,
    backend: str,
    workspace: Workspace | None,
    *,
    validate: bool,
    logits: bool = False,
) -> Verified[Any]:
    """Choose a backend, check the arguments if `validate` is set, and verify."""
    rule = named(name, "kernel")
    chosen = choose_backend(chains.target, backend, rule.backends)
    if validate:
        check_arguments(chains, rule, logits=logits)
    # torch does not accept NumPy scalars.
    if is_real(chains.temperature):
        chains = chains._replace(temperature=float(chains.temperature))
    return _verify(rule, chosen, chains, workspace)


def _verify(rule: Rule, backend: str, chains: Chains, workspace: Workspace | None) -> Verified[Any]:
    """Verify by a rule on a backend: logits if a temperature is given, else probabilities."""
    if backend == AUTO:
        from otm.kernels.self_check import chain_cases
        from otm.kernels.self_check import run as self_check

        call = chain_cases.call_of_chains(rule.name, chains, partial(_verify, rule))
        backend = self_check.checked_backend(call)
    *rows, uniforms, temperature, offsets, counted, _ = chains
    verify: Callable[..., Verified[Any]] = rule.load_kernel(backend).verify
    options = {} if counted is None else {"counted": counted}
    # Triton's kernels compute the softmax themselves and read packed rows in place.
    if backend == "triton":
        options |= {} if offsets is None else {"offsets": offsets}
        options |= {} if temperature is None else {"kind": "logits", "temperature": temperature}
        return verify(*rows, uniforms, workspace=workspace, **options)
    most = (uniforms.shape[1] - 2) // uniforms_per_position(rule) if offsets is not None else 0
    # Unchecked or unused numbers may be NaN or ∞.
    with np.errstate(all="ignore"):
        if backend == "torch":
            from otm.kernels.common import host

            if host.reads_rows(rule, chains.target):
                return host.verify(rule, chains, most)
        of_backend = import_module(f"otm.kernels.common.rows.{backend}")
        if offsets is not None:
            rows = of_backend.unpack(*rows, offsets, most)
        prob_rows = of_backend.read(*rows, chains.target.shape[-1], temperature)
        return verify(*prob_rows, rows[2], uniforms, **options)
