"""The largest flow from rejected drafts to replacements, in fractions or floats."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any


def largest_flow(
    supply: Mapping[int, Any], demand: Mapping[int, Any], edges: Mapping[int, Sequence[int]]
) -> dict[tuple[int, int], Any]:
    """Return the amounts of a largest flow from supplies along edges to demands.

    Shortest augmenting paths (Edmonds and Karp): the number of paths is bounded for any amounts,
    because each path empties a supply, a demand or an amount exactly, also in floats.
    """
    free, needed = dict(supply), dict(demand)
    flow: dict[tuple[int, int], Any] = {}
    served: dict[int, set[int]] = {y: set() for y in needed}
    while path := _shortest_path(free, needed, edges, served):
        forward = list(zip(path[::2], path[1::2], strict=True))
        # on the way back from y to x, the path takes an amount away
        backward = list(zip(path[2::2], path[1::2], strict=False))
        amount = min(free[path[0]], needed[path[-1]], *(flow[edge] for edge in backward))
        free[path[0]] -= amount
        needed[path[-1]] -= amount
        for x, y in forward:
            flow[x, y] = flow.get((x, y), 0 * amount) + amount
            served[y].add(x)
        for x, y in backward:
            flow[x, y] -= amount
            if not flow[x, y]:
                del flow[x, y]
                served[y].discard(x)
    return flow


def _shortest_path(
    free: Mapping[int, Any],
    needed: Mapping[int, Any],
    edges: Mapping[int, Sequence[int]],
    served: Mapping[int, set[int]],
) -> list[int]:
    """Return a shortest alternating path x, y, x′, y′, … that can move more, or an empty list."""
    came: dict[int, int] = {}  # the supply from which each demand was reached
    before: dict[int, int | None] = {x: None for x, amount in free.items() if amount > 0}
    queue = deque(before)
    while queue:
        x = queue.popleft()
        for y in edges[x]:
            if y in came:
                continue
            came[y] = x
            if needed[y] > 0:
                return _trace(y, came, before)
            for back in sorted(served[y]):
                if back not in before:
                    before[back] = y
                    queue.append(back)
    return []


def _trace(end: int, came: Mapping[int, int], before: Mapping[int, int | None]) -> list[int]:
    """Return the path to a demand, from its supply on."""
    path, y = [], end
    while True:
        x = came[y]
        path += [y, x]
        previous = before[x]
        if previous is None:
            return path[::-1]
        y = previous
