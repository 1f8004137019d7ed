"""One entry for all verifiers: which rule, of which rows, by which backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.numbers import check_name
from otm.errors import InvalidInputError, UnknownMethodError
from otm.kernels import (
    block_definition,
    block_reference,
    definition,
    multi_draft_definition,
    multi_draft_reference,
    reference,
)
from otm.kernels.definition import ChainResult
from otm.kernels.multi_draft_checks import RULES as RULES_OF_DRAFTS
from otm.kernels.multi_draft_definition import DraftsResult

if TYPE_CHECKING:
    from otm.kernels.workspace import Workspace

__all__ = ["verify", "verify_drafts"]

RULES = ("chain", "block")
BACKENDS = ("auto", "numpy", "torch", "triton")

Verifier = Callable[..., ChainResult[Any]]


def verify(
    target: Any,
    draft: Any,
    draft_tokens: Any,
    uniforms: Any,
    *,
    rule: str = "chain",
    temperature: Any = None,
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> ChainResult[Any]:
    """Verify chains of drafts, losslessly: the output has the law of the target model.

    By [leviathan2023]_, Algorithm 1, or [sun2024block]_, Algorithm 2 (Theorem 12.1 of
    docs/theory/verification.md).

    Parameters
    ----------
    target : array or Tensor [B, γ + 1, V]
        The target model's probabilities at each position, or its logits.
    draft : array or Tensor [B, γ, V'] or None
        What the drafts were sampled from, in the same form, V' ≤ V; None for one-hot drafts.
    draft_tokens : int array or Tensor [B, γ]
        The drafts; the first −1 ends a chain.
    uniforms : float64 array or Tensor [B, γ + 2]
        Independent, in [0, 1).
    rule : {"chain", "block"}, optional
        Chain verification accepts drafts up to the first rejection; block verification looks at all
        of them together and accepts more on average.
    temperature : float or array [B], optional
        None: the rows are probabilities.  Otherwise they are logits, and this is the temperature of
        both models, for each sequence; 0 means greedy.
    backend : {"auto", "numpy", "torch", "triton"}, optional
        "auto" takes NumPy for arrays, Triton for CUDA tensors where it is installed, and torch for
        all other tensors.
    validate : bool, optional
        Whether to look at all numbers first, which reads every row and waits for the device.
    workspace : Workspace, optional
        Work memory that calls share, so that Triton's kernels allocate nothing but the result (see
        `otm.kernels.Workspace`); the other backends do not use it.

    Returns
    -------
    ChainResult
        int64 tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    UnknownMethodError
        If there is no such rule or backend.
    InvalidInputError
        If the backend cannot work on the arrays that are given.
    MissingDependencyError
        If torch or Triton is needed and not installed.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError, InvalidParameterError
        As for `otm.kernels.definition.verify_chain_from_logits`.

    Notes
    -----
    From probabilities all backends make the same decisions, bit for bit.  From logits NumPy and
    torch take the softmax in float64 and Triton in float32, within 10^−6 of it (TV): a decision
    then differs only if a uniform is that close to an edge.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.

    Examples
    --------
    >>> import otm.kernels
    >>> target = np.array([[[0.5, 0.5], [0.1, 0.9]]])
    >>> draft = np.array([[[0.8, 0.2]]])
    >>> otm.kernels.verify(target, draft, np.array([[0]]), np.array([[0.7, 0.3, 0.5]]))
    ChainResult(tokens=array([[ 1, -1]]), accepted=array([0]))
    """
    _check_rule(rule, RULES, RULES_OF_DRAFTS, "verify_drafts")
    chosen = _choose(target, backend)
    probabilities, logits = _verifiers(chosen)[rule]
    given = (target, draft, draft_tokens, uniforms)
    options = {"validate": validate, **({"workspace": workspace} if chosen == "triton" else {})}
    if temperature is None:
        return probabilities(*given, **options)
    return logits(*given, temperature, **options)


def verify_drafts(
    target: Any,
    draft: Any,
    draft_tokens: Any,
    uniforms: Any,
    *,
    rule: str = "k-seq",
    temperature: Any = None,
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> DraftsResult[Any]:
    """Verify K chains of drafts for each sequence, losslessly, by SpecTr's recursion.

    [sun2023]_, Algorithm 3 (Theorem 12.4 of docs/theory/verification.md), over k-Seq or the levels
    of docs/theory/levels.md (Theorem 11.2).

    Parameters
    ----------
    target : array or Tensor [B, K, γ + 1, V]
        The target model's probabilities at each position of each chain, or its logits.
    draft : array or Tensor [B, K, γ, V']
        What the drafts were sampled from, in the same form, V' ≤ V.
    draft_tokens : int array or Tensor [B, K, γ]
        The chains, sampled independently; the first −1 ends one.
    uniforms : float64 array or Tensor [B, γK + 2], or [B, γ(2K + 1) + 2] for the rule "levels"
        Independent, in [0, 1).
    rule : {"k-seq", "levels"}, optional
        How one of the drafts of a position is chosen: by k-Seq, or by the optimal rule between
        levels of the ratio of the laws, which accepts more and takes longer.
    temperature : float or array [B], optional
        As for `verify`; the chains of a greedy sequence are alike.
    backend, validate, workspace : optional
        As for `verify`.

    Returns
    -------
    DraftsResult
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    UnknownMethodError
        If there is no such rule or backend.
    InvalidInputError
        If the backend cannot work on the arrays that are given.
    MissingDependencyError
        If torch or Triton is needed and not installed.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError, InvalidParameterError
        As for `otm.kernels.multi_draft_definition.verify_drafts_from_logits`.

    Notes
    -----
    The backends agree as for `verify`.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023.

    Examples
    --------
    >>> import otm.kernels
    >>> target = np.array([[0.5, 0.5], [0.1, 0.9]])[None, None].repeat(2, axis=1)
    >>> draft = np.array([[0.9, 0.1]])[None, None].repeat(2, axis=1)
    >>> tokens, uniforms = np.array([[[0], [1]]]), np.array([[0.6, 0.3, 0.5, 0.5]])
    >>> otm.kernels.verify_drafts(target, draft, tokens, uniforms).tokens
    array([[1, 1]])
    """
    _check_rule(rule, RULES_OF_DRAFTS, RULES, "verify")
    chosen = _choose(target, backend)
    module: Any = multi_draft_definition if chosen == "numpy" else multi_draft_reference
    options: dict[str, Any] = {"rule": rule, "validate": validate}
    if chosen == "triton":
        from otm.kernels import multi_draft_triton as module

        options["workspace"] = workspace
    given = (target, draft, draft_tokens, uniforms)
    verifier: Callable[..., DraftsResult[Any]] = module.verify_drafts
    if temperature is None:
        return verifier(*given, **options)
    verifier = module.verify_drafts_from_logits
    return verifier(*given, temperature, **options)


def _check_rule(rule: Any, rules: Collection[str], others: Collection[str], function: str) -> None:
    """Check the name of a rule; say which function takes it, if it is the other one."""
    if isinstance(rule, str) and rule in others:
        raise UnknownMethodError(
            f"the rule {rule!r} is one of otm.kernels.{function}; here there are {', '.join(rules)}"
        )
    check_name("rule", rule, rules)


def _choose(target: Any, backend: str) -> str:
    """Return the backend, chosen if it is "auto"; refuse one that is for other arrays."""
    check_name("backend", backend, BACKENDS)
    torch = sys.modules.get("torch")  # whoever has a tensor has loaded it
    is_tensor = torch is not None and isinstance(target, torch.Tensor)
    if not is_tensor and not isinstance(target, np.ndarray):
        raise InvalidInputError(
            f"the target is a {type(target).__name__}; give NumPy arrays or torch tensors"
        )
    if backend == "auto":
        if not is_tensor:
            return "numpy"
        from otm.kernels import triton_  # loads Triton, which takes a second

        return "triton" if target.is_cuda and triton_.compiles() else "torch"
    if is_tensor == (backend == "numpy"):
        raise InvalidInputError(
            f"backend {backend!r} cannot work on a {type(target).__name__}: 'numpy' takes NumPy "
            "arrays, 'torch' and 'triton' take tensors, and 'auto' what fits"
        )
    return backend


def _verifiers(backend: str) -> dict[str, tuple[Verifier, Verifier]]:
    """Return the verifiers of probabilities and of logits, by rule."""
    if backend == "numpy":
        return {
            "chain": (definition.verify_chain, definition.verify_chain_from_logits),
            "block": (block_definition.verify_block, block_definition.verify_block_from_logits),
        }
    if backend == "torch":
        return {
            "chain": (reference.verify_chain, reference.verify_chain_from_logits),
            "block": (block_reference.verify_block, block_reference.verify_block_from_logits),
        }
    from otm.kernels import block_triton, chain_triton

    return {
        "chain": (chain_triton.verify_chain, chain_triton.verify_chain_from_logits),
        "block": (block_triton.verify_block, block_triton.verify_block_from_logits),
    }
