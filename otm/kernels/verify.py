"""The entry: probabilities or logits, one chain or several, on the backend that fits."""

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
    """Verify drafts, losslessly: the output has the distribution of the target model.

    One chain of γ drafts for each of B sequences by [leviathan2023]_, Algorithm 1, or
    [sun2024block]_, Algorithm 2; K chains by [sun2023]_, Algorithm 3, which selects among the
    drafts of a position by k-Seq or by bins (docs/theory/verification.md, Theorems 12.1 and 12.4;
    docs/theory/grid.md, Theorems 11.1 and 11.2), or as a whole (docs/theory/walk-and-keep.md,
    Theorem 14.6).

    Parameters
    ----------
    target_probs : array or Tensor [B, γ + 1, V], of K chains [B, K, γ + 1, V]
        The target model's probabilities at each position; float16, bfloat16, float32, float64, or
        fractions (NumPy only).  Where chains begin alike, so do their rows: those of the first that
        has a draft there are read; rows that chains share can be broadcast.
    draft_probs : array or Tensor [B, γ, V'], of K chains [B, K, γ, V'], SparseDrafts or None
        What the drafts were sampled from, V' ≤ V: tokens beyond V' have probability 0.
        `SparseDrafts` list the tokens that have any.  None if the drafts of one chain were not
        sampled but chosen, so that each distribution is one-hot.
    draft_tokens : int array or Tensor [B, γ], of K chains [B, K, γ]
        The drafts; the first −1 ends a chain, so that chains may have any length from 0 to γ.  What
        stands in the arrays beyond a chain's end is never looked at.  K chains are sampled
        independently, or as `counted` says, and their lengths must not depend on tokens.
    uniforms : float64 array or Tensor [B, nγ + 2]
        Independent, in [0, 1).  At each position a rule takes n of them: "chain" and "block" 1,
        "grid k-Seq" K, "grid optimal" and "grid walk and keep" K + 1; the last two are for the
        recovered and bonus tokens.
        Tokens are located by them in the cumulative distribution, for which 53 bits are needed:
        uniforms of 24 bits are about 10^−3 away from it (TV) at V = 131,072.
    rule : {"chain", "block", "grid k-Seq", "grid optimal", "grid walk and keep"}, optional
        A name or a `Rule`.  "chain" accepts drafts up to the first rejection; "block" looks at all
        of them together and accepts more on average.  The others are for K chains: "grid k-Seq" is
        k-Seq with the smallest valid division factor of a grid; "grid optimal", the optimal rule
        for bins of the ratio of the probabilities, accepts more and takes longer; "grid walk and
        keep" looks at whole chains, accepts the most on the models that were measured, and takes
        longest.
    backend : {"auto", "numpy", "torch", "triton"}, optional
        "auto" takes NumPy for arrays.  For tensors it takes the backend that the environment
        variable OTM_BACKEND names; if this is not set, Triton for CUDA tensors and torch for all
        others.  Triton must be installed and pass a self-check against torch in the first call of a
        kind, else torch is used (`self_checks`).  A named backend is not checked or replaced.
    validate : bool, optional
        Whether to check all arguments first, which reads every row, of probabilities twice, and
        waits for the device (docs/tables/cpu.md has the time).  Without it shapes and types are
        not checked either, and NaN and rows that do not sum to one give some token of the
        vocabulary.
    workspace : Workspace, optional
        Work memory that calls share, so that Triton's kernels allocate nothing but the result; the
        other backends do not use it.
    offsets : int array or Tensor [B + 1], optional
        If given, the N drafts of all sequences are packed, of one chain each: the drafts of
        sequence b are those from offsets[b] to offsets[b + 1].  The target is then [N + B, V], of
        each sequence one row more than drafts; the draft is [N, V'] or lists [N, m], and draft
        tokens are [N].  γ, the most drafts of a sequence, is that of the uniforms [B, γ + 2]; a
        sequence uses the same of them as if it were padded.
    counted : bool array or Tensor [B, K, γ], optional
        False where a draft of K chains is the same draw as that of an earlier chain, as where paths
        of a prefix tree share a node.  The rule counts each draw once.  Which nodes are shared must
        not depend on tokens.  None if every draft is a draw of its own.

    Returns
    -------
    Verified
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and of K chains
        one that begins with them [B].

    Raises
    ------
    UnknownMethodError
        If there is no such rule or backend.
    InvalidInputError
        If the backend cannot work on the arrays, they are of several libraries or devices, or a
        CUDA graph is being captured before the self-check of its kernels.
    MissingDependencyError
        If Triton is needed and not installed.
    InvalidDistributionError
        If the probabilities have wrong shapes, types or entries, or do not sum to one.
    InvalidDraftsError
        If the drafts have a wrong shape or type, lie outside the vocabulary, or have draft
        probability zero; if offsets, or what is counted, cannot be.
    InvalidUniformsError
        If the uniforms have a wrong shape or type, or do not lie in [0, 1).

    Notes
    -----
    All backends make the same decisions, bit for bit; NumPy is the definition, exact on fractions.

    Probabilities are not normalised, which would take a pass over rows that are not read otherwise.
    With sums D of a draft row and T of a target row, the distribution of an output token of one
    chain is at most abs(D − T) / max(D, T) away from the target (TV): 10^−6 for a float32 softmax,
    but up to 10^−3 for one in half precision; with K chains at most abs(D − 1) + abs(T − 1) was
    measured.  Give half-precision *logits* to `verify_logits` instead.

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

    Two chains, of which the second begins with the accepted draft:

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

    The drafts must have been sampled from that distribution: at the same temperature, after the
    same top-k or top-p (tokens left out have logit −inf), and not in lower precision than float32.

    Parameters
    ----------
    target_logits : array or Tensor [B, γ + 1, V], of K chains [B, K, γ + 1, V]
        Logits of the target model; float16, bfloat16, float32 or float64, −inf for impossible
        tokens.
    draft_logits : array or Tensor [B, γ, V'], of K chains [B, K, γ, V'], SparseDrafts or None
        Logits of the draft model, V' ≤ V; None for one-hot drafts of one chain.  `SparseDrafts`
        hold probabilities, those that the drafts were sampled with: after temperature, top-k and
        top-p.
    draft_tokens, uniforms, rule, backend, validate, workspace, offsets, counted
        As for `verify_probs`.
    temperature : float, or float array or Tensor [B], optional
        Of both models, for each sequence; in a Tensor on the device it saves the launch that fills
        one.  0 means greedy: a draft is accepted if it has the target's largest logit, the first if
        there are several, and draft logits or lists are not looked at.  The chains of a greedy
        sequence are alike; where they differ, the first of them counts.

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
        If logits have wrong shapes or types, hold NaN or +inf, or a row is −inf everywhere; if
        there are more than 2^20 tokens, on Triton.
    InvalidParameterError
        If a temperature is negative or not finite, or there is not one for each sequence.

    Notes
    -----
    Of float64 logits NumPy and torch take the softmax in float64.  Of all others, and on Triton, it
    may be taken in float32, within 10^−6 of the exact one (TV): the decisions of two backends then
    differ only if a uniform is that close to an edge.

    Probabilities cannot be told from logits, and are taken for logits here without a word; they go
    to `verify_probs`.

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
    """Choose a backend, check the arguments if told to, and verify."""
    rule = named(name, "kernel")
    chosen = choose_backend(chains.target, backend, rule.backends)
    if validate:
        check_arguments(chains, rule, logits=logits)
    if is_real(chains.temperature):  # torch does not know NumPy's scalars
        chains = chains._replace(temperature=float(chains.temperature))
    return _verify(rule, chosen, chains, workspace)


def _verify(rule: Rule, backend: str, chains: Chains, workspace: Workspace | None) -> Verified[Any]:
    """Verify by a rule on a backend: probabilities, or logits if there is a temperature."""
    if backend == AUTO:
        from otm.kernels.self_check import chain_cases
        from otm.kernels.self_check import run as self_check

        call = chain_cases.call_of_chains(rule.name, chains, partial(_verify, rule))
        backend = self_check.checked_backend(call)
    *rows, uniforms, temperature, offsets, counted, _ = chains
    verify: Callable[..., Verified[Any]] = rule.load_kernel(backend).verify
    options = {} if counted is None else {"counted": counted}
    if backend == "triton":  # takes the softmax on the way, and rows where they are
        options |= {} if offsets is None else {"offsets": offsets}
        options |= {} if temperature is None else {"kind": "logits", "temperature": temperature}
        return verify(*rows, uniforms, workspace=workspace, **options)
    most = (uniforms.shape[1] - 2) // uniforms_per_position(rule) if offsets is not None else 0
    with np.errstate(all="ignore"):  # in numbers that nobody checked, or that nobody needs
        if backend == "torch":
            from otm.kernels.common import host

            if host.reads_rows(rule, chains.target):
                return host.verify(rule, chains, most)
        of_backend = import_module(f"otm.kernels.common.rows.{backend}")
        if offsets is not None:
            rows = of_backend.unpack(*rows, offsets, most)
        given = of_backend.read(*rows, chains.target.shape[-1], temperature)
        return verify(*given, rows[2], uniforms, **options)
