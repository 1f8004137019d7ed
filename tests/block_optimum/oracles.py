"""Two other ways to the optimum, which share nothing with the package but the definition.

The program over all antichains, listed one by one; and the program over flows from drafted trees to
nodes, in which no antichain occurs.  Both by scipy, on small instances.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog

Path = tuple[int, ...]
Law = Callable[[Path], Any]
Table = dict[frozenset[Path], Any]


def random_law(vocabulary: int, length: int, rng: np.random.Generator, zeros: float = 0.3) -> Law:
    """Small fractions after every path, with zeros; some rows have one token."""
    rows: dict[Path, list[Fraction]] = {}
    for depth in range(length):
        for path in itertools.product(range(vocabulary), repeat=depth):
            weights = [
                0 if rng.random() < zeros else int(rng.integers(1, 9)) for _ in range(vocabulary)
            ]
            weights[int(rng.integers(vocabulary))] += 1
            rows[path] = [Fraction(weight, sum(weights)) for weight in weights]
    return rows.__getitem__


def iid_table(draft: Law, k: int, length: int) -> Table:
    """Joint distribution of the prefixes of k i.i.d. paths."""
    paths: dict[Path, Any] = {(): Fraction(1)}
    for _ in range(length):
        paths = {
            (*path, token): chance * share
            for path, chance in paths.items()
            for token, share in enumerate(draft(path))
            if share
        }
    table: Table = defaultdict(Fraction)
    for drawn in itertools.product(paths, repeat=k):
        tree = frozenset(path[:i] for path in drawn for i in range(1, length + 1))
        table[tree] += math.prod(paths[path] for path in drawn)
    return dict(table)


def antichains(nodes: list[Path]) -> list[frozenset[Path]]:
    """Return all nonempty sets of nodes in which no node is a prefix of another node."""
    found: list[frozenset[Path]] = [frozenset()]
    for node in nodes:
        found += [
            chosen | {node}
            for chosen in found
            if not any(
                node[: len(other)] == other or other[: len(node)] == node for other in chosen
            )
        ]
    return [chosen for chosen in found if chosen]


def by_antichains(table: Table, target: Law) -> float:
    """Solve the program with a row for every antichain."""
    nodes = sorted(frozenset[Path]().union(*table), key=lambda path: (len(path), path))
    place = {path: i for i, path in enumerate(nodes)}
    rows, limits = [], []
    for path in nodes:
        row = np.zeros(len(nodes))
        row[place[path]] = 1
        share = float(target(path[:-1])[path[-1]])
        if len(path) > 1:
            row[place[path[:-1]]] -= share
        rows.append(row)
        limits.append(share if len(path) == 1 else 0)
    # the chances as whole numbers of one unit, and sets of nodes as bits: there are many
    unit = math.lcm(*(Fraction(chance).denominator for chance in table.values()))
    chances = [(bits(tree, place), int(chance * unit)) for tree, chance in table.items()]
    for chosen in antichains(nodes):
        row = np.zeros(len(nodes))
        row[[place[path] for path in chosen]] = 1
        rows.append(row)
        hit = bits(chosen, place)
        limits.append(float(Fraction(sum(chance for tree, chance in chances if hit & tree), unit)))
    return _maximum(np.ones(len(nodes)), np.array(rows), np.array(limits))


def bits(nodes: frozenset[Path], place: dict[Path, int]) -> int:
    """Write a set of nodes as a number."""
    return sum(1 << place[path] for path in nodes)


def by_flow(table: Table, target: Law) -> float:
    """Solve the program over what each drafted tree sends to each of its nodes."""
    nodes = sorted(frozenset[Path]().union(*table), key=lambda path: (len(path), path))
    pairs = [(i, path) for i, tree in enumerate(table) for path in tree]
    place = {path: i for i, path in enumerate(nodes)}
    through = np.zeros((len(nodes), len(pairs)))
    for j, (_, path) in enumerate(pairs):
        through[[place[path[:depth]] for depth in range(1, len(path) + 1)], j] = 1
    rows, limits = [], []
    for path in nodes:
        share = float(target(path[:-1])[path[-1]])
        row = through[place[path]].copy()
        if len(path) > 1:
            row -= share * through[place[path[:-1]]]
        rows.append(row)
        limits.append(share if len(path) == 1 else 0)
    tree_of_pair = np.array([i for i, _ in pairs])
    for i, chance in enumerate(table.values()):
        rows.append((tree_of_pair == i).astype(float))
        limits.append(float(chance))
    return _maximum(
        np.array([float(len(path)) for _, path in pairs]), np.array(rows), np.array(limits)
    )


def block_verification(draft: Law, target: Law, length: int) -> Any:
    """Add up S of block verification: S(yz) = min(S(y) T(z|y), D(yz))."""

    def below(path: Path, accept_probs: Any, reached: Any) -> Any:
        if len(path) == length:
            return 0
        total = 0
        for token, (p, q) in enumerate(zip(draft(path), target(path), strict=True)):
            if p:
                accepted = min(accept_probs * q, reached * p)
                total += accepted
                total += below((*path, token), accepted, reached * p) if accepted else 0
        return total

    return below((), Fraction(1), Fraction(1))


def _maximum(gain: Any, rows: Any, limits: Any) -> float:
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(-gain, A_ub=rows, b_ub=limits, method="highs-ds", options=tolerances)
    assert found.status == 0
    return -float(found.fun)
