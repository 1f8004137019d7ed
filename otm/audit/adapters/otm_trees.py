"""Adapters of verifiers of `DraftNode` trees, and of OTM's kernels for trees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.numbers import check_name
from otm._core.optional import require
from otm._core.probs.sparse import SparseProbs
from otm._core.rule import BACKENDS
from otm._core.tensors import to_host
from otm.audit.adapters.base import Adapter, Instance, Source
from otm.audit.adapters.drafts import as_tokens, models_for
from otm.audit.adapters.tree_drafts import CERTAIN_AND_DRAWN, DETERMINISTIC, Nodes, TreeDrafts
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import Verifier
from otm.kernels import verify_tree_logits, verify_tree_probs
from otm.kernels.tree.verify import RULES, WALK, WALK_UNIFORMS
from otm.models.base import StatelessModel

__all__ = ["tree_kernel", "tree_verifier"]

OF_KERNELS = ("without replacement", *DETERMINISTIC, CERTAIN_AND_DRAWN)
"""Ways to draft trees whose siblings are different tokens."""


class TreeAdapter(Adapter):
    """Base class of adapters of OTM's verifiers of trees."""

    several = True

    def __init__(self, name: str, drafts: str, branching: tuple[int, ...] | None = None) -> None:
        self.name = str(name)
        self.drawing = TreeDrafts.checked(drafts, branching)
        self.more = self.drawing.more

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance is as deep and as wide as a stated branching."""
        return self.drawing.supports(instance)

    def drafted(self, instance: Instance, source: Randomness) -> dict[str, Path]:
        """Draw the same drafts as `output`."""
        return self.drawing.draw(instance, source).shown()


def tree_verifier(
    verifier: Verifier,
    *,
    drafts: str = CERTAIN_AND_DRAWN,
    branching: tuple[int, ...] | None = None,
    name: str | None = None,
) -> Adapter:
    """Audit a verifier f(root, target_probs, uniforms) of trees of `DraftNode` objects.

    If some children of a node are certain and the last is drawn, the node has the kind "Greedy".
    The kind is "Top" if all children are certain, and "IID" if a single child was drawn.

    Parameters
    ----------
    verifier : callable
        Function of the root of a tree, a function from a path to the target's distribution after
        it, and a source of uniforms, such as `otm.decoding.verify_walk_and_keep`.
    drafts, branching
        As for `otm.audit.tree`.
    name : str, optional
        Name in reports.

    Returns
    -------
    Adapter
        Adapter for trees.

    Raises
    ------
    UnknownMethodError
        If the way to draft is unknown.
    InvalidParameterError, InvalidDraftCountError, ProblemTooLargeError
        If the branching is not valid, as for `otm.audit.tree`.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> from otm.audit.instances import INSTANCES
    >>> from otm.decoding import verify_walk_and_keep
    >>> audited = tree_verifier(verify_walk_and_keep)
    >>> lossless(audited, instances=[INSTANCES["pairs with zeros"]], examples=0).verdict
    'lossless on everything tried'
    """
    called = name or getattr(verifier, "__name__", type(verifier).__name__)
    return _OfNodes(verifier, called, drafts, branching)


class _OfNodes(TreeAdapter):
    """Adapter of a verifier of `DraftNode` trees."""

    def __init__(self, verifier: Verifier, *options: Any) -> None:
        super().__init__(*options)
        self.verifier = verifier

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then verify them."""
        nodes = self.drawing.draw(instance, source)
        target, draft = models_for(instance, source)
        kind = {"without replacement": "WithoutReplacement"}.get(self.drawing.drafts, "IID")
        root = as_draft_nodes(nodes, partial(_probs_after, draft, instance.prompt), kind)
        target_probs = partial(_probs_after, target, instance.prompt)
        return as_tokens(self.verifier(root, target_probs, source))


def _probs_after(model: StatelessModel, prompt: Path, path: Path) -> SparseProbs:
    """Return a model's distribution after a prompt and a path."""
    return SparseProbs.from_dense(model.probs(prompt + path))


def as_draft_nodes(nodes: Nodes, draft_probs: Any, kind: str = "IID") -> DraftNode:
    """Make a tree of `DraftNode` objects; `kind` is the kind of nodes without certain children."""
    root = DraftNode()
    made = [root, *map(DraftNode, nodes.paths)]
    drawn: dict[int, list[bool]] = {}
    for i, (parent, sampled) in enumerate(zip(nodes.parents, nodes.sampled, strict=True)):
        # A draw of several equal tokens stands for several nodes.
        made[parent + 1].children += [made[i + 1]] * nodes.counts[i]
        drawn.setdefault(parent + 1, []).append(sampled)
    for place, marks in drawn.items():
        node = made[place]
        node.draft_kind = kind if all(marks) else "Greedy" if any(marks) else "Top"
        node.draft_probs = draft_probs(node.path) if any(marks) else None
    return root


def tree_kernel(
    rule: str = WALK,
    backend: str = "numpy",
    *,
    drafts: str = CERTAIN_AND_DRAWN,
    logits: bool = False,
) -> Adapter:
    """Audit `otm.kernels.verify_tree_probs` or `verify_tree_logits`.

    Parameters
    ----------
    rule : {"walk and keep", "recursive rejection without replacement"}, optional
        As for `verify_tree_probs`.
    backend : {"numpy", "torch"}, optional
        "numpy" is the exact reference.
    drafts : str, optional
        "certain and drawn", "top-k", "dynamic" or "without replacement", as for `otm.audit.tree`.
    logits : bool, optional
        Whether to audit `verify_tree_logits`, on logarithms of the probabilities in floats.

    Returns
    -------
    Adapter
        Adapter for trees.

    Raises
    ------
    UnknownMethodError
        If the rule, the backend or the way to draft is unknown.
    MissingDependencyError
        If torch is needed in a run and not installed.

    Examples
    --------
    >>> tree_kernel(backend="torch", logits=True).name
    'walk and keep of trees, torch, logits'
    """
    check_name("rule", rule, RULES)
    check_name("backend", backend, BACKENDS[:2])
    check_name("way to draft", drafts, OF_KERNELS)
    return _TreeKernel(rule, backend, drafts, logits)


class _TreeKernel(TreeAdapter):
    """Adapter of the kernels of trees."""

    def __init__(self, rule: str, backend: str, drafts: str, logits: bool) -> None:
        super().__init__(f"{rule} of trees, {backend}{', logits' * logits}", drafts)
        self.rule, self.backend, self.logits = rule, backend, logits
        self.exact = backend == "numpy" and not logits

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then verify them."""
        return self._run(instance, [source])[0]

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Draw drafts for each run, then verify all runs together."""
        return self._run(instance, [Source(row) for row in uniforms])

    def _run(self, instance: Instance, sources: Sequence[Randomness]) -> list[Path]:
        drawn = [self.drawing.draw(instance, source) for source in sources]
        levels, columns = instance.gamma + 1, WALK_UNIFORMS if self.rule == WALK else instance.k + 1
        uniforms = [source(levels * columns).reshape(levels, columns) for source in sources]
        size = max(len(nodes.paths) for nodes in drawn)
        target, draft = models_for(instance, sources[0])
        rows = [
            [[model.probs(instance.prompt + path) for path in paths] for model in (target, draft)]
            for paths in ([(), *nodes.paths, *[()] * (size - len(nodes.paths))] for nodes in drawn)
        ]
        marks = [[*nodes.shown().values(), tuple(nodes.sampled)] for nodes in drawn]
        padded = [[(*each, *[-1] * (size - len(each))) for each in three] for three in marks]
        tokens, parents, sampled = (np.array(each) for each in zip(*padded, strict=True))
        of_target, of_draft = (np.array(each) for each in zip(*rows, strict=True))
        arrays = of_target, of_draft, tokens, parents, np.array(uniforms), sampled > 0
        return self._verify(arrays)

    def _verify(self, arrays: Sequence[npt.NDArray[Any]]) -> list[Path]:
        """Return the outputs of the kernel."""
        of_target, of_draft, *given = arrays
        if self.rule != WALK:
            of_draft = without_certain(of_draft, given[0], given[1], given[-1])
        rows: list[Any] = [of_target, of_draft]
        if self.logits:
            with np.errstate(divide="ignore"):
                rows = [*map(np.log, rows)]
        rows += given
        if self.backend == "torch":
            torch = require("torch")
            rows = [*map(torch.from_numpy, rows)]
        *rows, sampled = rows
        verify: Any = verify_tree_logits if self.logits else verify_tree_probs
        found = verify(*rows, sampled=sampled, rule=self.rule, backend=self.backend)
        ends = zip(to_host(found.tokens), to_host(found.accepted), strict=True)
        return [as_tokens(pair) for pair in ends]


def without_certain(rows: Any, tokens: Any, parents: Any, sampled: Any) -> Any:
    """Return draft rows [B, N + 1, V] without the certain children, as their drawn siblings are."""
    rows = rows.copy()
    for tree, node in np.argwhere((tokens >= 0) & ~sampled):
        rows[tree, parents[tree, node] + 1, tokens[tree, node]] *= 0
    total = rows.sum(axis=-1, keepdims=True)
    # A row without other tokens has no drawn child, and is not read.
    empty = np.arange(rows.shape[-1]) == 0
    return np.where(total > 0, rows / np.where(total > 0, total, 1 + total), empty + 0 * rows)
