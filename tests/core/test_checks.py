"""Uniforms of every kind of number: in [0, 1), and on their side of every edge."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otm
from otm._core.checks import check_uniforms
from otm.errors import InvalidUniformsError

NEAREST_BELOW_ONE = float(np.nextafter(1, 0))

CLOSE_TO_ONE = {
    "a fraction": 1 - Fraction(1, 10**30),
    "a decimal": Decimal("0.99999999999999999999"),
    "a long double": 1 - np.longdouble(2) ** -60,
    "a float": NEAREST_BELOW_ONE,
}


def taken(value: Any, *, exact: bool) -> Any:
    return check_uniforms([value], (1,), exact, "{shape} are needed")[0]


@pytest.mark.parametrize("kind", CLOSE_TO_ONE)
def test_what_is_below_one_stays_below_one(kind: str) -> None:
    # bug: the nearest float of a number just below 1 is 1.0, which no uniform is
    value = CLOSE_TO_ONE[kind]
    if isinstance(value, np.longdouble) and value == 1:
        pytest.skip("long doubles are float64 here")
    assert taken(value, exact=False) == NEAREST_BELOW_ONE
    exact = taken(value, exact=True)
    assert isinstance(exact, Fraction)
    assert exact == Fraction(*value.as_integer_ratio())
    plan = otm.solve([0.5, 0.5], [0.25, 0.75], 2).plan
    tokens = [plan.select([0, 1], [u] * 4).token for u in (value, NEAREST_BELOW_ONE)]
    assert tokens[0] == tokens[1]


@given(st.fractions(0, 1).filter(lambda u: u < 1), st.floats(0, 1))
def test_a_fraction_stays_on_its_side_of_every_float(uniform: Fraction, edge: float) -> None:
    # bug: rounded to the nearest, a uniform below an edge could come to lie on it
    for near in (edge, float(uniform), float(np.nextafter(float(uniform), 0))):
        assert (taken(uniform, exact=False) < near) == (uniform < near)


@pytest.mark.parametrize(
    "value",
    [1, Fraction(1), Decimal(1), Decimal("NaN"), Decimal("sNaN"), np.longdouble(1), -0.5, "0.5"],
    ids=str,
)
@pytest.mark.parametrize("exact", [True, False])
def test_what_is_no_uniform_is_refused(value: Any, exact: bool) -> None:
    # bugs: rounding down would make a uniform of 1; a comparison with a NaN of decimals raises
    with pytest.raises(InvalidUniformsError, match=r"must be a number in \[0, 1\)"):
        taken(value, exact=exact)
