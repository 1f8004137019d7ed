"""Acceptance of list coupling over many tokens, by groups of tokens with nearly equal rates.

In the notation of `otm.coupled.integrals`, the acceptance probability is ::

    Σ_y q_y k/(k + D_y) + Σ_y q_y ∫ k e^(−kt) (1 − e^(−D_y t)) [1 − (1 − p_y Ĝ_y)^(k−1)] dt,
    Ĝ_y = e^(−D_y t)/P_y − Σ_{l > y} c_l e^(−D_l t),   c_l = p_l / (P_{l−1} P_l)

Let s = p/P.  Then p Ĝ ≤ s e^(−Dt), and s D ≤ q because D_y ≤ P_y r_y.

- Powers.  For most tokens s is small.  Then the bracket is a sum of few powers of p Ĝ; the first
  power left out bounds the remainder.  The other tokens, which are few, are heavy: the bracket is
  computed at each node t.
- Groups.  Let 1 + D = u (1 + r) for a token of a group with centre u.  Then
  e^(−Dt) = e^(t − ut) Σ_j (−ut)^j r^j / j!, and a few terms suffice.  So sums over tokens become
  sums over groups.  The part of Ĝ from the same group is a series whose coefficients depend on the
  token.  Its powers and their products with e^(−Dt) have as many terms.

All errors but rounding are certified, each by `TOLERANCE`; together they are below 2e-16.  For the
groups, consider a product of m factors e^(−Dt), m ≤ k, of tokens of one group, whose smallest rate
is v − 1.  The remainder after J terms is at most (m|r|ut)^J e^(−m(v−1)t) / J!.  Its integral with
k e^(−kt) is at most ρ^J, where ρ = max |r| u/v.  The coefficients of p Ĝ add up to at most 2s.
"""

from __future__ import annotations

import math

import numpy as np

from otm._core.arithmetic import at_least_once
from otm._core.quadrature import log_trapezoid
from otm._core.ratios.order import RatioOrder
from otm.coupled.grouped_series import (
    TOLERANCE,
    Floats,
    Groups,
    Integral,
    Series,
    Tokens,
    groups_of,
    series_of,
)

LONGEST_EXPONENT = 40.0
"""Exponentials beyond this exponent are below 5e-18."""

WIDTH = 1 / 8
"""Largest width of a group in log(1 + D)."""

GROUP_TOKENS = 512
"""Largest number of tokens in a group."""

BLOCK_TOKENS = 16 * GROUP_TOKENS
"""Number of tokens whose series are in memory together."""


def grouped_acceptance(order: RatioOrder, rates: Floats, k: int) -> float:
    """Return Pr(Y ∈ {X_1, …, X_k}).

    Equivalent to, but faster than, the sum of `FloatClocks.accepted_mass()`.
    """
    of_first_list = float((order.target * (k / (k + rates))).sum())
    if k == 1:
        return of_first_list
    share = order.draft / order.draft_below[1:]
    once = (k - 1) * order.target * share
    # For t < low, the bounds 1 − e^(−Dt) ≤ Dt and p Ĝ ≤ s suffice.
    low = math.sqrt(2 * TOLERANCE / max(k * float(once @ rates), TOLERANCE))
    high = LONGEST_EXPONENT / k
    first = int(np.searchsorted(np.cumsum(once), TOLERANCE))
    last = int(np.searchsorted(rates, LONGEST_EXPONENT / low, side="right"))
    if low >= high or first >= last:
        return of_first_list
    kept = slice(first, last)
    below, share = order.draft_below[1:][kept], share[kept]
    falls = np.append(0, share[1:] / below[:-1])
    tokens = Tokens(order.draft[kept], order.target[kept], below, share, rates[kept], falls)
    nodes, spacings = log_trapezoid(low, high, k)
    blocks = -(-share.size // BLOCK_TOKENS)
    integral = Integral(k, nodes, float(once.sum()), TOLERANCE / blocks)
    return of_first_list + float((spacings * k * np.exp(-k * nodes)) @ _others(tokens, integral))


def _others(tokens: Tokens, integral: Integral) -> Floats:
    """Return Σ q (1 − e^(−Dt)) [1 − (1 − p Ĝ)^(k−1)] at each node: array [T]."""
    cells = np.floor(np.log1p(tokens.rates) / WIDTH)
    begins = np.append(True, cells[1:] != cells[:-1])
    begins[::GROUP_TOKENS] = True
    accepted = np.zeros(integral.nodes.size)
    # The part of Ĝ from later blocks.
    later = np.zeros(integral.nodes.size)
    for start in reversed(range(0, cells.size, BLOCK_TOKENS)):
        stop = min(start + BLOCK_TOKENS, cells.size)
        block = Tokens(*(values[start:stop] for values in tokens))
        groups = groups_of(block, begins[start:stop], integral.k)
        series = series_of(block, groups, integral)
        basis = _basis(groups.centres, integral.nodes, series.falls.shape[1])
        of_groups = np.matmul(series.falls[:, None], basis)[:, 0]
        # The part of Ĝ from later groups [G, T].
        rest = np.cumsum(np.concatenate([later[None], -of_groups[::-1]]), axis=0)[::-1]
        later, rest = rest[0], rest[1:]
        if series.terms:
            accepted += _light(series, basis, rest)
        if groups.heavy.size:
            accepted += _heavy(block, groups, integral, _rung(groups, series, basis, rest))
    return accepted


def _basis(centres: Floats, nodes: Floats, terms: int) -> Floats:
    """Return (−ut)^j e^(t − ut): array [G, J, T]."""
    basis = np.empty((centres.size, terms, nodes.size))
    np.exp(-np.multiply.outer(centres, nodes), out=basis[:, 0])
    times = -np.multiply.outer(1 + centres, nodes)
    for j in range(1, terms):
        np.multiply(basis[:, j - 1], times, out=basis[:, j])
    return basis


def _light(series: Series, basis: Floats, rest: Floats) -> Floats:
    """Return the sum of `_others` over the light tokens of a block: array [T].

    Let Ĝ = E + B, where B comes from later groups.  Then Ĝ^b = Σ_a C(b, a) E^a B^(b−a).  The rows
    of a matrix of sums stand for 1 and the coefficients of E, E², …; its columns stand for the
    coefficients of e^(−Dt) with the factors of the power 1, then 2, ….
    """
    rows = np.cumsum([0, 1, *series.terms]).tolist()
    columns = np.cumsum([0, *series.terms]).tolist()
    decay = basis[:, 0]
    # Coefficients of B^0, B^1, ….
    polynomial: list[Floats] = [np.zeros(rest.shape) for _ in range(len(series.terms) + 1)]
    for power, count in enumerate(series.terms, start=1):
        for own in range(power + 1):
            size = count if own else 1
            matrix = series.sums[:, rows[own] :, columns[power - 1] :]
            # Series of Σ E^a and of Σ E^a e^(−Dt).
            product = np.zeros((len(matrix), 2, count))
            product[:, 0, :size] = matrix[:, :size, 0]
            for j in range(size):
                product[:, 1, j:] += matrix[:, j, : count - j]
            plain, decaying = np.moveaxis(np.matmul(product, basis[:, :count]), 1, 0)
            # The basis has one factor e^(t − ut), but E^a has a, and E^a e^(−Dt) has a + 1.
            if own:
                term = (plain - decaying * decay) * decay ** (own - 1)
            else:
                term = product[:, 0, :1] - decaying
            polynomial[power - own] += math.comb(power, own) * term
    value = polynomial[-1]
    for coefficient in polynomial[-2::-1]:
        value = value * rest + coefficient
    return np.asarray(value.sum(axis=0))


def _rung(groups: Groups, series: Series, basis: Floats, rest: Floats) -> Floats:
    """Return Ĝ of the heavy tokens of a block: array [H, T]."""
    rung = np.empty((groups.heavy.size, rest.shape[1]))
    bounds = np.searchsorted(groups.heavy, groups.edges)
    for g in np.flatnonzero(np.diff(bounds)):
        here = slice(bounds[g], bounds[g + 1])
        rung[here] = series.heavy[:, here].T @ basis[g] + rest[g]
    return rung


def _heavy(block: Tokens, groups: Groups, integral: Integral, rung: Floats) -> Floats:
    """Return the sum of `_others` over the heavy tokens of a block: array [T]."""
    draft, target, rates = (x[groups.heavy] for x in (block.draft, block.target, block.rates))
    drafted = np.clip(draft[:, None] * rung, 0, 1)
    others = -np.expm1(-np.multiply.outer(rates, integral.nodes))
    return np.asarray(target @ (others * at_least_once(drafted, integral.k - 1)))
