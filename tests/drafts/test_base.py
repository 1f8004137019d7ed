"""Common tests of all joint draft distributions, checked against enumeration."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otm import SparseProbs
from otm._core.arithmetic import Number, Probs
from otm.drafts import (
    IID,
    DraftDistribution,
    Greedy,
    HubPairs,
    Independent,
    Joint,
    Top,
    WithoutReplacement,
)
from otm.drafts.top import most_probable
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidParameterError,
    InvalidUniformsError,
)
from otm.testing import exact_distribution
from otm.testing.strategies import distributions

F = Fraction
KINDS = ["iid", "without replacement", "greedy", "top", "hub", "independent", "joint"]


@st.composite
def draft_laws(draw: st.DrawFn, *, exact: bool, max_tokens: int = 5) -> DraftDistribution:
    """Draw joint distributions of every kind, with zeros, ties and subnormal probabilities."""
    kind = draw(st.sampled_from(KINDS))
    n, k = draw(st.integers(1, max_tokens)), draw(st.integers(1, 3))
    law = draw(distributions(n, n, exact=exact))
    if kind == "iid":
        return IID(law, k)
    if kind == "without replacement":
        return WithoutReplacement(law, k + draw(st.integers(0, 2)))
    if kind in {"greedy", "top"}:
        return {"greedy": Greedy, "top": Top}[kind](law, k + draw(st.integers(0, 2)))
    if kind == "hub":
        return HubPairs(law)
    if kind == "independent":
        return Independent([law, *(draw(distributions(n, n, exact=exact)) for _ in range(k - 1))])
    every = list(itertools.product(range(n), repeat=k))
    tuples = draw(st.lists(st.sampled_from(every), min_size=1, max_size=12, unique=True))
    weights = draw(distributions(len(tuples), len(tuples), exact=exact))
    return Joint(zip(tuples, weights, strict=True), n)


orders = st.randoms(use_true_random=False)


def missed_by_enumeration(drafts: DraftDistribution, order: list[int]) -> list[Number]:
    """1 − Pr(S ⊆ H) for each prefix H of an order."""
    table = list(drafts.tuples())
    return [
        sum((w for tokens, w in table if not {*tokens} <= {*order[:j]}), F(0))
        for j in range(len(order) + 1)
    ]


def some_order(n: int, random: object) -> npt.NDArray[np.int64]:
    """Put some of the tokens in a random order."""
    order = list(range(n))
    random.shuffle(order)  # type: ignore[attr-defined]
    return np.array(order[: random.randint(0, n)], dtype=np.int64)  # type: ignore[attr-defined]


@given(draft_laws(exact=True))
def test_the_tuples_are_a_law(drafts: DraftDistribution) -> None:
    table = list(drafts.tuples())
    assert sum(probability for _, probability in table) == 1
    assert all(probability > 0 for _, probability in table)
    assert len({tokens for tokens, _ in table}) == len(table) == drafts.tuple_count
    used = {token for tokens, _ in table for token in tokens}
    assert used == {*np.flatnonzero(drafts.draftable).tolist()}
    assert {len(tokens) for tokens, _ in table} == {drafts.k}


@settings(max_examples=200)
@given(draft_laws(exact=True), orders)
def test_missed_is_the_enumeration_in_fractions(drafts: DraftDistribution, random: object) -> None:
    order = some_order(drafts.n, random)
    assert drafts.miss_probability(order).tolist() == missed_by_enumeration(drafts, order.tolist())


@settings(max_examples=200)
@given(draft_laws(exact=False), orders)
def test_missed_keeps_its_digits_in_floats(drafts: DraftDistribution, random: object) -> None:
    """Catches 1 − Pr(S ⊆ H) computed by subtraction: nothing is left of it when it is small."""
    order = some_order(drafts.n, random)
    found = drafts.miss_probability(order)
    assert found.dtype == np.float64
    expected = missed_by_enumeration(drafts.to_exact(), order.tolist())
    for value, exact in zip(found.tolist(), expected, strict=True):
        assert 0 <= value <= 1
        assert (value == 0) <= (exact < F(2.0**-1000))
        assert abs(F(value) - exact) <= exact * F(1e-13) + F(2.0**-1020)


@given(draft_laws(exact=True), orders)
def test_the_law_of_the_last_draft(drafts: DraftDistribution, random: object) -> None:
    order = some_order(drafts.n, random)
    missed = drafts.miss_probability(order)
    assert drafts.distribution_of_last(order).tolist() == (missed[:-1] - missed[1:]).tolist()


@given(draft_laws(exact=False), orders)
def test_the_law_of_the_last_draft_keeps_its_digits(
    drafts: DraftDistribution, random: object
) -> None:
    """Catches differences of `miss_probability`, which lose the masses of rare tokens."""
    order = some_order(drafts.n, random)
    expected = drafts.to_exact().distribution_of_last(order)
    relative = 1e-13 if isinstance(drafts, Independent | Joint) else 0
    for value, exact in zip(drafts.distribution_of_last(order).tolist(), expected, strict=True):
        assert abs(F(value) - exact) <= exact * F(relative) + F(2.0**-1020 if relative else 1e-14)


@given(draft_laws(exact=True))
def test_the_law_of_one_draft_is_a_law_that_can_be_picked(drafts: DraftDistribution) -> None:
    law = drafts.distribution_of_one()
    assert law.sum() == 1
    table = list(drafts.tuples())
    for size in range(drafts.n + 1):
        for tokens in itertools.combinations(range(drafts.n), size):
            hit = sum((w for drawn, w in table if {*drawn} & {*tokens}), F(0))
            assert law[list(tokens)].sum() <= hit


@settings(max_examples=60)
@given(draft_laws(exact=True, max_tokens=4))
def test_the_code_that_draws_has_the_law_of_the_tuples(drafts: DraftDistribution) -> None:
    """Runs `draw` along every path of its comparisons: no sample, no tolerance."""

    def draw(uniforms: npt.NDArray[np.object_]) -> tuple[int, ...]:
        return tuple(drafts.draw(uniforms).tolist())

    law = exact_distribution(draw, drafts.uniforms_per_draw)
    for tokens in law:  # also what only isolated uniforms give
        drafts.check(tokens)
    assert {tokens: w for tokens, w in law.items() if w} == dict(drafts.tuples())


@given(draft_laws(exact=False), st.data())
def test_float_draws_are_always_possible(drafts: DraftDistribution, data: st.DataObject) -> None:
    """Catches a duplicate or a token of probability 0 where u · total is rounded."""
    edges = [0.0, 2.0**-53, 0.5, 1 - 2.0**-53]
    uniform = st.one_of(st.sampled_from(edges), st.floats(0, 1, exclude_max=True))
    m = drafts.uniforms_per_draw
    uniforms = data.draw(st.lists(st.lists(uniform, min_size=m, max_size=m), max_size=5))
    drawn = drafts.draw(np.array(uniforms).reshape(len(uniforms), m))
    assert drawn.shape == (len(uniforms), drafts.k)
    drafts.check(drawn)


@given(draft_laws(exact=True))
def test_impossible_tuples_are_refused_and_no_others(drafts: DraftDistribution) -> None:
    possible = {tokens for tokens, _ in drafts.tuples()}
    for tokens in itertools.product(range(drafts.n), repeat=drafts.k):
        if tokens in possible:
            assert drafts.check(tokens).tolist() == list(tokens)
        else:
            with pytest.raises(InvalidDraftsError, match="probability 0"):
                drafts.check(tokens)


@given(draft_laws(exact=False))
def test_to_exact_is_the_same_law(drafts: DraftDistribution) -> None:
    exact = drafts.to_exact()
    assert exact.exact
    assert not drafts.exact
    assert (exact.n, exact.k) == (drafts.n, drafts.k)
    probabilities = dict(exact.tuples())
    for tokens, probability in drafts.tuples():
        expected = probabilities[tokens]
        assert abs(F(probability) - expected) <= expected * F(1e-14) + F(2.0**-1020)


def law_of(kind: str, tokens: Any = None) -> DraftDistribution:
    p = [0.5, 0.25, 0.25]
    a, b, c = range(3) if tokens is None else tokens
    size = 3 if tokens is None else None
    return {
        "iid": IID(p, 2, tokens=tokens),
        "without replacement": WithoutReplacement(p, 2, tokens=tokens),
        "greedy": Greedy(p, 2, tokens=tokens),
        "top": Top(p, 2, tokens=tokens),
        "hub": HubPairs(p, tokens=tokens),
        "independent": Independent([p, p], tokens=tokens),
        "joint": Joint({(a, b): 0.5, (c, c): 0.5}, size, tokens=tokens),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_draws_keep_the_leading_axes(kind: str) -> None:
    drafts = law_of(kind)
    uniforms = np.random.default_rng(0).random((2, 3, drafts.uniforms_per_draw))
    drawn = drafts.draw(uniforms)
    assert drawn.shape == (2, 3, 2)
    assert drawn.dtype == np.int64
    assert drawn[1, 2].tolist() == drafts.draw(uniforms[1, 2]).tolist()
    assert drafts.draw(np.empty((0, drafts.uniforms_per_draw))).shape == (0, 2)
    assert drafts.check(drawn).shape == drawn.shape
    assert drafts.check(np.empty((0, 2), dtype=np.int64)).shape == (0, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("size", "shape"), [((), ()), (3, (3,)), (np.int64(0), (0,)), ((2, 3),) * 2]
)
def test_samples_are_draws_with_uniforms_of_the_generator(
    kind: str, size: int | tuple[int, ...], shape: tuple[int, ...]
) -> None:
    drafts = law_of(kind)
    uniforms = np.random.default_rng(5).random((*shape, drafts.uniforms_per_draw))
    sampled = drafts.sample(np.random.default_rng(5), size)
    assert sampled.shape == (*shape, drafts.k)
    assert sampled.tolist() == drafts.draw(uniforms).tolist()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exact_law_is_sampled_too(kind: str, exact: bool) -> None:
    drafts = law_of(kind).to_exact() if exact else law_of(kind)
    drafts.check(drafts.sample(np.random.default_rng(0), 20))


@pytest.mark.parametrize("kind", KINDS)
def test_messages_call_tokens_by_their_ids(kind: str) -> None:
    drafts, names = law_of(kind, [70, 80, 90]), np.array([70, 80, 90])
    possible = {tokens for tokens, _ in drafts.position_tuples()}
    for tokens in itertools.product(range(3), repeat=2):
        if tokens not in possible:
            with pytest.raises(InvalidDraftsError) as caught:
                drafts.check(names[[*tokens]])
            told, given_ids = str(caught.value), names[[*tokens]].tolist()
            assert str(given_ids) in told or f"draft token {max(given_ids)} has" in told
    with pytest.raises(InvalidDraftsError, match="draft token 0 has probability 0"):
        drafts.check([0, 70])


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_token_ids_are_those_of_the_positions(kind: str, exact: bool) -> None:
    """Catches a method that takes or returns positions where ids are due, or the reverse."""
    ids = np.array([70, 10**12, 10**12 + 5])
    named, plain = law_of(kind, ids), law_of(kind)
    if exact:
        named, plain = named.to_exact(), plain.to_exact()
    assert named.tokens is not None
    assert named.tokens.tolist() == ids.tolist()
    assert plain.tokens is None
    assert [(tuple(ids[[*x]].tolist()), w) for x, w in plain.tuples()] == list(named.tuples())
    assert list(plain.tuples()) == list(named.position_tuples())
    uniforms = np.random.default_rng(3).random((20, plain.uniforms_per_draw))
    drafts = named.draw(uniforms)
    assert drafts.tolist() == ids[plain.draw(uniforms)].tolist()
    assert named.check(drafts).tolist() == drafts.tolist()
    assert named.positions(drafts).tolist() == plain.draw(uniforms).tolist()
    assert (
        named.miss_probability(np.array([2, 0])).tolist()
        == plain.miss_probability(np.array([2, 0])).tolist()
    )
    assert not named.tokens.flags.writeable


@pytest.mark.parametrize("kind", KINDS)
def test_fractions_become_floats(kind: str) -> None:
    exact = law_of(kind, [7, 8, 9]).to_exact()
    floats = exact.to_floats()
    assert exact.exact
    assert not floats.exact
    assert list(floats.tuples()) == list(law_of(kind, [7, 8, 9]).tuples())


def test_token_ids_are_not_kept_by_reference() -> None:
    """Catches ids that change, or become read-only, under whoever gave them."""
    ids = np.array([3, 9])
    drafts = IID([0.5, 0.5], 1, tokens=ids)
    ids[0] = 4
    assert drafts.check([3]).tolist() == [3]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_uniforms_are_refused(kind: str) -> None:
    drafts = law_of(kind)
    with pytest.raises(InvalidUniformsError, match="along the last axis"):
        drafts.draw([0.5] * (drafts.uniforms_per_draw + 1))
    if drafts.uniforms_per_draw:
        with pytest.raises(InvalidUniformsError):
            drafts.draw([1.0] * drafts.uniforms_per_draw)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_that_are_handed_out_cannot_be_changed(kind: str) -> None:
    drafts = law_of(kind)
    for value in vars(drafts).values():
        if isinstance(value, np.ndarray):
            assert not value.flags.writeable


@given(distributions(2, 5, exact=True), st.integers(1, 5))
def test_the_first_of_several_drafts_has_the_law(law: Probs, k: int) -> None:
    """SpecHub and sampling without replacement leave the first draft alone; greedy does not."""
    for drafts in (WithoutReplacement(law, k), HubPairs(law)):
        first = np.array([F(0)] * law.size)
        for tokens, probability in drafts.tuples():
            first[tokens[0]] += probability
        assert first.tolist() == law.tolist()


@pytest.mark.parametrize("size", [-1, 2.0, True, (3, -1), "ten"])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    """Catches an error of NumPy's, or a sample of another shape."""
    with pytest.raises(InvalidParameterError, match=r"size = .*an integer of at least 0"):
        IID([0.5, 0.5], 2).sample(np.random.default_rng(0), size)


@pytest.mark.parametrize("kind", [IID, WithoutReplacement, Greedy, Top])
def test_probs_by_their_support_are_refused_with_what_to_do(kind: Any) -> None:
    """Catches a message about arrays, where token ids are what is missing."""
    probs = SparseProbs([7, 30], [0.5, 0.5])
    with pytest.raises(InvalidDistributionError, match=r"tokens=probs\.tokens"):
        kind(probs, 2)
    assert kind(probs.probabilities, 2, tokens=probs.tokens).tokens.tolist() == [7, 30]


@pytest.mark.parametrize("values", [3, 1000])
def test_the_most_probable_tokens_are_found_without_a_sort(values: int) -> None:
    """Bugs: a group's second largest token, ties in the order of groups, a rest of a group."""
    rng = np.random.default_rng(values)
    for size in (1, 40, 330, 1000):
        probs = rng.integers(0, values, size) / values
        order = sorted(range(size), key=lambda i: (-probs[i], i))
        for count in (0, 1, 2, 9, 31, size):
            assert most_probable(probs, count).tolist() == order[:count]
