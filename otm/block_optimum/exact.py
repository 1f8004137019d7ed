"""Solve the linear program in fractions.

At a vertex of the feasible set, as many constraints are tight as there are nodes.  HiGHS finds the
tight constraints in floats; S and the multipliers are then computed in fractions.  The result is
verified: the vertex is optimal if S satisfies all antichain constraints and both objective values
are equal.  If HiGHS finds no optimal vertex of a small program, the simplex method in fractions
finds one.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

from otm._core.arithmetic import Number, as_fraction
from otm._core.display.progress import Watch
from otm.block_optimum.program import Bounds, CuttingPlanes, Prices, upper_bound, value_of
from otm.errors import SolverError

LinearForm = dict[Any, Fraction]
"""A linear form: a map from unknowns to coefficients, with the constant at None."""

LARGEST_SIMPLEX, SIMPLEX_BITS = 60, 5e8
"""Limits on problems for the simplex method in fractions; at these limits it takes seconds.

`LARGEST_SIMPLEX` limits the number n of nodes, and `SIMPLEX_BITS` limits n³ times the bits of g(U).
"""


def solve_exactly(program: CuttingPlanes, rounds: int, watch: Watch) -> Bounds:
    """Return the optimal S and multipliers in fractions, for a tree in fractions."""
    tree, drafts, worth = program.tree, program.drafts, program.worth
    corners = [_corner_of_highs]
    nodes = range(1, program.size + 1)
    bits = max(as_fraction(drafts.hit([y])).denominator.bit_length() for y in nodes)
    if program.size <= LARGEST_SIMPLEX and program.size**3 * bits <= SIMPLEX_BITS:
        corners.append(_corner_of_fractions)
    for corner in corners:
        for _ in watch.over(range(rounds), "linear program"):
            result = corner(program)
            if result is None:
                break
            accept_probs = tree.largest_below(result[0])
            antichains = drafts.excess(accept_probs).antichains
            if antichains and program.add(antichains):
                continue
            lower, upper = (
                value_of(worth, accept_probs),
                upper_bound(tree, drafts, worth, result[1]),
            )
            if lower == upper and not antichains:
                return Bounds(accept_probs, lower, result[1], upper)
            break
    raise SolverError(
        f"no optimum was found in fractions for {program.size:,} nodes and "
        f"{len(program.antichains):,} antichains; give floats for an answer within a small gap"
    )


def _corner_of_highs(program: CuttingPlanes) -> tuple[list[Number], Prices] | None:
    """Return S and multipliers in fractions at the vertex that HiGHS finds, or None."""
    program.solve()
    tight = _tight(program)
    accept_probs = _corner(program, *tight)
    return None if accept_probs is None else (accept_probs, _multipliers(program, *tight))


def _corner_of_fractions(program: CuttingPlanes) -> tuple[list[Number], Prices]:
    """Return S and multipliers at the optimum of the simplex method in fractions."""
    tree, one = program.tree, Fraction(1)
    rows: list[dict[int, Fraction]] = []
    limits: list[Fraction] = []
    for y in range(1, program.size + 1):
        parent, share = tree.parents[y], Fraction(tree.targets[y])
        rows.append({y - 1: one, parent - 1: -share} if parent else {y - 1: one})
        limits.append(Fraction(0) if parent else share)
    antichains = [*((y,) for y in range(1, program.size + 1)), *program.antichains]
    for antichain in antichains:
        rows.append(dict.fromkeys((y - 1 for y in antichain), one))
        limits.append(Fraction(program.drafts.hit(list(antichain))))
    accept_probs, prices = _maximise([Fraction(w) for w in program.worth[1:]], rows, limits)
    of_antichains = zip(antichains, prices[program.size :], strict=True)
    return [one, *accept_probs], {antichain: price for antichain, price in of_antichains if price}


Tight = tuple[set[int], set[int], set[int], list[tuple[int, ...]]]
"""Tight constraints: nodes with S(y) = 0, with S(y) = g({y}), with S(yz) = S(y) T(z|y), and
antichains with S(U) = g(U)."""


def _tight(program: CuttingPlanes) -> Tight:
    import highspy

    status, basis = highspy.HighsBasisStatus, program.highs.getBasis()
    zero = {y for y, x in enumerate(basis.col_status, 1) if x == status.kLower}
    at_bound = {y for y, x in enumerate(basis.col_status, 1) if x == status.kUpper}
    by_edge = {y for y in at_bound if program.by_edge[y - 1]}
    rows, deep = list(basis.row_status), (program.deep + 1).tolist()
    edges = {y for y, x in zip(deep, rows, strict=False) if x != status.kBasic}
    of_antichains = zip(program.antichains, rows[len(deep) :], strict=True)
    full, edges = at_bound - by_edge, edges | by_edge
    return zero, full, edges, [U for U, x in of_antichains if x != status.kBasic]


def _corner(
    program: CuttingPlanes,
    zero: set[int],
    full: set[int],
    edges: set[int],
    antichains: list[tuple[int, ...]],
) -> list[Number] | None:
    """Return S at which the given constraints are tight, or None if there is no such S.

    Each S(y) is a linear form in the S of the nodes without a tight bound or edge.
    """
    tree, hit = program.tree, program.drafts.hit
    forms: list[LinearForm] = [{None: Fraction(1)}]
    equations: list[LinearForm] = []
    for y in range(1, program.size + 1):
        bound = {None: Fraction(0 if y in zero else hit([y]))}
        at_bound = y in zero or y in full
        if y in edges:
            form = {x: a * Fraction(tree.targets[y]) for x, a in forms[tree.parents[y]].items()}
            if at_bound:
                equations.append(_sum([form, bound], [1, -1]))
        else:
            form = bound if at_bound else {y: Fraction(1)}
        forms.append(form)
    for antichain in antichains:
        total = _sum([forms[y] for y in antichain], [1] * len(antichain))
        equations.append(_sum([total, {None: Fraction(hit(list(antichain)))}], [1, -1]))
    values = _solve(equations)
    return None if values is None else [_value(form, values) for form in forms]


def _multipliers(
    program: CuttingPlanes,
    zero: set[int],
    full: set[int],
    edges: set[int],
    antichains: list[tuple[int, ...]],
) -> Prices:
    """Return multipliers that are zero for every constraint that is not tight."""
    tree = program.tree
    on: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for antichain in antichains:
        for y in antichain:
            on[y].append(antichain)
    left: list[LinearForm] = [{None: Fraction(w)} for w in program.worth]
    equations = []
    for y in range(program.size, 0, -1):
        for antichain in on[y]:
            left[y][antichain] = left[y].get(antichain, Fraction(0)) - 1
        handed_on = left[y]
        # At a bound, the multiplier of the bound takes the value that does not go to the edge.
        if y in zero or y in full:
            handed_on = {y: Fraction(1)} if y in edges else {}
        elif y not in edges:
            equations.append(handed_on)
            handed_on = {}
        parent = tree.parents[y]
        left[parent] = _sum([left[parent], handed_on], [1, Fraction(tree.targets[y])])
    values = _solve(equations)
    if values is None:
        return {}
    prices: Prices = {U: max(values.get(U, Fraction(0)), Fraction(0)) for U in antichains}
    for y in full:
        taken = values.get(y, Fraction(0)) if y in edges else Fraction(0)
        prices[(y,)] = max(_value(left[y], values) - taken, Fraction(0))
    return {antichain: price for antichain, price in prices.items() if price}


def _sum(forms: list[LinearForm], factors: list[Any]) -> LinearForm:
    total: LinearForm = defaultdict(Fraction)
    for form, factor in zip(forms, factors, strict=True):
        for unknown, coefficient in form.items():
            total[unknown] += factor * coefficient
    return dict(total)


def _value(form: LinearForm, values: dict[Any, Fraction]) -> Fraction:
    return sum(
        (a * (1 if x is None else values.get(x, Fraction(0))) for x, a in form.items()), Fraction(0)
    )


def _solve(equations: list[LinearForm]) -> dict[Any, Fraction] | None:
    """Solve the equations form = 0; return None if they are inconsistent.

    Undetermined unknowns are set to 0.
    """
    solved: dict[Any, LinearForm] = {}
    for equation in equations:
        form = dict(equation)
        for unknown in [x for x in form if x in solved]:
            factor = form.pop(unknown)
            form = _sum([form, solved[unknown]], [1, factor])
        form = {x: a for x, a in form.items() if a}
        pivot = next((x for x in form if x is not None), None)
        if pivot is None:
            if form:
                return None
            continue
        scale = -1 / form.pop(pivot)
        row = {x: a * scale for x, a in form.items()}
        for other, known in solved.items():
            if pivot in known:
                factor = known.pop(pivot)
                solved[other] = _sum([known, row], [1, factor])
        solved[pivot] = row
    return {x: row.get(None, Fraction(0)) for x, row in solved.items()}


def _maximise(
    gain: list[Fraction], rows: list[dict[int, Fraction]], limits: list[Fraction]
) -> tuple[list[Fraction], list[Fraction]]:
    """Return the optimal x ≥ 0 of Σ gain_j x_j, and the multiplier of each row Σ_j a_ij x_j ≤ b_i.

    All b_i ≥ 0, so x = 0 is a feasible start.  Bland's rule prevents cycles: among the candidates,
    the variable with the lowest index enters or leaves the basis.
    """
    size = len(gain)
    # The slack variable `size + i` is limits[i] − Σ_j rows[i][j] x_j.  Each basic variable is a
    # linear form in the nonbasic variables.
    forms = {size + i: {j: -a for j, a in row.items() if a} for i, row in enumerate(rows)}
    values = {size + i: limit for i, limit in enumerate(limits)}
    profit = {j: a for j, a in enumerate(gain) if a}
    while True:
        entering = min((j for j, a in profit.items() if a > 0), default=None)
        if entering is None:
            break
        candidates = [(values[i] / -form[entering], i) for i, form in forms.items()
                if form.get(entering, 0) < 0]  # fmt: skip
        # The list is not empty, because a separate row bounds each x_j.
        step, leaving = min(candidates)
        form = forms.pop(leaving)
        pivot = form.pop(entering)
        form = {j: -a / pivot for j, a in form.items()}
        form[leaving] = 1 / pivot
        del values[leaving]
        for i, other in forms.items():
            if entering in other:
                factor = other.pop(entering)
                values[i] += factor * step
                _add(other, form, factor)
        _add(profit, form, profit.pop(entering))
        forms[entering], values[entering] = form, step
    zero = Fraction(0)
    prices = [-profit.get(size + i, zero) for i in range(len(rows))]
    return [values.get(j, zero) for j in range(size)], prices


def _add(row: dict[int, Fraction], form: dict[int, Fraction], factor: Fraction) -> None:
    for j, a in form.items():
        row[j] = row.get(j, Fraction(0)) + factor * a
        if not row[j]:
            del row[j]
