"""The strategies generate what they claim, every kind of it, and reach the edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from otm._core.arithmetic import Probs, is_exact
from otm.audit import Instance
from otm.decoding import spectr
from otm.errors import UnknownMethodError
from otm.problem import Problem
from otm.testing.strategies import (
    BLOCK_KINDS,
    DISTRIBUTION_KINDS,
    PAIR_KINDS,
    Block,
    blocks,
    distributions,
    drafts,
    pairs,
    problems,
    uniforms,
)

# a kind is what its name says by how it is made, which no rare draw changes
fewer = settings(max_examples=settings.default.max_examples // 4)

TINY = 2.0**-1022  # the smallest normal float


def has_tie(law: Probs) -> bool:
    positive = law[law > 0]
    return len(set(positive)) < positive.size


def has_neighbours(law: Probs) -> bool:
    """Whether two probabilities are one ulp apart; exact distributions were scaled by about one."""
    if not is_exact(law):
        return any(np.nextafter(x, 2) in law for x in law)
    gaps = np.diff(np.sort(law))
    return any(0 < gap <= Fraction(1, 2**52) for gap in gaps)


IS_OF_KIND: dict[str, Callable[[Probs], bool]] = {
    "dense": lambda law: law.min() >= 1e-4,
    "sparse": lambda law: law.min() == 0,
    "one token": lambda law: sorted(law)[-1] == 1 and np.count_nonzero(law) == 1,
    "ties": has_tie,
    "one ulp": has_neighbours,
    "subnormal": lambda law: any(0 < float(x) < TINY for x in law),
    "skewed": lambda law: law.max() >= 10**6 * law[law > 0].min(),
}


def is_law(law: Probs, *, exact: bool) -> bool:
    if exact:
        fractions = all(isinstance(x, Fraction) for x in law)
        return is_exact(law) and fractions and law.min() >= 0 and law.sum() == 1
    return law.dtype == np.float64 and law.min() >= 0 and abs(law.sum() - 1) < 1e-14


def support(law: Probs) -> set[int]:
    return set(np.flatnonzero(law > 0).tolist())


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", DISTRIBUTION_KINDS)
@fewer
@given(data=st.data())
def test_every_kind_of_law_is_what_its_name_says(
    kind: str, exact: bool, data: st.DataObject
) -> None:
    law = data.draw(distributions(exact=exact, kinds=[kind]))
    assert DISTRIBUTION_KINDS[kind] <= law.size <= 5
    assert is_law(law, exact=exact)
    assert IS_OF_KIND[kind](law), law


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", DISTRIBUTION_KINDS)
def test_laws_reach_every_kind(kind: str, exact: bool) -> None:
    once = settings(max_examples=2_000, phases=[Phase.generate])  # the smallest is not looked for
    find(distributions(exact=exact), IS_OF_KIND[kind], settings=once)


@given(data=st.data())
def test_laws_keep_to_the_bounds_of_their_size(data: st.DataObject) -> None:
    low = data.draw(st.integers(1, 6))
    high = data.draw(st.integers(low, 7))
    assert low <= data.draw(distributions(low, high)).size <= high


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", PAIR_KINDS)
@fewer
@given(data=st.data())
def test_every_kind_of_pair_is_what_its_name_says(
    kind: str, exact: bool, data: st.DataObject
) -> None:
    draft, target = data.draw(pairs(exact=exact, kinds=[kind]))
    assert draft.size == target.size >= PAIR_KINDS[kind]
    assert is_law(draft, exact=exact)
    assert is_law(target, exact=exact)
    both = support(draft) & support(target)
    alone = support(draft) - support(target), support(target) - support(draft)
    if kind == "equal":
        assert (draft == target).all()
        assert draft is not target
    elif kind == "disjoint":
        assert not both
    elif kind == "overlapping":
        assert both
        assert all(alone)
    elif kind == "near":
        assert not (draft == target).all()
        assert max(abs(draft - target)) <= 2.0**-52


@given(problem=problems(max_tokens=4, max_drafts=2), exact=problems(exact=True))
def test_problems_are_valid(problem: Problem, exact: Problem) -> None:
    assert not problem.exact
    assert problem.n <= 4
    assert problem.k <= 2
    assert exact.exact
    assert exact.draft.sum() == exact.target.sum() == 1


@given(data=st.data(), problem=problems())
def test_drafts_can_be_drawn(data: st.DataObject, problem: Problem) -> None:
    tokens = data.draw(drafts(problem.drafts))
    assert len(tokens) == problem.k
    assert all(problem.draft[token] > 0 for token in tokens)


@pytest.mark.parametrize("exact", [False, True])
@given(data=st.data())
def test_uniforms_lie_in_the_unit_interval(exact: bool, data: st.DataObject) -> None:
    uniform = data.draw(uniforms([0, 0.25, 1], exact=exact))
    assert isinstance(uniform, Fraction if exact else float)
    assert 0 <= uniform < 1


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("edge", [0, 1 - 2.0**-53, 0.25, "just below", "just above"], ids=str)
def test_uniforms_reach_the_edges(exact: bool, edge: float | str) -> None:
    third = Fraction(1, 3) if exact else 1 / 3
    if edge == "just below":
        find(uniforms([third], exact=exact), lambda u: 0 < third - u < 1e-15)
    elif edge == "just above":
        find(uniforms([third], exact=exact), lambda u: 0 < u - third < 1e-15)
    else:
        find(uniforms([0.25], exact=exact), lambda u: u == edge)


def test_a_boundary_is_given_exactly() -> None:
    assert find(uniforms([Fraction(1, 3)], exact=True), lambda u: u == Fraction(1, 3))


def rows_of(block: Block) -> list[tuple[Probs, Probs]]:
    """Draft and target after each path that a draft can have before its last token."""
    paths = [
        path
        for n in range(block.length)
        for path in itertools.product(range(block.draft.vocabulary), repeat=n)
    ]
    return [(block.draft.probs(path), block.target.probs(path)) for path in paths]


def agreeing(block: Block) -> list[bool]:
    return [(draft == target).all() for draft, target in rows_of(block)]


IS_BLOCK_OF_KIND: dict[str, Callable[[Block], bool]] = {
    "independent": lambda block: True,
    "equal": lambda block: all(agreeing(block)),
    "partly equal": lambda block: True,
    "one token": lambda block: all(
        max(draft.max(), target.max()) == 1 for draft, target in rows_of(block)
    ),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", BLOCK_KINDS)
@fewer
@given(data=st.data())
def test_every_kind_of_block_is_what_its_name_says(
    kind: str, exact: bool, data: st.DataObject
) -> None:
    block = data.draw(blocks(exact=exact, kinds=[kind], max_ways=16))
    vocabulary = block.draft.vocabulary
    assert 2 <= vocabulary == block.target.vocabulary <= 4
    assert vocabulary ** (block.length * block.k) <= 16
    assert block.end is None or block.end in range(vocabulary)
    assert all(is_law(law, exact=exact) for pair in rows_of(block) for law in pair)
    assert IS_BLOCK_OF_KIND[kind](block)


@pytest.mark.parametrize(
    "holds",
    [
        lambda block: block.draft.vocabulary == 4,
        lambda block: (block.length, block.k) == (3, 2),
        lambda block: (block.length, block.k) == (2, 3),
        lambda block: block.end == 1,
        lambda block: len(set(agreeing(block))) == 2,
        lambda block: len({tuple(draft) for draft, _ in rows_of(block)}) > 2,
        lambda block: any(draft.max() == 1 > target.max() for draft, target in rows_of(block)),
        lambda block: any(target.max() == 1 > draft.max() for draft, target in rows_of(block)),
    ],
)
def test_blocks_reach_what_breaks_rules(holds: Callable[[Block], bool]) -> None:
    find(blocks(exact=True), holds, settings=settings(max_examples=2_000, phases=[Phase.generate]))


@fewer
@given(blocks(max_ways=16), blocks(exact=True, max_ways=16))
def test_the_loops_and_the_audit_take_blocks(floats: Block, exact: Block) -> None:
    """Bug: tables that a loop cannot read, or an end token that is none."""
    for block in (floats, exact):
        found = spectr(
            block.target, block.draft, [[0]], k=block.k, gamma=block.length,
            max_tokens=3, eos_token_id=block.end, seed=0, rule="walk and keep",
        )  # fmt: skip
        assert 1 <= len(found.sequences[0]) <= 3
    instance = Instance(exact.target, exact.draft, exact.length, exact.k)
    assert instance.vocabulary == exact.draft.vocabulary


def test_an_unknown_kind_of_block_is_refused() -> None:
    """Bug: a name misspelt, which drew independent models."""
    with pytest.raises(UnknownMethodError, match="equal"):
        find(blocks(kinds=["eqal"]), lambda block: True)
