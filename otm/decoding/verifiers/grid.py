"""The three grid rules on the host, by the NumPy reference of their kernels.

A draft tree is stored as a list of its paths, as on a device.  So host and device use the same
uniforms in the same order and make the same decisions.  With fractions, the decisions are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

import numpy as np

from otm._core.arithmetic import Probs
from otm._core.probs.sparse import of_one_kind
from otm.decoding.draft_tree import DraftNode, Randomness, shared_draft_probs
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs
from otm.errors import InvalidDraftsError, ProblemTooLargeError
from otm.kernels.k_seq import numpy as k_seq
from otm.kernels.optimal import numpy as optimal
from otm.kernels.walk_and_keep import numpy as walk_and_keep

MOST_PATHS = 2**8
"""Maximum number K of paths of walk and keep; counting agreeing drafts takes O(K²) time."""


def verify_on_grid(
    kernel: ModuleType, root: DraftNode, target_probs: TargetProbs, uniforms: Randomness
) -> Path:
    """Verify K chains, or the paths of a prefix tree, with the NumPy reference of a kernel.

    All nodes of a level must have the same number of children, because the rules depend on the
    number of paths, which must not depend on tokens.  A draft that several paths share is counted
    once.
    """
    levels = _levels_of(root)
    ends = [node.path for node in levels[-1]]
    if kernel is walk_and_keep and len(ends) > MOST_PATHS:
        raise ProblemTooLargeError(
            f"{len(ends):,} paths of drafts; 'grid walk and keep' allows at most {MOST_PATHS}: "
            "draft fewer paths, or use the rule 'grid optimal' or 'traversal'"
        )
    nodes: dict[Path, list[DraftNode]] = {}
    for node in (node for level in levels for node in level):
        nodes.setdefault(node.path, []).append(node)

    @cache
    def rows_after(path: Path) -> tuple[Probs, Probs]:
        """Return the target and draft rows after a path; at a leaf, return the target row twice."""
        p = q = target_probs(path)
        if nodes[path][0].children:
            p, q = of_one_kind(shared_draft_probs(nodes[path]), q)
        size = 1 + max(p.tokens.item(-1), q.tokens.item(-1))
        return q.dense(size), p.dense(size)

    gamma, count = len(levels) - 1, len(ends)
    tokens = np.array(ends, dtype=np.int64).reshape(count, gamma)
    paths_of_node = [count // len(level) for level in levels[1:]]
    counted = np.array(
        [[c % paths == 0 for paths in paths_of_node] for c in range(count)], dtype=bool
    ).reshape(count, gamma)
    coins = uniforms(gamma * kernel.uniforms_per_position(count) + 2)
    target = _Rows(ends, lambda path: rows_after(path)[0])
    draft = _Rows(ends, lambda path: rows_after(path)[1])
    # Overflows occur only in entries that are not used.
    with np.errstate(all="ignore"):
        verified = kernel.verify(
            [target], [draft], tokens[None], np.asarray(coins)[None], counted=counted[None]
        )
    output: list[int] = verified.tokens[0, : verified.accepted.item() + 1].tolist()
    return tuple(output)


class _Rows:
    """Rows [K, γ + 1, V] by path and position, computed on demand."""

    def __init__(self, ends: Sequence[Path], row_after: Callable[[Path], Probs]) -> None:
        self._ends, self._row_after = ends, row_after

    def __getitem__(self, place: tuple[int, int]) -> Probs:
        path, i = place
        return self._row_after(self._ends[path][:i])


def _levels_of(root: DraftNode) -> list[list[DraftNode]]:
    """Return the nodes of each level; raise if their numbers of children differ."""
    levels = [[root]]
    while children := [child for node in levels[-1] for child in node.children]:
        counts = {len(node.children) for node in levels[-1]}
        if len(counts) > 1:
            raise InvalidDraftsError(
                f"nodes of {len(levels) - 1} drafts have {min(counts)} and {max(counts)} children; "
                "a grid rule needs chains of equal length, or a prefix tree with equally many "
                "children at all nodes of a level: draft such trees, or use the rule 'walk and "
                "keep', 'k-Seq' or 'optimal'"
            )
        levels.append(children)
    return levels


def verify_grid_k_seq(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify with the rule "grid k-Seq"."""
    return verify_on_grid(k_seq, root, target_probs, uniforms)


def verify_grid_optimal(root: DraftNode, target_probs: TargetProbs, uniforms: Randomness) -> Path:
    """Verify with the rule "grid optimal"."""
    return verify_on_grid(optimal, root, target_probs, uniforms)


def verify_grid_walk_and_keep(
    root: DraftNode, target_probs: TargetProbs, uniforms: Randomness
) -> Path:
    """Verify with the rule "grid walk and keep"."""
    return verify_on_grid(walk_and_keep, root, target_probs, uniforms)
