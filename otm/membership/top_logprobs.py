"""α_k from truncated laws: an interval that holds for everything that the lists leave open.

Most servers return only the most likely tokens with their log-probabilities.  The full laws, and
with them α_k, are then not known; but the unlisted probabilities are at most the smallest listed
one, and sum to what is missing.  The interval here is the range of α_k over all full laws that
fit, no wider: its ends belong to two pairs of laws (`otm.membership.completions`).  The proofs, and
that of the correction for rounded lists, are in `docs/theory/truncated.md`.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from otm.arithmetic import Law, Number, as_number, is_exact, sum_error
from otm.errors import InvalidLawError, InvalidParameterError
from otm.input_checks import as_draft_count
from otm.interval import Interval
from otm.membership.completions import (
    TopList,
    farthest_completion,
    measure_value,
    nearest_completion,
)

__all__ = ["alpha_interval", "alpha_interval_from_logprobs"]

POWER_ERROR = 2.0**-43
"""More than the relative error of a power with 63 binary digits in its exponent, and its kind."""


def alpha_interval(
    draft: Mapping[int, Number],
    target: Mapping[int, Number],
    k: int,
    *,
    vocabulary: int | None = None,
    slack: Number = 0,
) -> Interval:
    """Range of α_k over all pairs of laws whose largest probabilities are as listed.

    Parameters
    ----------
    draft, target : mapping of int to float or Fraction
        The most likely tokens of each law with their probabilities.  The lists may have different
        tokens and lengths.  A token that is not among the most likely must be left out (some
        servers add the one that was sampled): unlisted tokens are taken to be at most as likely as
        the least likely listed one.
    k : int
        Number of i.i.d. drafts, at least 1.
    vocabulary : int, optional
        Size n of the vocabulary.  If it is not given the interval holds for every size.
    slack : float or Fraction, optional
        Relative error of the listed probabilities, in [0, 1/2]: the true one is between
        (1 − slack) and 1/(1 − slack) times the given one.

    Returns
    -------
    Interval
        For fractions exact, and with slack 0 the best possible: both ends are attained, by one
        pair of laws for all k.  For floats rounded outwards; probabilities below 1e-300 count as
        zero.

    Raises
    ------
    InvalidLawError
        If a list is not one of tokens and probabilities, or no law fits it.
    InvalidDraftCountError, InvalidParameterError
        If k, the size of the vocabulary or the slack is not valid.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> draft, target = {7: F(1, 2), 3: F(1, 4)}, {3: F(1, 2), 5: F(1, 4)}
    >>> print(alpha_interval(draft, target, k=2))
    [7/16, 15/16]
    >>> print(alpha_interval(draft, target, k=2, vocabulary=8))
    [7/16, 15/16]

    Listing everything leaves nothing open:

    >>> print(alpha_interval({0: F(3, 4), 1: F(1, 4)}, {0: F(1, 4), 1: F(3, 4)}, k=2))
    [11/16, 11/16]
    """
    k = as_draft_count(k)
    n = _as_size(vocabulary)
    laws = [_as_list(draft, "draft", n), _as_list(target, "target", n)]
    exact = all(is_exact(masses) for _, masses in laws)
    factor = _as_factor(slack, exact)
    error = 0 * factor if exact else 4 * sum_error(len(draft) + len(target)) + POWER_ERROR
    factor += error  # so that no rounding below can leave the slack
    inner, outer = [], []
    for (tokens, masses), name in zip(laws, ("draft", "target"), strict=True):
        kind = masses if exact else masses.astype(np.float64)
        _check_fit(kind, factor, n, name)
        inner.append(_deflated(tokens, kind, factor, error))
        outer.append(_inflated(tokens, kind, factor, error, n))
    union = len(set(draft) | set(target))
    farthest = farthest_completion(inner[0], inner[1], None if n is None else n - union)
    nearest = nearest_completion(outer[0], outer[1])
    lower = measure_value(*farthest, k) * (1 - error)
    upper = measure_value(*nearest, k) * (1 + error)
    return Interval(lower, min(upper, 0 * upper + 1))


def alpha_interval_from_logprobs(
    draft_logprobs: Mapping[int, float],
    target_logprobs: Mapping[int, float],
    k: int,
    *,
    vocabulary: int | None = None,
    slack: float = 1e-5,
) -> Interval:
    """Range of α_k over all pairs of laws whose largest log-probabilities are as listed.

    Parameters
    ----------
    draft_logprobs, target_logprobs : mapping of int to float
        The most likely tokens of each law with their natural log-probabilities; otherwise as for
        `alpha_interval`.  −inf is allowed.
    k : int
        Number of i.i.d. drafts, at least 1.
    vocabulary : int, optional
        Size n of the vocabulary.  If it is not given the interval holds for every size.
    slack : float, optional
        Most by which a log-probability may be off, at most 1/2.  The default covers a softmax in
        float32, and log-probabilities printed to five digits after the point.

    Returns
    -------
    Interval
        As `alpha_interval` gives it.

    Raises
    ------
    InvalidLawError, InvalidDraftCountError, InvalidParameterError
        As `alpha_interval` raises them.

    Examples
    --------
    >>> draft = {11: -0.35667, 42: -1.60944}  # 0.7 and 0.2
    >>> target = {42: -0.69315, 11: -0.91629}  # 0.5 and 0.4
    >>> print(f"{alpha_interval_from_logprobs(draft, target, k=2):.4f}")
    [0.7600, 0.8600]
    """
    probabilities = []
    for given, name in ((draft_logprobs, "draft"), (target_logprobs, "target")):
        if not isinstance(given, Mapping):
            raise InvalidLawError(_not_a_list(given, name))
        for token, value in given.items():
            if not _is_between(value, -math.inf, 0):
                raise InvalidLawError(
                    f"the {name} list has the log-probability {value!r:.60} for token {token!r}; "
                    "natural logarithms of probabilities are at most 0"
                )
        probabilities.append({token: math.exp(value) for token, value in given.items()})
    return alpha_interval(probabilities[0], probabilities[1], k, vocabulary=vocabulary, slack=slack)


def _deflated(tokens: Any, masses: Law, factor: Number, error: Number) -> TopList:
    """Measure below every law that fits the list: the lower half of "rounded lists"."""
    unlisted = max(1 - as_number(masses.sum()) * factor, 0 * factor)
    return TopList(tokens, masses / factor, unlisted * (1 - error) / factor**2)


def _inflated(tokens: Any, masses: Law, factor: Number, error: Number, n: int | None) -> TopList:
    """Measure above every law that fits the list: the upper half of "rounded lists"."""
    above = masses * factor
    rest = max(1 - as_number(masses.sum()) / factor, 0 * factor) * (1 + error)
    capacity = _capacity(above, n)
    return TopList(tokens, above, rest if capacity is None else min(rest, capacity))


def _capacity(masses: Law, n: int | None) -> Number | None:
    """Most that the unlisted tokens can have in all; None if there is no limit."""
    cap = as_number(masses.min())
    if not cap:
        return cap
    return None if n is None else cap * (n - masses.size)


def _check_fit(masses: Law, factor: Number, n: int | None, name: str) -> None:
    """Refuse a list that no law fits."""
    total = as_number(masses.sum())
    if total > factor:
        least = 1.06 * float(1 - 1 / total)  # printed with two digits it is still enough
        raise InvalidLawError(
            f"the {name} list sums to {float(total):.9g}, above one by more than the slack allows; "
            f"if its numbers are rounded, give slack={least:.2g} or more"
        )
    capacity = _capacity(masses * factor, n)
    if capacity is not None and total * factor + capacity < 1:
        others = "the others" if n is None else f"the other {n - masses.size:,} tokens"
        raise InvalidLawError(
            f"the {name} list sums to {float(total):.9g}, and {others} cannot make up for what is "
            f"missing: none is above the smallest listed probability, {float(masses.min()):.3g}; "
            "leave out listed tokens that are not among the most likely"
        )


def _as_list(given: Any, name: str, n: int | None) -> tuple[Any, Law]:
    """Tokens in ascending order and their probabilities, floats or fractions."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidLawError(_not_a_list(given, name))
    for token, value in given.items():
        if isinstance(token, bool) or not hasattr(token, "__index__") or token < 0:
            raise InvalidLawError(
                f"the {name} list has the token {token!r:.60}; tokens are whole numbers from 0 on"
            )
        if n is not None and token >= n:
            raise InvalidLawError(
                f"the {name} list has token {token}, outside a vocabulary of {n:,} tokens"
            )
        if not _is_between(value, 0, 1):
            raise InvalidLawError(
                f"the {name} list has the probability {value!r:.60} for token {token}; it must be "
                "a number in [0, 1] (for log-probabilities use alpha_interval_from_logprobs)"
            )
    tokens = sorted(given)
    values = [given[token] for token in tokens]
    if all(isinstance(value, numbers.Rational) for value in values):
        masses = np.array([Fraction(value) for value in values], dtype=object)
    else:
        masses = np.array(values, dtype=np.float64)
    return np.array([operator.index(token) for token in tokens]), masses


def _not_a_list(given: Any, name: str) -> str:
    return (
        f"the {name} list is {given!r:.60}; give a non-empty mapping from tokens to their "
        "probabilities"
    )


def _as_size(vocabulary: Any) -> int | None:
    if vocabulary is None:
        return None
    if isinstance(vocabulary, bool) or not hasattr(vocabulary, "__index__") or vocabulary < 1:
        raise InvalidParameterError(
            f"vocabulary = {vocabulary!r:.60}; the size of a vocabulary is a whole number of at "
            "least 1, None if it is not known"
        )
    return operator.index(vocabulary)


def _as_factor(slack: Any, exact: bool) -> Number:
    """Largest ratio 1/(1 − slack) of a true probability to the listed one; at least e^slack."""
    if not _is_between(slack, 0, 0.5):
        raise InvalidParameterError(
            f"slack = {slack!r:.60}; it must be a number of at least 0 and at most 1/2"
        )
    return 1 / (1 - Fraction(slack)) if exact else 1 / (1 - float(slack))


def _is_between(value: Any, low: float, high: float) -> bool:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and bool(low <= value <= high)
