"""Any joint distribution of drafted trees, given as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from otm._core.arithmetic import Number
from otm._core.display.text import shown
from otm._core.distribution import as_probs
from otm._core.numbers import whole
from otm._core.sparse import SparseProbs
from otm.block.flow import TreeDrafts
from otm.block.tree import Path, Tree, in_floats
from otm.errors import InvalidDistributionError, InvalidDraftsError, ProblemTooLargeError


def drafted_trees(
    table: Mapping[Any, Any], target: Callable[[Path], Any], node_limit: int
) -> TreeDrafts:
    """Read a table from collections of paths to probabilities; nodes with T(y) = 0 are left out."""
    trees = [_as_paths(drafted) for drafted in table]
    chances = as_probs(list(table.values()), "joint draft").tolist()
    prefixes = {path[:i] for paths in trees for path in paths for i in range(1, len(path) + 1)}
    if len(prefixes) > node_limit:
        raise ProblemTooLargeError(
            f"the drafted trees have {len(prefixes):,} nodes, above the limit of {node_limit:,}; "
            "give fewer paths, or a larger node_limit"
        )
    rows: dict[Path, dict[int, Number]] = {}
    paths: list[Path] = [()]
    parents, targets = [-1], [Fraction(1)]
    places: dict[Path, int] = {(): 0}
    for path in sorted(prefixes, key=lambda path: (len(path), path)):
        before = path[:-1]
        if before not in places:
            continue
        if before not in rows:
            rows[before] = _row(target(before), before)
        if path[-1] not in rows[before]:
            raise InvalidDraftsError(
                f"the drafts have the path {shown(path)}, whose last token is not in the "
                "vocabulary of the target"
            )
        if rows[before][path[-1]] > 0:
            places[path] = len(paths)
            paths.append(path)
            parents.append(places[before])
            targets.append(rows[before][path[-1]])  # type: ignore[arg-type]
    numbers: list[Number] = list(targets)
    exact = all(isinstance(x, Fraction) or x in (0, 1) for x in (*numbers, *chances))
    if exact:
        numbers, chances = [Fraction(x) for x in numbers], [Fraction(x) for x in chances]
    else:
        numbers = in_floats(numbers, parents)
        chances = in_floats([1.0, *chances], [-1, *([0] * len(chances))])[1:]
    tree = Tree(paths, parents, [0 * x + 1 for x in numbers], numbers, [0] * len(paths))
    members = [
        sorted({places[path[:i]] for path in drafted for i in range(1, len(path) + 1)
                if path[:i] in places})
        for drafted in trees
    ]  # fmt: skip
    return TreeDrafts(tree, chances, members)


def _as_paths(drafted: Any) -> list[Path]:
    """Paths of one drafted tree."""
    try:
        paths = [tuple(whole(token) for token in path) for path in drafted]
    except TypeError:
        paths = [(None,)]
    if not all(token is not None and token >= 0 for path in paths for token in path):
        raise InvalidDraftsError(
            f"the table has {shown(drafted)} as a drafted tree; give a collection of paths, tuples "
            "of token ids, such as ((0, 1), (2,))"
        )
    return [tuple(token for token in path if token is not None) for path in paths]


def _row(probs: Any, path: Path) -> dict[int, Number]:
    """Target probabilities after a path, by token."""
    if isinstance(probs, SparseProbs):
        return _Sparse(zip(probs.tokens.tolist(), probs.probabilities.tolist(), strict=True))
    try:
        return dict(enumerate(as_probs(probs, "target").tolist()))
    except InvalidDistributionError as error:
        raise InvalidDistributionError(f"after the path {shown(path)}: {error}") from None


class _Sparse(dict[int, Number]):
    """Probabilities by token, of which those that are not there are zero."""

    def __contains__(self, token: object) -> bool:
        return True

    def __missing__(self, token: int) -> Number:
        return Fraction(0)
