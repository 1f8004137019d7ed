"""Quadrature: weighted sums for integrals of polynomials and of mixtures of exponentials.

Integrals of polynomials over [0, 1] are exact, in floats and in fractions.  Mixtures of
exponentials are integrated over t from 0 to ∞ by the trapezoid rule in log t.  With t = e^s and
spacing h, the rule integrates t^j e^(−a t) dt with a relative error of at most
2 Σ_{m≥1} |Γ(j + 1 + 2πi m/h)| / j!, for every a.  The reason is Poisson's summation formula: sum
and integral differ by the Fourier transform of the integrand at the multiples of 2π/h, and the
number a only shifts s.  The bound therefore holds for every mixture with positive weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, as_fractions, read_only
from otm._core.probs.sampling import chunks

Floats = npt.NDArray[np.float64]

LOG_ERROR = -40.0
"""Logarithm of 4e-18, the relative error of the trapezoid rule, far below rounding errors."""

CHUNK_ENTRIES = 2**20
"""Largest number of entries of a matrix [nodes, tokens], 8 MiB."""


@cache
def quadrature(k: int, *, exact: bool) -> tuple[Probs, Probs]:
    """Return points and weights that integrate polynomials of degree below k over [0, 1] exactly.

    For floats this is Gauss–Legendre quadrature; for fractions the points are i/k.
    """
    if not exact:
        x, w = np.polynomial.legendre.leggauss((k + 1) // 2)
        return read_only((x + 1) / 2), read_only(w / 2)
    points = [Fraction(i, k) for i in range(k)]
    return read_only(as_fractions(points)), read_only(as_fractions(_integrals(points)))


def _integrals(points: list[Fraction]) -> list[Fraction]:
    """Integrate over [0, 1] each polynomial that is one at one point and zero at the others."""
    integrals = []
    for point in points:
        polynomial = [Fraction(1)]  # Coefficients in ascending order of the power.
        for other in points:
            if other != point:
                shifted, same = [Fraction(0), *polynomial], [*polynomial, Fraction(0)]
                polynomial = [
                    (a - other * b) / (point - other) for a, b in zip(shifted, same, strict=True)
                ]
        integrals.append(sum((a / (i + 1) for i, a in enumerate(polynomial)), Fraction(0)))
    return integrals


def log_trapezoid(low: float, high: float, powers: int = 0) -> tuple[Floats, Floats]:
    """Return nodes t and weights w for which Σ w f(t) is the integral of f from 0 to ∞.

    f must be a mixture, with positive weights, of t^j e^(−a t) with 0 ≤ j ≤ `powers`.  The nodes
    lie between `low` and `high`, both positive; the integral of f outside must be negligible.
    """
    # There are about 6 nodes per factor e, and more for many powers, in proportion to their root.
    spacing = 2 * math.pi / _frequency(powers)
    start, end = math.log(low), math.log(high)
    nodes = np.exp(start + spacing * np.arange(math.ceil((end - start) / spacing) + 1))
    return nodes, spacing * nodes


def node_chunks(nodes: int, tokens: int) -> Iterator[slice]:
    """Yield slices of the nodes for which the matrix [nodes, tokens] stays small."""
    return chunks(nodes, tokens, CHUNK_ENTRIES)


def _frequency(powers: int) -> float:
    """Return a frequency y at which |Γ(j + 1 + iy)| / j!, for j = `powers`, is ≤ e^LOG_ERROR.

    The quotient increases with j and decreases with y.  The quotient for j = 0 follows from
    |Γ(1 + iy)|² = πy / sinh(πy), and going from j = l − 1 to l multiplies it by |1 + iy/l|.
    """
    factors = np.arange(1, powers + 1)

    def log_quotient(y: float) -> float:
        log_sinh = math.pi * y - math.log(2) + math.log1p(-math.exp(-2 * math.pi * y))
        first = (math.log(math.pi * y) - log_sinh) / 2
        return first + float(np.log1p((y / factors) ** 2).sum()) / 2

    y = 16.0
    while log_quotient(y) > LOG_ERROR:
        y *= 1.05
    return y
