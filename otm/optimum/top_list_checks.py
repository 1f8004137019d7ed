"""Checks of truncated laws: lists of the most likely tokens with their probabilities."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import Law, Number, as_fraction, as_number, is_exact
from otm._core.numbers import as_integer, as_parameter, is_real, whole
from otm._core.text import shown
from otm.errors import InvalidDistributionError
from otm.optimum.completions import TopList

NAMES = ("draft", "target")


LARGEST_SIZE = 2**63 - 1
"""Most tokens that a vocabulary may have."""


def as_lists(draft: Any, target: Any, n: int | None) -> list[TopList]:
    """Check and sort the two lists; both of fractions, or both of floats.

    The rest is what the numbers lack to one, rounded once however little it is.  Floats may sum to
    slightly more than one; it is negative then.
    """
    lists = [_as_list(given, name, n) for given, name in zip((draft, target), NAMES, strict=True)]
    if all(is_exact(listed.masses) for listed in lists):
        return lists
    return [
        TopList(listed.tokens, listed.masses.astype(np.float64), float(listed.rest))
        for listed in lists
    ]


def check_log_probabilities(draft: Any, target: Any) -> None:
    """Refuse lists that are no mappings to numbers of at most zero."""
    for given, name in zip((draft, target), NAMES, strict=True):
        if not isinstance(given, Mapping):
            raise InvalidDistributionError(_not_a_list(given, name))
        for token, value in given.items():
            if not _is_between(value, -math.inf, 0):
                raise InvalidDistributionError(
                    f"the {name} list has the log-probability {shown(value)} for token "
                    f"{shown(token)}; natural logarithms of probabilities are at most 0"
                )


def check_fit(lists: list[TopList], factor: Number, n: int | None) -> None:
    """Refuse a list that no law fits, although each mass may change by the factor."""
    for listed, name in zip(lists, NAMES, strict=True):
        total = as_number(listed.masses.sum())
        if total > factor:
            least = 1.06 * float(1 - 1 / total)  # printed with two digits it is still enough
            raise InvalidDistributionError(
                f"the {name} list sums to {float(total):.9g}, above one by more than the slack "
                f"allows; if its numbers are rounded, give slack={least:.2g} or more"
            )
        capacity = capacity_of(listed.masses * factor, n)
        if capacity is not None and total * factor + capacity < 1:
            others = "the others" if n is None else f"the other {n - listed.masses.size:,} tokens"
            raise InvalidDistributionError(
                f"the {name} list sums to {float(total):.9g}, and {others} cannot make up for what "
                f"is missing: none is above the smallest listed probability, "
                f"{float(listed.cap):.3g}; leave out listed tokens that are not among the most "
                "likely"
            )


def capacity_of(masses: Law, n: int | None) -> Number | None:
    """Most that the unlisted tokens can have in all; None if there is no limit."""
    cap = as_number(masses.min())
    if not cap:
        return cap
    return None if n is None else cap * (n - masses.size)


def as_size(vocabulary: Any) -> int | None:
    """Check the size of a vocabulary, at least 1; None if it is not known."""
    return None if vocabulary is None else as_integer(vocabulary, "vocabulary", 1, LARGEST_SIZE)


def as_slack(slack: Any) -> Fraction:
    """Check a relative error in [0, 1/2], and turn it into a fraction."""
    return Fraction(as_parameter(slack, "slack", exact=True, least=0, most=0.5))


def _as_list(given: Any, name: str, n: int | None) -> TopList:
    """Tokens in ascending order with their probabilities, floats or fractions, and the rest."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidDistributionError(_not_a_list(given, name))
    for token, value in given.items():
        index = whole(token)
        if index is None or not 0 <= index < LARGEST_SIZE:
            raise InvalidDistributionError(
                f"the {name} list has the token {shown(token)}; tokens are whole numbers from 0 on"
            )
        if n is not None and token >= n:
            raise InvalidDistributionError(
                f"the {name} list has token {token}, outside a vocabulary of {n:,} tokens"
            )
        if not _is_between(value, 0, 1):
            raise InvalidDistributionError(
                f"the {name} list has the probability {shown(value)} for token {token}; it must be "
                "a number in [0, 1] (for log-probabilities use alpha_interval_from_logprobs)"
            )
    tokens = sorted(given)
    values = [given[token] for token in tokens]
    rest: Number
    if all(isinstance(value, numbers.Rational) for value in values):
        masses = np.array([as_fraction(value) for value in values], dtype=object)
        rest = 1 - sum(masses, Fraction(0))
    else:
        masses = np.array(values, dtype=np.float64)
        rest = math.fsum([1.0, *(-masses)])  # 1 − sum would leave only its error of a full list
    return TopList(np.array([operator.index(token) for token in tokens]), masses, rest)


def _not_a_list(given: Any, name: str) -> str:
    return (
        f"the {name} list is {shown(given)}; give a non-empty mapping from tokens to their "
        "probabilities"
    )


def _is_between(value: Any, low: float, high: float) -> bool:
    return is_real(value) and bool(low <= value <= high)
