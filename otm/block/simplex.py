"""The simplex method in fractions, for small programs whose corner floats do not find.

maximise Σ gain_j x_j over x ≥ 0 with Σ_j a_ij x_j ≤ b_i, all b_i ≥ 0, so that x = 0 is a corner to
begin with.  Bland's rule (the first variable that helps enters, the first of those that hold it
leaves) comes to an end in spite of ties.
"""

from __future__ import annotations

from fractions import Fraction

Row = dict[int, Fraction]
"""Coefficients by variable."""


def maximise(
    gain: list[Fraction], rows: list[Row], limits: list[Fraction]
) -> tuple[list[Fraction], list[Fraction]]:
    """Optimal x, and the multiplier of each row."""
    size = len(gain)
    # slack size + i = limits[i] − Σ_j rows[i][j] x_j; basic variables as forms in the others
    forms = {size + i: {j: -a for j, a in row.items() if a} for i, row in enumerate(rows)}
    values = {size + i: limit for i, limit in enumerate(limits)}
    profit = {j: a for j, a in enumerate(gain) if a}
    while True:
        entering = min((j for j, a in profit.items() if a > 0), default=None)
        if entering is None:
            break
        held = [(values[i] / -form[entering], i) for i, form in forms.items()
                if form.get(entering, 0) < 0]  # fmt: skip
        step, leaving = min(held)  # bounded: every x_j has a row of its own
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


def _add(row: Row, form: Row, factor: Fraction) -> None:
    for j, a in form.items():
        row[j] = row.get(j, Fraction(0)) + factor * a
        if not row[j]:
            del row[j]
