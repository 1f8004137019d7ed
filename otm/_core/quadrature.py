"""Integrals of polynomials over [0, 1] as weighted sums, exact in floats and in fractions."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np

from otm._core.arithmetic import Probs, as_fractions, read_only


@cache
def quadrature(k: int, *, exact: bool) -> tuple[Probs, Probs]:
    """Points and weights that integrate polynomials of degree below k over [0, 1] exactly.

    Those of Gauss and Legendre; in fractions, the points i/k.
    """
    if not exact:
        x, w = np.polynomial.legendre.leggauss((k + 1) // 2)
        return read_only((x + 1) / 2), read_only(w / 2)
    points = [Fraction(i, k) for i in range(k)]
    return read_only(as_fractions(points)), read_only(as_fractions(_integrals(points)))


def _integrals(points: list[Fraction]) -> list[Fraction]:
    """Integrals over [0, 1] of the polynomials that are one at one point and zero at the others."""
    integrals = []
    for point in points:
        polynomial = [Fraction(1)]  # the constant first
        for other in points:
            if other != point:
                shifted, same = [Fraction(0), *polynomial], [*polynomial, Fraction(0)]
                polynomial = [
                    (a - other * b) / (point - other) for a, b in zip(shifted, same, strict=True)
                ]
        integrals.append(sum((a / (i + 1) for i, a in enumerate(polynomial)), Fraction(0)))
    return integrals
