"""Verification of trees of drafts on tensors, as engines hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.numbers import is_real
from otm.kernels.registry import AUTO, choose_backend
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees, check_trees

if TYPE_CHECKING:
    from otm.kernels.workspace import Workspace


def verify_tree_probs(
    target_probs: Any,
    draft_probs: Any,
    draft_tokens: Any,
    parents: Any,
    uniforms: Any,
    *,
    sampled: Any = None,
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> VerifiedTree[Any]:
    """Verify a tree of drafts for each sequence, losslessly: certain drafts, sampled ones, or both.

    At a node the children that were *sampled*, one after another without replacement, are tested in
    that order by recursive rejection ([chen2024]_, [jeon2024]_); if none is accepted a token is
    drawn from what is left of the target, and the walk goes on from the child that has it, or ends.
    With no sampled child this is target-only sampling, which accepts the most of *certain* drafts:
    the likeliest tokens, best-first trees, prompt lookup ([zheng2024]_).  With all but one certain,
    and one sampled from the other tokens, it attains the optimum of greedy drafts.
    docs/theory/trees.md has the proofs.

    Drafts that are sampled independently, also as prefix trees, go to `verify_probs` and its rules
    for several chains.

    Parameters
    ----------
    target_probs : array or Tensor [B, N + 1, V]
        The target model's probabilities after the context, and then after each draft; float16,
        bfloat16, float32, float64, or fractions (NumPy only).  Of these rows the ones along the
        output alone are read.
    draft_probs : array or Tensor [B, N + 1, V'], or None
        What the sampled children were drawn from, after the context and after each draft, V' ≤ V;
        read where there are any.  Each child leaves out those before it.  None if no draft was
        sampled.
    draft_tokens : int array or Tensor [B, N]
        The drafts of a tree, parents before children, siblings in the order of their draws; −1 is
        none.
    parents : int array or Tensor [B, N]
        The place of each draft's parent among the drafts; −1 where it follows the context.  Drafts
        of one parent are different tokens.
    uniforms : float64 array or Tensor [B, L + 1, W + 1]
        Independent, in [0, 1).  At each level a coin for each sampled child of a node, at most W,
        and one for the token that is drawn.  No path has more than L drafts.
    sampled : bool array or Tensor [B, N], optional
        Which drafts were sampled; all of them if left out, or none without draft probabilities.
    backend : {"auto", "numpy", "torch", "triton"}, optional
        As for `verify_probs`.
    validate : bool, optional
        Whether to check all arguments first, which reads every row twice and waits for the device.
        Without it NaN and rows that do not sum to one give some token of the vocabulary; rows that
        the walk does not reach may hold anything.
    workspace : Workspace, optional
        Work memory that calls share, so that Triton's kernels allocate nothing but the result.

    Returns
    -------
    VerifiedTree
        int64 tokens [B, L + 1], padded with −1, the number of accepted drafts [B], and the last
        of them [B].

    Raises
    ------
    UnknownMethodError
        If there is no such backend.
    InvalidInputError
        If the backend cannot work on the arrays, they are of several libraries or devices, or a
        CUDA graph is being captured before the self-check of its kernels.
    MissingDependencyError
        If Triton is needed and not installed.
    InvalidDistributionError
        If the probabilities have wrong shapes, types or entries, or do not sum to one.
    InvalidDraftsError
        If drafts or parents have a wrong shape or type, a draft lies outside the vocabulary or was
        sampled with probability 0, a parent is no earlier draft, siblings are the same token, or
        the uniforms are for fewer levels or fewer sampled children.
    InvalidUniformsError
        If the uniforms have a wrong shape or type, or do not lie in [0, 1).

    Notes
    -----
    All backends make the same decisions, bit for bit; NumPy is the definition, exact on fractions.

    References
    ----------
    .. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding",
       NeurIPS 2024.
    .. [jeon2024] Jeon et al., "Recursive Speculative Decoding: Accelerating LLM Inference via
       Sampling Without Replacement", 2024.
    .. [zheng2024] Zheng et al., "SGLang: Efficient Execution of Structured Language Model
       Programs", NeurIPS 2024; its kernel `tree_speculative_sampling_target_only`.

    Examples
    --------
    Two certain drafts after the context, and one after the second of them:

    >>> import numpy as np
    >>> from otm.kernels import verify_tree_probs
    >>> target = np.full((1, 4, 3), [0.25, 0.25, 0.5])
    >>> drafts, parents = np.array([[0, 2, 1]]), np.array([[-1, -1, 1]])
    >>> verify_tree_probs(target, None, drafts, parents, np.array([[[0.9], [0.3], [0.1]]]))
    VerifiedTree(tokens=array([[2, 1, 0]]), accepted=array([2]), node=array([2]))

    The same drafts, sampled: two coins a level.

    >>> uniforms = np.full((1, 3, 3), 0.5)
    >>> verify_tree_probs(target, np.full((1, 4, 3), 1 / 3), drafts, parents, uniforms)
    VerifiedTree(tokens=array([[ 0,  2, -1]]), accepted=array([1]), node=array([0]))
    """
    trees = Trees(draft_tokens, parents, sampled, uniforms)
    options: dict[str, Any] = {"validate": validate, "workspace": workspace}
    return _verify(target_probs, draft_probs, trees, None, backend, **options)


def verify_tree_logits(
    target_logits: Any,
    draft_logits: Any,
    draft_tokens: Any,
    parents: Any,
    uniforms: Any,
    *,
    sampled: Any = None,
    temperature: Any = 1.0,
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> VerifiedTree[Any]:
    """Verify by `verify_tree_probs`, with probabilities softmax(logits / temperature).

    Parameters
    ----------
    target_logits : array or Tensor [B, N + 1, V]
        Logits of the target model; −inf for impossible tokens.
    draft_logits : array or Tensor [B, N + 1, V'], or None
        Logits of the draft model; None if no draft was sampled.
    draft_tokens, parents, uniforms, sampled, backend, validate, workspace
        As for `verify_tree_probs`.
    temperature : float, or float array or Tensor [B], optional
        Of both models, for each sequence; 0 means greedy: the first of the target's largest logits,
        for which all drafts are certain.

    Returns
    -------
    VerifiedTree
        As for `verify_tree_probs`.

    Raises
    ------
    UnknownMethodError, InvalidInputError, MissingDependencyError, InvalidDraftsError,
    InvalidUniformsError
        As for `verify_tree_probs`.
    InvalidDistributionError
        If the logits have wrong shapes or types, or a row has NaN, +∞, or nothing but −∞.
    InvalidParameterError
        If a temperature is not a finite number of at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> from otm.kernels import verify_tree_logits
    >>> target, drafts, parents = np.array([[[0, 2.0], [1, 0]]]), np.array([[1]]), np.array([[-1]])
    >>> verify_tree_logits(target, None, drafts, parents, np.zeros((1, 2, 1)), temperature=0)
    VerifiedTree(tokens=array([[1, 0]]), accepted=array([1]), node=array([0]))
    """
    warmth = float(temperature) if is_real(temperature) else temperature
    trees = Trees(draft_tokens, parents, sampled, uniforms)
    options: dict[str, Any] = {"validate": validate, "workspace": workspace}
    return _verify(target_logits, draft_logits, trees, warmth, backend, **options)


def _verify(
    target: Any,
    draft: Any,
    trees: Trees[Any],
    temperature: Any,
    backend: str,
    *,
    validate: bool,
    workspace: Workspace | None,
) -> VerifiedTree[Any]:
    """Verify by a backend: probabilities, or logits if there is a temperature."""
    chosen = choose_backend(target, backend)
    if validate:
        check_trees(target, draft, trees, temperature)
    sampled = trees.sampled
    if sampled is None:
        sampled = trees.tokens >= (target.shape[-1] if draft is None else 0)
    if temperature is not None:  # where decoding is greedy all drafts are certain
        warm = temperature > 0 if is_real(temperature) else (temperature > 0)[:, None]
        sampled = sampled & warm
    trees = trees._replace(sampled=sampled)
    return _walk(chosen, (target, draft, trees, temperature), workspace)


def _walk(
    backend: str, arguments: tuple[Any, Any, Trees[Any], Any], workspace: Workspace | None
) -> VerifiedTree[Any]:
    """Walk through trees on a backend; `sampled` says which drafts were sampled."""
    if backend == AUTO:
        from otm.kernels.self_check import run as self_check
        from otm.kernels.tree import cases as tree_cases

        backend = self_check.checked_backend(tree_cases.call_of_trees(*arguments, _walk))
    target, draft, trees, temperature = arguments
    if backend == "triton":
        from otm.kernels.tree import triton as by_triton

        return by_triton.verify(target, draft, trees, temperature, workspace)
    with np.errstate(all="ignore"):  # in numbers that nobody checked
        if backend == "torch":
            from otm.kernels.tree import torch as by_torch

            return by_torch.verify(target, draft, trees, temperature)
        from otm.kernels.common.rows import numpy as rows
        from otm.kernels.tree import numpy as tree

        read = rows.read(target, draft, trees.tokens, target.shape[-1], temperature)
        return tree.verify(*read, trees)
