"""An interval for α_k, from lists of the most probable tokens.

Most servers return only the most probable tokens with their log-probabilities.  From the most
probable tokens alone, the full distributions and α_k cannot be known.  But each unlisted
probability is at most the smallest listed one, and the unlisted probabilities together complete the
sum to one.  The interval is exactly the range of α_k over all full distributions that match the
lists: two pairs of distributions attain its ends (`otm.optimum.truncated`).
`docs/theory/truncated.md` proves this range, and the correction for rounded lists.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.arithmetic import (
    TINY,
    Number,
    Probs,
    as_fraction,
    as_number,
    at_most_one,
    is_exact,
    sum_error,
)
from otm._core.checks import as_draft_count
from otm._core.display.text import shown
from otm._core.interval import Interval
from otm._core.numbers import as_integer, as_parameter, is_real, whole
from otm.errors import InvalidDistributionError
from otm.optimum.truncated import TopList, farthest_completion, measure_value, nearest_completion

POWER_ERROR = 2.0**-43
"""Upper bound on the relative error of x^k in floats, for k below 2^63."""

FLOAT_SLACK = 2.0**-50
"""Slack added for floats: eight roundings of exponentials, their sum and the quotient."""

NAMES = ("draft", "target")

LARGEST_SIZE = 2**63 - 1
"""Largest number of tokens of a vocabulary."""


def alpha_interval(
    draft: Mapping[int, Number],
    target: Mapping[int, Number],
    k: int,
    *,
    vocabulary: int | None = None,
    slack: Number = 0,
) -> Interval:
    """Compute the range of α_k over all pairs of distributions with these largest probabilities.

    Theorems 10.1 to 10.4 of docs/theory/truncated.md.

    Parameters
    ----------
    draft, target : mapping of int to float or Fraction
        The most probable tokens of each distribution with their probabilities.  The lists may have
        different tokens and lengths.  Leave out tokens that are not among the most probable (some
        servers add the sampled token): the function assumes that each unlisted probability is at
        most the smallest listed one.
    k : int
        Number of i.i.d. drafts, at least 1.
    vocabulary : int, optional
        Size n of the vocabulary; if it is left out, the interval holds for every size.
    slack : float or Fraction, optional
        Relative error of the listed probabilities, in [0, 1/2]: each true probability is between
        (1 − slack) and 1/(1 − slack) times the listed one.  For floats, 2^−50 is added, because
        floats are rounded.

    Returns
    -------
    Interval
        For fractions the interval is exact.  With slack 0 the interval is the smallest possible:
        one pair of distributions attains the lower end for all k, and another pair the upper end.
        For floats the interval is rounded outwards; probabilities below 1e-300 count as zero.

    Raises
    ------
    InvalidDistributionError
        If a list is not a mapping from tokens to probabilities, or no distribution matches it.
    InvalidDraftCountError, InvalidParameterError
        If k, the size of the vocabulary or the slack is not valid.

    Notes
    -----
    With a slack, the draft may have a little mass on tokens that only the target lists; if k drafts
    may hit these tokens, the interval can be wider by k · slack.  If tokens that only the target
    lists cannot be drafted, list one of them in `draft` with probability zero: then all tokens that
    `draft` does not list have probability zero too.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> draft, target = {7: F(1, 2), 3: F(1, 4)}, {3: F(1, 2), 5: F(1, 4)}
    >>> print(alpha_interval(draft, target, k=2))
    [7/16, 15/16]
    >>> print(alpha_interval(draft, target, k=2, vocabulary=8))
    [7/16, 15/16]

    If all tokens are listed, the interval is a single number:

    >>> print(alpha_interval({0: F(3, 4), 1: F(1, 4)}, {0: F(1, 4), 1: F(3, 4)}, k=2))
    [11/16, 11/16]
    """
    k = as_draft_count(k)
    n = as_size(vocabulary)
    lists = as_lists(draft, target, n)
    exact = is_exact(lists[0].masses)
    slack = as_slack(slack) if exact else float(as_slack(slack)) + FLOAT_SLACK
    error = 0 * slack if exact else 4 * sum_error(len(draft) + len(target)) + POWER_ERROR
    check_fit(lists, (1 + error) / (1 - slack), n)
    inner = [_below(probs, slack, error) for probs in lists]
    outer = [_above(probs, slack, error, n) for probs in lists]
    union = len(set(draft) | set(target))
    farthest = farthest_completion(inner[0], inner[1], None if n is None else n - union)
    nearest = nearest_completion(outer[0], outer[1])
    tiny = 0 * slack if exact else TINY
    lower = measure_value(*farthest, k) * (1 - error) - tiny
    upper = measure_value(*nearest, k) * (1 + error) + tiny
    return Interval(max(lower, 0 * lower), at_most_one(upper))


def alpha_interval_from_logprobs(
    draft_logprobs: Mapping[int, float],
    target_logprobs: Mapping[int, float],
    k: int,
    *,
    vocabulary: int | None = None,
    slack: float = 1e-5,
) -> Interval:
    """Compute the range of α_k over all distributions with these largest log-probabilities.

    The range is `alpha_interval` of the exponentials (Theorem 10.4 of docs/theory/truncated.md).

    Parameters
    ----------
    draft_logprobs, target_logprobs : mapping of int to float
        The most probable tokens of each distribution with their natural log-probabilities, which
        may be −inf.  The other conditions are as in `alpha_interval`.
    k : int
        Number of i.i.d. drafts, at least 1.
    vocabulary : int, optional
        Size n of the vocabulary; if it is left out, the interval holds for every size.
    slack : float, optional
        Largest error of a log-probability in nats, from 0 to 1/2.  The default is enough for a
        softmax in float32, and for log-probabilities printed with five decimal places.

    Returns
    -------
    Interval
        The range of α_k, as `alpha_interval` returns it.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError, InvalidParameterError
        As `alpha_interval` raises them.

    Examples
    --------
    >>> draft = {11: -0.35667, 42: -1.60944}  # 0.7 and 0.2
    >>> target = {42: -0.69315, 11: -0.91629}  # 0.5 and 0.4
    >>> print(f"{alpha_interval_from_logprobs(draft, target, k=2):.4f}")
    [0.7600, 0.8600]
    """
    check_log_probabilities(draft_logprobs, target_logprobs)
    draft, target = (
        {token: math.exp(value) for token, value in listed.items()}
        for listed in (draft_logprobs, target_logprobs)
    )
    return alpha_interval(draft, target, k, vocabulary=vocabulary, slack=slack)


def _below(probs: TopList, slack: Number, error: Number) -> TopList:
    """Return a lower bound on all distributions that match the list, as a measure (Theorem 10.4).

    The unlisted mass has an extra factor below 1, unlike the cap, so that later rounding cannot
    make this mass too large.
    """
    factor = (1 + error) / (1 - slack)
    rest = max(probs.rest * (1 - error) - slack, 0 * slack) * (1 - error)
    return TopList(probs.tokens, probs.masses / factor, rest / factor)


def _above(probs: TopList, slack: Number, error: Number, n: int | None) -> TopList:
    """Return an upper bound on all distributions that match the list, as a measure (Theorem 10.4).

    The unlisted mass, but not the cap, is multiplied once more by a factor above 1, so that later
    rounding cannot undo the increase.
    """
    masses = probs.masses * ((1 + error) / (1 - slack))
    rest = max(probs.rest * (1 - slack) + slack * (1 + error), 0 * slack) * (1 + error)
    capacity = capacity_of(masses, n)
    most = rest if capacity is None else min(rest, capacity)
    return TopList(probs.tokens, masses, most * (1 + error))


def as_lists(draft: Any, target: Any, n: int | None) -> list[TopList]:
    """Check and sort the two lists; return both in fractions, or both in floats.

    The unlisted mass is one minus the sum of the list, rounded once.  The unlisted mass is negative
    if floats sum to slightly more than one.
    """
    lists = [_as_list(given, name, n) for given, name in zip((draft, target), NAMES, strict=True)]
    if all(is_exact(listed.masses) for listed in lists):
        return lists
    return [
        TopList(listed.tokens, listed.masses.astype(np.float64), float(listed.rest))
        for listed in lists
    ]


def check_log_probabilities(draft: Any, target: Any) -> None:
    """Raise unless both lists map tokens to numbers of at most zero."""
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
    """Raise if no distribution matches a list, even if each mass may change by this factor."""
    for listed, name in zip(lists, NAMES, strict=True):
        total = as_number(listed.masses.sum())
        if total > factor:
            # 6 % more, so that the value is still large enough when printed with two digits.
            least = 1.06 * float(1 - 1 / total)
            raise InvalidDistributionError(
                f"the {name} list sums to {float(total):.9g}, above one by more than the slack "
                f"allows; if its numbers are rounded, give slack={least:.2g} or more"
            )
        capacity = capacity_of(listed.masses * factor, n)
        if capacity is not None and total * factor + capacity < 1:
            others = "the others" if n is None else f"the other {n - listed.masses.size:,} tokens"
            raise InvalidDistributionError(
                f"the {name} list sums to {float(total):.9g}, and {others} cannot complete the sum "
                f"to one: each has at most the smallest listed probability, "
                f"{float(listed.cap):.3g}; leave out listed tokens that are not among the most "
                "probable"
            )


def capacity_of(masses: Probs, n: int | None) -> Number | None:
    """Return the largest total mass of the unlisted tokens, or None if there is no limit."""
    cap = as_number(masses.min())
    if not cap:
        return cap
    return None if n is None else cap * (n - masses.size)


def as_size(vocabulary: Any) -> int | None:
    """Check the size of a vocabulary, at least 1; None stands for an unknown size."""
    return None if vocabulary is None else as_integer(vocabulary, "vocabulary", 1, LARGEST_SIZE)


def as_slack(slack: Any) -> Fraction:
    """Check a relative error in [0, 1/2], and convert it to a fraction."""
    return Fraction(as_parameter(slack, "slack", exact=True, least=0, most=0.5))


def _as_list(given: Any, name: str, n: int | None) -> TopList:
    """Check a list; return its tokens in ascending order, probabilities and unlisted mass."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidDistributionError(_not_a_list(given, name))
    for token, value in given.items():
        index = whole(token)
        if index is None or not 0 <= index < LARGEST_SIZE:
            raise InvalidDistributionError(
                f"the {name} list has the token {shown(token)}; tokens are integers from 0"
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
        # For a list of all tokens, 1 − sum in floats would be nothing but rounding error.
        rest = math.fsum([1.0, *(-masses)])
    return TopList(np.array([operator.index(token) for token in tokens]), masses, rest)


def _not_a_list(given: Any, name: str) -> str:
    return (
        f"the {name} list is {shown(given)}; give a non-empty mapping from tokens to their "
        "probabilities"
    )


def _is_between(value: Any, low: float, high: float) -> bool:
    return is_real(value) and bool(low <= value <= high)
