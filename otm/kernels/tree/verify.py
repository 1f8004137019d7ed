"""Verification of draft trees: check the arguments, choose a backend and walk through the trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.numbers import check_name, is_real
from otm._core.rule import BACKENDS
from otm.kernels.registry import AUTO, choose_backend
from otm.kernels.results import VerifiedTree
from otm.kernels.tree.checks import Trees, check_trees

if TYPE_CHECKING:
    from otm.kernels.workspace import Workspace

WITHOUT_REPLACEMENT = "recursive rejection without replacement"
WALK = "walk and keep"
RULES = (WITHOUT_REPLACEMENT, WALK)

WALK_UNIFORMS = 4
"""Number of uniforms of a level in walk and keep."""


def verify_tree_probs(
    target_probs: Any,
    draft_probs: Any,
    draft_tokens: Any,
    parents: Any,
    uniforms: Any,
    *,
    sampled: Any = None,
    rule: str = WITHOUT_REPLACEMENT,
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> VerifiedTree[Any]:
    """Verify trees of deterministic drafts, sampled drafts or both; the output is lossless.

    At a node, the *sampled* children were drawn one after another without replacement.  Sampled
    children are tested in the order of their draws by recursive rejection ([chen2024]_,
    [jeon2024]_).  If no sampled child is accepted, a token is drawn from the residual distribution
    of the target.  If a child has the drawn token, the walk continues from that child; otherwise
    the walk ends.

    Without sampled children the method is target-only sampling ([zheng2024]_).  For *deterministic*
    drafts, such as the most probable tokens, best-first trees or prompt lookup, no lossless rule
    has a higher acceptance.  If all children but one are deterministic and one is sampled from the
    other tokens, the method attains the optimum of greedy drafts.  Proofs are in
    docs/theory/trees.md.

    The rule "walk and keep" verifies whole paths.  It needs trees in which a node has at most one
    sampled child, drawn from the tokens that are not among its deterministic children.  For such
    trees it accepts at least as many drafts on average (docs/theory/certain-and-drawn.md).

    For drafts that are sampled independently, including prefix trees, use `verify_probs` with a
    rule for several chains.

    Parameters
    ----------
    target_probs : array or Tensor [B, N + 1, V]
        The target model's probabilities after the context, and then after each draft, in float16,
        bfloat16, float32, float64, or fractions (NumPy only).  Only the rows along the output path
        are read.
    draft_probs : array or Tensor [B, N + 1, V'], or None
        The distributions that the sampled children were drawn from, after the context and after
        each draft, V' ≤ V.  A row is read only if its node has sampled children.  The draw of a
        child excludes the tokens of its earlier sampled siblings; if it also excludes deterministic
        siblings, their probability in the row must be 0.  None means that no draft was sampled.
    draft_tokens : int array or Tensor [B, N]
        The drafts of a tree: parents before children, siblings in the order of their draws.  −1
        marks an unused entry.
    parents : int array or Tensor [B, N]
        Index of each draft's parent among the drafts; −1 if the draft follows the context.  Drafts
        with the same parent are different tokens.
    uniforms : float64 array or Tensor [B, L + 1, W + 1]
        Independent uniforms in [0, 1).  Each level has one uniform for each sampled child of a
        node, at most W, and one for the token that is drawn.  No path may have more than L drafts.
        "walk and keep" needs the shape [B, L + 1, 4].
    sampled : bool array or Tensor [B, N], optional
        Which drafts were sampled.  By default all drafts were sampled, or no draft if `draft_probs`
        is None.
    rule : {"recursive rejection without replacement", "walk and keep"}, optional
        The rule for sampled drafts.
    backend : {"auto", "numpy", "torch", "triton"}, optional
        As for `verify_probs`.
    validate : bool, optional
        Whether to check all arguments first, which reads every row twice and waits for the device.
        Without the checks, rows with NaN or a wrong sum still yield tokens of the vocabulary.  Rows
        that the walk does not reach may contain any values.
    workspace : Workspace, optional
        Work memory that calls share, so that Triton's kernels allocate only the result.

    Returns
    -------
    VerifiedTree
        int64 tokens [B, L + 1], padded with −1, the number of accepted drafts [B], and the index of
        the last accepted draft [B].

    Raises
    ------
    UnknownMethodError
        If the backend or the rule does not exist.
    InvalidInputError
        If the backend cannot process the arrays, if the arrays belong to several libraries or
        devices, or if a CUDA graph is being captured before the self-check of its kernels.
    MissingDependencyError
        If Triton is needed and not installed.
    InvalidDistributionError
        If the probabilities have wrong shapes, types or entries, or do not sum to one.
    InvalidDraftsError
        If drafts or parents have a wrong shape or type, a draft lies outside the vocabulary or was
        sampled with probability 0, a parent is not an earlier draft, siblings are the same token,
        or the uniforms have too few levels or too few columns for the sampled children.  For "walk
        and keep": if a node has several sampled children.
    InvalidUniformsError
        If the uniforms have a wrong shape or type, or do not lie in [0, 1).

    Notes
    -----
    All backends make the same decisions, bit for bit.  NumPy is the reference and is exact on
    fractions.

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
    Two deterministic drafts follow the context, and a third draft follows the second:

    >>> import numpy as np
    >>> from otm.kernels import verify_tree_probs
    >>> target = np.full((1, 4, 3), [0.25, 0.25, 0.5])
    >>> drafts, parents = np.array([[0, 2, 1]]), np.array([[-1, -1, 1]])
    >>> verify_tree_probs(target, None, drafts, parents, np.array([[[0.9], [0.3], [0.1]]]))
    VerifiedTree(tokens=array([[2, 1, 0]]), accepted=array([2]), node=array([2]))

    If the same drafts were sampled, each level has two more uniforms:

    >>> uniforms = np.full((1, 3, 3), 0.5)
    >>> verify_tree_probs(target, np.full((1, 4, 3), 1 / 3), drafts, parents, uniforms)
    VerifiedTree(tokens=array([[ 0,  2, -1]]), accepted=array([1]), node=array([0]))
    """
    trees = Trees(draft_tokens, parents, sampled, uniforms)
    options: dict[str, Any] = {"rule": rule, "validate": validate, "workspace": workspace}
    return _verify(target_probs, draft_probs, trees, None, backend, **options)


def verify_tree_logits(
    target_logits: Any,
    draft_logits: Any,
    draft_tokens: Any,
    parents: Any,
    uniforms: Any,
    *,
    sampled: Any = None,
    rule: str = WITHOUT_REPLACEMENT,
    temperature: Any = 1.0,
    backend: str = "auto",
    validate: bool = True,
    workspace: Workspace | None = None,
) -> VerifiedTree[Any]:
    """Verify a tree by `verify_tree_probs`, with probabilities softmax(logits / temperature).

    Parameters
    ----------
    target_logits : array or Tensor [B, N + 1, V]
        Logits of the target model; −inf for impossible tokens.
    draft_logits : array or Tensor [B, N + 1, V'], or None
        Logits of the draft model; None if no draft was sampled.
    draft_tokens, parents, uniforms, sampled, rule, backend, validate, workspace
        As for `verify_tree_probs`.
    temperature : float, or float array or Tensor [B], optional
        Temperature of both models, for each sequence.  0 means greedy: the target token is the
        first with the largest logit, and all drafts count as deterministic.

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
        If the logits have wrong shapes or types, or a row contains NaN or +∞ or is −∞ everywhere.
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
    temperatures = float(temperature) if is_real(temperature) else temperature
    trees = Trees(draft_tokens, parents, sampled, uniforms)
    options: dict[str, Any] = {"rule": rule, "validate": validate, "workspace": workspace}
    return _verify(target_logits, draft_logits, trees, temperatures, backend, **options)


def _verify(
    target: Any,
    draft: Any,
    trees: Trees[Any],
    temperature: Any,
    backend: str,
    *,
    rule: str,
    validate: bool,
    workspace: Workspace | None,
) -> VerifiedTree[Any]:
    """Verify trees on a backend: logits if a temperature is given, else probabilities."""
    whole = check_name("rule", rule, RULES) == WALK
    chosen = choose_backend(target, backend, BACKENDS)
    if validate:
        check_trees(target, draft, trees, temperature, uniforms=WALK_UNIFORMS if whole else None)
    sampled = trees.sampled
    if sampled is None:
        sampled = trees.tokens >= (target.shape[-1] if draft is None else 0)
    # In greedy decoding all drafts count as deterministic.
    if temperature is not None:
        not_greedy = temperature > 0 if is_real(temperature) else (temperature > 0)[:, None]
        sampled = sampled & not_greedy
    arguments = (target, draft, trees._replace(sampled=sampled), temperature)
    verify = _walk_and_keep if whole else _walk
    if chosen == AUTO:
        from otm.kernels.self_check import run as self_check
        from otm.kernels.tree import cases as tree_cases

        call = tree_cases.call_of_trees(*arguments, verify, whole_paths=whole)
        chosen = self_check.checked_backend(call)
    # Unchecked numbers may be NaN or ∞.
    with np.errstate(all="ignore"):
        return verify(chosen, arguments, workspace)


def _walk_and_keep(
    backend: str, arguments: tuple[Any, Any, Trees[Any], Any], workspace: Workspace | None
) -> VerifiedTree[Any]:
    """Verify whole paths of trees on a backend; `trees.sampled` marks the sampled drafts."""
    if backend == "triton":
        from otm.kernels.tree_walk import triton as by_triton

        return by_triton.verify(*arguments, workspace)
    from otm.kernels.tree_walk import numpy as tree_walk

    if backend == "torch":
        from otm.kernels.tree import torch as by_torch
        from otm.kernels.tree_walk.torch import walk

        return by_torch.verify(*arguments, on_arrays=tree_walk.verify, on_tensors=walk)
    return tree_walk.verify(*_read(arguments))


def _walk(
    backend: str, arguments: tuple[Any, Any, Trees[Any], Any], workspace: Workspace | None
) -> VerifiedTree[Any]:
    """Walk through trees on a backend; `trees.sampled` marks the sampled drafts."""
    if backend == "triton":
        from otm.kernels.tree import triton as by_triton

        return by_triton.verify(*arguments, workspace)
    if backend == "torch":
        from otm.kernels.tree import torch as by_torch

        return by_torch.verify(*arguments)
    from otm.kernels.tree import numpy as tree

    return tree.verify(*_read(arguments))


def _read(arguments: tuple[Any, Any, Trees[Any], Any]) -> tuple[Any, Any, Trees[Any]]:
    """Return rows of both models as probabilities, and the trees."""
    from otm.kernels.common.rows import numpy as rows

    target, draft, trees, temperature = arguments
    return *rows.read(target, draft, trees.tokens, target.shape[-1], temperature), trees
