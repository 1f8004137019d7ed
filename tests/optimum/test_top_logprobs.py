"""The range of α_k over all distributions that fit truncated lists: proved and attained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import otm
from otm._core.interval import Interval
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidInputError,
    InvalidParameterError,
)
from otm.optimum.top_logprobs import alpha_interval, alpha_interval_from_logprobs
from otm.optimum.truncated import TopList, nearest_completion
from otm.testing.strategies import pairs

F = Fraction
Listed = dict[int, Fraction]


def top(law: Any, size: int) -> Listed:
    """List the most likely tokens of a distribution; of ties the first."""
    order = sorted(range(len(law)), key=lambda token: (-law[token], token))
    return {token: law[token] for token in order[:size]}


@st.composite
def truncated(draw: st.DrawFn, max_tokens: int = 5) -> tuple[Any, Any, Listed, Listed]:
    """Exact distributions with their lists, each long enough to be a list of its distribution."""
    draft, target = draw(pairs(max_tokens=max_tokens, exact=True))
    lists = [top(law, draw(st.integers(1, len(law)))) for law in (draft, target)]
    return draft, target, lists[0], lists[1]


def bounds_of(listed: Listed, n: int, tokens: tuple[int, ...]) -> tuple[Fraction, Fraction]:
    """Least and largest mass that a set of tokens has in any distribution with this list."""
    cap, rest = min(listed.values()), 1 - sum(listed.values())
    known = sum((listed.get(token, F(0)) for token in tokens), F(0))
    inside = sum(token not in listed for token in tokens)
    outside = n - len(listed) - inside
    return known + max(rest - cap * outside, F(0)), known + min(rest, cap * inside)


def by_all_cuts(draft: Listed, target: Listed, n: int, k: int) -> tuple[Fraction, Fraction]:
    """Least and largest α_k, the second by exchanging the maximum with the minimum over cuts."""
    lower, upper = [], []
    for size in range(n + 1):
        for cut in combinations(range(n), size):
            p, q = bounds_of(draft, n, cut), bounds_of(target, n, cut)
            lower.append(q[0] + 1 - p[1] ** k)
            upper.append(q[1] + 1 - p[0] ** k)
    return min(lower), min(upper)


def corners(listed: Listed, n: int) -> Iterator[list[Fraction]]:
    """Yield corners of the set of fitting distributions.

    At a corner, at most one unlisted token lies strictly between 0 and the cap.
    """
    cap, rest = min(listed.values()), 1 - sum(listed.values())
    others = [token for token in range(n) if token not in listed]
    full = int(rest // cap) if cap else 0
    for filled in combinations(others, full):
        law = [listed.get(token, F(0)) for token in range(n)]
        for token in filled:
            law[token] = cap
        left = 1 - sum(law)
        if not left:
            yield law
            continue
        for last in set(others) - set(filled):
            yield [*law[:last], left, *law[last + 1 :]]


def mixture(laws: list[list[Fraction]], weights: list[int]) -> list[Fraction]:
    """Mix distributions into one between them."""
    chosen = list(zip(weights, laws, strict=False))
    total = sum(weight for weight, _ in chosen)
    return [sum(w * law[i] for w, law in chosen) / F(total) for i in range(len(laws[0]))]


# Exactly the range


@given(truncated(), st.sampled_from([1, 2, 3, 64]))
def test_the_ends_are_those_of_all_cuts(case: Any, k: int) -> None:
    """Catches an extreme pair that is best for some thresholds only: all 2^n cuts are tried."""
    draft, _, draft_list, target_list = case
    interval = alpha_interval(draft_list, target_list, k, vocabulary=len(draft))
    assert (interval.lower, interval.upper) == by_all_cuts(draft_list, target_list, len(draft), k)


@pytest.mark.parametrize("seed", range(40))
def test_many_tokens_that_neither_lists(seed: int) -> None:
    """Catches fillings that are cut at the wrong token, which takes a few of them to see."""
    rng = np.random.default_rng(seed)
    n, k = 8, 1 + seed % 3
    lists = []
    for tokens in ([0, 1], [seed % 2, 2]):
        cap = F(int(rng.integers(13, 20)), 100)  # room for the rest on the others
        masses = [cap + F(int(rng.integers(0, 30)), 100), cap]
        lists.append(dict(zip(tokens[: rng.integers(1, 3)], masses[::-1], strict=False)))
    interval = alpha_interval(*lists, k, vocabulary=n)
    assert (interval.lower, interval.upper) == by_all_cuts(*lists, n, k)


@settings(max_examples=60)
@given(truncated(), st.sampled_from([1, 2, 5]))
def test_the_lower_end_is_the_least_over_the_corners(case: Any, k: int) -> None:
    """α_k is concave in the two distributions, so that its least value is at two corners."""
    draft, _, draft_list, target_list = case
    n = len(draft)
    least = min(otm.alpha(p, q, k) for p in corners(draft_list, n) for q in corners(target_list, n))
    assert alpha_interval(draft_list, target_list, k, vocabulary=n).lower == least


@given(truncated(), st.sampled_from([1, 2, 3, 64]))
def test_the_upper_end_is_attained_by_laws_that_fit(case: Any, k: int) -> None:
    draft, _, draft_list, target_list = case
    assume(min(*draft_list.values(), *target_list.values(), 1) > 0)
    n = len(draft)
    lists = [
        TopList(
            np.array(sorted(law)), np.array([law[x] for x in sorted(law)]), 1 - sum(law.values())
        )
        for law in (draft_list, target_list)
    ]
    laws = nearest_completion(*lists)
    others = n - len(set(draft_list) | set(target_list))
    for law, listed in zip(laws, lists, strict=True):
        assert law.sum() == 1
        assert law[-1] <= others * listed.cap  # spread evenly it is below the cap
        assert sorted(law[:-1])[-len(listed.masses) :] == sorted(
            listed.masses
        )  # the list is on top
    attained = otm.alpha(*laws, k)
    assert alpha_interval(draft_list, target_list, k, vocabulary=n).upper == attained
    assert alpha_interval(draft_list, target_list, k).upper == attained


@given(truncated(max_tokens=6), st.data())
def test_every_completion_is_inside(case: Any, data: st.DataObject) -> None:
    draft, target, draft_list, target_list = case
    n, k = len(draft), data.draw(st.integers(1, 9))
    interval = alpha_interval(draft_list, target_list, k, vocabulary=n)
    open_interval = alpha_interval(draft_list, target_list, k)
    weights = st.lists(st.integers(1, 9), min_size=6, max_size=6)
    inside = [
        mixture(data.draw(st.permutations(list(corners(listed, n)))), data.draw(weights))
        for listed in (draft_list, target_list)
    ]
    for laws in ((draft, target), inside):
        assert otm.alpha(*laws, k) in interval
        assert otm.alpha(*laws, k) in open_interval


@given(truncated(), st.integers(1, 5))
def test_without_a_size_the_lower_end_is_that_of_large_vocabularies(case: Any, k: int) -> None:
    _, _, draft_list, target_list = case
    lists = (draft_list, target_list)
    if any(not min(listed.values()) for listed in lists):
        return
    room = sum(math.ceil((1 - sum(listed.values())) / min(listed.values())) for listed in lists)
    n = 5 + room
    lowers = [alpha_interval(*lists, k, vocabulary=size).lower for size in (n, n + 1, n + 10)]
    assert {alpha_interval(*lists, k).lower} == set(lowers)


@given(truncated(), st.integers(1, 5))
def test_a_longer_list_never_widens(case: Any, k: int) -> None:
    draft, target, draft_list, target_list = case
    wide = alpha_interval(draft_list, target_list, k)
    narrow = alpha_interval(
        top(draft, min(len(draft_list) + 1, len(draft))), target_list, k, vocabulary=len(draft)
    )
    assert wide.lower <= narrow.lower <= narrow.upper <= wide.upper
    full = alpha_interval(top(draft, len(draft)), top(target, len(draft)), k)
    assert full.exact
    assert full.lower == otm.alpha(draft, target, k)


def test_swapped_lists_are_not_the_same() -> None:
    draft, target = {0: F(1, 2), 1: F(1, 4)}, {0: F(1, 8), 1: F(1, 16), 2: F(1, 16)}
    assert alpha_interval(draft, target, 3) != alpha_interval(target, draft, 3)


def test_ties_at_the_end_of_the_list() -> None:
    # four tokens of 1/4, two of them listed: whichever they are, the distributions are known
    quarter = F(1, 4)
    draft, target = {0: quarter, 1: quarter}, {2: quarter, 3: quarter}
    assert alpha_interval(draft, target, 2, vocabulary=4) == Interval(1, 1)
    assert alpha_interval(draft, target, 2) == Interval(0, 1)


# Rounded numbers


@given(truncated(), st.sampled_from([1, 2, 8, 64]), st.data())
def test_slack_covers_every_law_that_it_allows(case: Any, k: int, data: st.DataObject) -> None:
    """Catches a bound that widens the listed tokens and forgets the cap or the rest.

    The range for the true lists is attained, so that the range for rounded ones must cover it.
    """
    draft, _, *lists = case
    slack = data.draw(st.sampled_from([F(1, 10**6), F(1, 100), F(1, 4)]))
    factors = [1 - slack, F(1), 1 / (1 - slack)]
    one = st.sampled_from(factors).map(lambda factor: [factor] * len(draft))
    each = st.lists(st.sampled_from(factors), min_size=len(draft), max_size=len(draft))
    moved = []
    for listed in lists:
        scales = data.draw(one | each)
        moved.append({x: min(v * scales[x], F(1)) for x, v in listed.items()})
    for n in (None, len(draft)):
        truth = alpha_interval(*lists, k, vocabulary=n)
        found = alpha_interval(*moved, k, slack=slack, vocabulary=n)
        assert found.lower <= truth.lower
        assert truth.upper <= found.upper


def test_slack_gives_no_mass_to_tokens_that_do_not_exist() -> None:
    lists = {0: F(3, 4), 1: F(1, 4)}, {0: F(1, 4), 1: F(3, 4)}
    wide, narrow = (alpha_interval(*lists, 2, slack=F(1, 100), vocabulary=n) for n in (None, 2))
    assert wide.lower == narrow.lower
    assert narrow.upper < wide.upper


@given(truncated(), st.sampled_from([1, 2, 64]), st.booleans())
def test_floats_are_rounded_outwards(case: Any, k: int, sized: bool) -> None:
    draft, _, draft_list, target_list = case
    n = len(draft) if sized else None
    floats = [{x: float(v) for x, v in listed.items()} for listed in (draft_list, target_list)]
    found = alpha_interval(*floats, k, vocabulary=n)
    # what the floats say exactly, but that they sum to at most one
    said = [{token: F(value) for token, value in listed.items()} for listed in floats]
    exact = alpha_interval(*said, k, vocabulary=n, slack=F(1, 2**50))
    assert found.lower <= exact.lower <= exact.upper <= found.upper
    assert exact.lower - F(found.lower) <= 1e-10
    assert F(found.upper) - exact.upper <= 1e-10
    assert isinstance(found.upper, float)


def test_a_subnormal_value_is_rounded_outwards() -> None:
    # bug: 5e-324 less its relative error is 5e-324 again
    floats = {0: 5e-324, 1: 1.0}, {0: 1.0, 2: 0.0}
    said = [{token: F(value) for token, value in listed.items()} for listed in floats]
    exact = alpha_interval(*said, 1, slack=F(1, 2**50))
    found = alpha_interval(*floats, 1)
    assert 0 == found.lower <= exact.lower <= exact.upper <= found.upper


def test_a_subnormal_cap_does_not_overflow() -> None:
    # bug: the number of tokens that a rest fills, as the quotient of the two
    interval = alpha_interval({0: 1 / 3}, {0: 0.5, 1: 5e-324, 2: 0.5}, 2, vocabulary=3)
    assert 8 / 9 in interval  # p is uniform, and token 1 is not wanted


@pytest.mark.parametrize("k", [10**6, 2**63 - 1])
def test_very_many_drafts(k: int) -> None:
    interval = alpha_interval({0: 0.5, 1: 0.25}, {1: 0.5, 2: 0.25}, k)
    assert interval.lower == pytest.approx(0.5)  # tokens 0 and 1 are drafted for sure
    assert interval.upper == 1


@pytest.mark.parametrize("k", [1, 2, 8, 64])
@pytest.mark.parametrize("size", [1, 5, 20, 300])
def test_log_probabilities_of_a_large_vocabulary(k: int, size: int) -> None:
    """Lists of softmaxes in float32, as servers give them, with four digits and with all."""
    rng = np.random.default_rng(size)
    logits = 3 * rng.normal(size=(2, 2000)).astype(np.float32)
    logits[1] += 2 * logits[0]
    float32 = logits - np.log(np.exp(logits - 20).sum(axis=1, keepdims=True)) - np.float32(20)
    exact = np.exp(logits.astype(np.float64))
    exact /= exact.sum(axis=1, keepdims=True)
    truth = otm.alpha(exact[0], exact[1], k)
    order = np.argsort(-float32, axis=1)[:, :size]
    full = [
        dict(zip(o.tolist(), law[o].tolist(), strict=True))
        for law, o in zip(float32, order, strict=True)
    ]
    printed = [{token: round(value, 4) for token, value in listed.items()} for listed in full]
    for n in (None, 2000):
        found = alpha_interval_from_logprobs(*full, k, vocabulary=n)
        assert truth in found
        assert truth in alpha_interval_from_logprobs(*printed, k, vocabulary=n, slack=1e-4)
        missing = sum(1 - sum(map(math.exp, listed.values())) for listed in full)
        assert found.gap <= (k + 1) * missing + 1e-4


@pytest.mark.parametrize("k", [1, 64, 10**6, 2**60])
@pytest.mark.parametrize("extra", [0, 7])
def test_the_slack_costs_the_same_for_every_k(k: int, extra: int) -> None:
    """Catches a correction by k times the error where the draft lists all that the target lists."""
    rng = np.random.default_rng(5)
    laws = rng.dirichlet(np.ones(50), size=2)
    laws[1, 50 - extra :] = 0
    laws[1] /= laws[1].sum()
    logprobs = [dict(enumerate(np.log(law[law > 0]).tolist())) for law in laws]
    interval = alpha_interval_from_logprobs(*logprobs, k, slack=1e-6)
    assert otm.alpha(*laws, k) in interval
    assert interval.gap <= 1e-5
    exact = alpha_interval(*[dict(enumerate(law[law > 0].tolist())) for law in laws], k)
    assert exact.gap <= 1e-11


@pytest.mark.parametrize("n", [None, 2])
@pytest.mark.parametrize("k", [1, 64, 10**6])
def test_the_slack_costs_more_with_k_where_only_the_target_lists(k: int, n: int | None) -> None:
    """Catches the opposite: tokens that k drafts may find, taken to have no draft mass at all."""
    slack = 1e-5
    fits = otm.alpha([1 - slack, slack], [0.0, 1.0], k)
    interval = alpha_interval({0: 1.0}, {1: 1.0}, k, slack=slack, vocabulary=n)
    assert fits <= interval.upper <= fits + 1.1 * slack
    known = alpha_interval({0: 1.0, 1: 0.0}, {1: 1.0}, k, slack=slack, vocabulary=n)
    assert known.upper <= 1.1 * slack  # that the draft has no more is said by the zero


@settings(max_examples=60)
@given(pairs(max_tokens=5, exact=True), st.sampled_from([1, 2, 64, 512]))
def test_the_price_of_the_slack_on_full_lists(laws: Any, k: int) -> None:
    """Theorem 10.4, last claim; catches a rest that is larger than the slack can leave."""
    slack = F(1, 10**4)
    lists = [{x: v for x, v in enumerate(law) if v} for law in laws]
    found = alpha_interval(*lists, k, slack=slack)
    factor, rest = 1 / (1 - slack), slack
    price = (factor**2 - 1) * found.lower + rest
    if set(lists[1]) - set(lists[0]):
        price += 1 - (1 - rest) ** k
    assert found.gap <= price


@pytest.mark.parametrize("k", [1, 64, 10**6])
def test_full_lists_of_floats(k: int) -> None:
    """Catches a rest that k multiplies and that is larger than what the rounding of lists does."""
    draft, target = dict.fromkeys(range(10), 0.1), dict.fromkeys(range(5, 15), 0.1)
    found = alpha_interval(draft, target, k)
    assert 0.5 in found  # five of the ten are shared
    assert found.gap <= 1e-12 + 2e-15 * k
    assert alpha_interval({0: 1.0}, {1: 1.0}, k).upper <= 1e-15 * (k + 1)
    assert alpha_interval({0: 1.0, 1: 0.0}, {1: 1.0}, 2**60).upper <= 1e-15


def test_decimal_fractions_that_sum_to_less_than_one_in_floats() -> None:
    """Catches floats taken at their word: 0.7 + 0.2 + 0.1 leaves 2.8e-17, here for the target."""
    lists = {0: 0.7, 1: 0.2, 2: 0.1}, {3: 1.0}
    assert alpha_interval(*lists, 2**60, vocabulary=4).lower == 0
    assert alpha_interval(*lists, 64, vocabulary=4).upper <= 1e-13


# Zeros


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ({0: 1}, {1: F(1, 2), 2: F(1, 4)}),  # the draft has no rest: the target pours into R
        ({0: 1, 1: 0}, {2: F(1, 2), 3: F(1, 4)}),  # nor a cap
        ({0: F(1, 2), 1: F(1, 2), 2: 0}, {0: F(1, 2), 3: F(1, 4)}),  # caps that fall short
        ({0: F(1, 2), 1: F(1, 4)}, {2: 1, 3: 0}),
        ({0: F(2, 3), 1: F(1, 6)}, {2: F(1, 2), 1: F(1, 2), 3: 0}),
        ({0: 1, 1: 0}, {1: 1, 2: 0}),
    ],
)
@pytest.mark.parametrize("n", [4, 5, 7])
@pytest.mark.parametrize("k", [1, 3])
def test_rests_may_hide_where_the_other_law_is_zero(
    draft: dict[int, Any], target: dict[int, Any], n: int, k: int
) -> None:
    """Catches tokens of no mass that are left out, and with them the room that they give."""
    lists = [{token: F(mass) for token, mass in law.items()} for law in (draft, target)]
    found = alpha_interval(*lists, k, vocabulary=n)
    assert (found.lower, found.upper) == by_all_cuts(*lists, n, k)
    ends = [otm.alpha(p, q, k) for p in corners(lists[0], n) for q in corners(lists[1], n)]
    assert found.lower == min(ends)
    assert max(ends) <= found.upper


def test_probabilities_of_zero_and_minus_infinity() -> None:
    inf = float("inf")
    draft, target = {0: 0.0, 1: -inf}, {1: math.log(0.5), 0: math.log(0.5)}
    interval = alpha_interval_from_logprobs(draft, target, 4)
    assert 0.5 in interval
    assert interval.gap < 1e-4
    assert alpha_interval({0: F(1), 1: F(0)}, {2: F(1)}, 3) == Interval(0, 0)
    assert alpha_interval({0: F(1)}, {1: F(1, 2), 0: F(1, 2)}, 3) == Interval(F(1, 2), F(1, 2))


@settings(max_examples=50)
@given(truncated(), st.permutations(range(8)))
def test_names_of_tokens_do_not_matter(case: Any, names: list[int]) -> None:
    _, _, draft, target = case
    renamed = [{names[token]: value for token, value in law.items()} for law in (draft, target)]
    assert alpha_interval(*renamed, 2, vocabulary=8) == alpha_interval(
        draft, target, 2, vocabulary=8
    )


# Rejected input

GOOD = {0: 0.5, 3: 0.25}
NAN = float("nan")


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ({}, "non-empty mapping"),
        ([0.5, 0.5], "non-empty mapping"),
        ({"7": 0.5}, "the token '7'"),
        ({True: 0.5}, "the token True"),
        ({-1: 0.5}, "the token -1"),
        ({9: 0.5}, "token 9, outside a vocabulary of 9 tokens"),
        ({0: NAN}, "the probability nan"),
        ({0: -0.7}, "alpha_interval_from_logprobs"),
        ({0: 1.5}, "the probability 1.5"),
        ({0: "a half"}, "the probability 'a half'"),
        ({0: 0.75, 1: 0.5}, "sums to 1.25"),
        ({0: 0.5, 1: 0.01}, "the other 7 tokens cannot complete"),
        ({0: 0.5, 1: 0.0}, "cannot complete the sum to one"),
    ],
)
@pytest.mark.parametrize("name", ["draft", "target"])
def test_what_is_not_a_list_is_refused(listed: Any, says: str, name: str) -> None:
    lists = (listed, GOOD) if name == "draft" else (GOOD, listed)
    with pytest.raises(InvalidDistributionError) as caught:
        alpha_interval(*lists, 2, vocabulary=9)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"the {name} list")


def test_the_slack_that_a_message_names_is_enough() -> None:
    listed = {0: 0.7, 1: 0.3004}
    with pytest.raises(InvalidDistributionError, match="give slack=") as caught:
        alpha_interval(listed, GOOD, 2)
    slack = float(str(caught.value).split("slack=")[1].split()[0])
    assert slack < 1e-3
    alpha_interval(listed, GOOD, 2, slack=slack)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"k": 0}, InvalidDraftCountError, "k = 0"),
        ({"k": 2.0}, InvalidDraftCountError, "k = 2.0"),
        ({"vocabulary": 0}, InvalidParameterError, "vocabulary = 0"),
        ({"vocabulary": 9.0}, InvalidParameterError, "vocabulary = 9.0"),
        ({"slack": -1e-9}, InvalidParameterError, "slack = -1e-09"),
        ({"slack": 0.6}, InvalidParameterError, "slack = 0.6"),
        ({"slack": NAN}, InvalidParameterError, "slack = nan"),
        ({"slack": "1"}, InvalidParameterError, "slack = '1'"),
    ],
)
def test_other_arguments_are_checked(
    options: dict[str, Any], error: type[InvalidInputError], says: str
) -> None:
    with pytest.raises(error) as caught:
        alpha_interval(GOOD, GOOD, **{"k": 2, **options})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ({0: 0.5}, "at most 0"),
        ({0: NAN}, "at most 0"),
        ({0: None}, "at most 0"),
        ([-0.5], "non-empty mapping"),
        ({0: -0.5, 1: -9999.0}, "cannot complete the sum to one"),  # a server's "not listed"
    ],
)
def test_what_is_not_a_log_probability_is_refused(listed: Any, says: str) -> None:
    with pytest.raises(InvalidDistributionError) as caught:
        alpha_interval_from_logprobs({0: -0.5}, listed, 2)
    assert says in str(caught.value)
