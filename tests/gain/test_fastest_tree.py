"""The fastest tree against all small trees, and nodes that do not pay under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otm.decoding.drafters.trees import Shape
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain import Latency, fastest_tree

HITS = [0.5, 0.25, 0.125]
TIMES = Latency((1, 2, 4, 8), (1, 3, 6), (0.25,) * 4, ((4, 4, 4, 4), (4, 5, 6, 9), (4.5, 6, 9, 15)))


def shapes(nodes: int) -> Iterator[Shape]:
    """Yield all shapes with this number of nodes below the root."""
    if not nodes:
        yield ()
    for first in range(nodes):
        for child in shapes(first):
            yield from ((child, *others) for others in shapes(nodes - 1 - first))


def accepted(shape: Shape) -> float:
    pairs = zip([*HITS, 0, 0, 0], shape, strict=False)
    return sum(hit * (1 + accepted(child)) for hit, child in pairs)


def depth(shape: Shape) -> int:
    return max((1 + depth(child) for child in shape), default=0)


def speed(shape: Shape, requests: int) -> float:
    """Return the speed by hand: a draft call for each level, and one call of the target."""
    nodes = str(shape).count("(") - 1
    column = TIMES.rows.index(requests)
    one, three, six = (TIMES.target[row][column] for row in range(3))
    tokens = nodes + 1
    read = one + (three - one) * (tokens - 1) / 2
    if tokens > 3:
        read = three + (six - three) * (tokens - 3) / 3
    return (1 + accepted(shape)) * one / (0.25 * depth(shape) + read)


@pytest.mark.parametrize("requests", [1, 2, 4])
def test_no_tree_is_faster(requests: int) -> None:
    """Against all 65 trees of at most five nodes.

    Bugs: a level without a draft call; nodes for tokens; times of another number of requests.
    """
    every = [(speed(shape, requests), shape) for nodes in range(6) for shape in shapes(nodes)]
    best = max(value for value, _ in every)
    found = fastest_tree(HITS, TIMES, requests=requests, nodes=5)
    assert found.speedup == pytest.approx(best)
    assert found.speedup == pytest.approx(speed(found.shape, requests))
    assert found.accepted == pytest.approx(accepted(found.shape))


def test_a_tree_shrinks_under_load() -> None:
    """At eight requests no draft pays."""
    sizes = [str(fastest_tree(HITS, TIMES, requests=b).shape).count("(") - 1 for b in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (5, 0)


def test_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="Latency"):
        fastest_tree(HITS, 0.1)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="nodes"):
        fastest_tree(HITS, TIMES, nodes=0)
    with pytest.raises(InvalidInputError, match="one token"):
        fastest_tree(HITS, Latency((1,), (1,), (1.0,), ((1.0,),)))
