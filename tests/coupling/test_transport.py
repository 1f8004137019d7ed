"""Plans written out: both marginals, and what is accepted, against the plan's own distributions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm._core.probs.sparse import SparseProbs
from otm.coupling import PLANS, GreedyRule, KSeq
from otm.coupling.residual import ResidualPlan
from otm.errors import CertificateError, InvalidInputError, ProblemTooLargeError
from otm.problem import Problem

DRAFT = [Fraction(n, 6) for n in (3, 2, 1, 0)]
TARGET = [Fraction(n, 10) for n in (2, 4, 3, 1)]
TINY = Fraction(1, 10**9)


@pytest.fixture(autouse=True)
def _no_windows() -> Iterator[None]:
    """Close what pyplot opened."""
    yield
    pytest.importorskip("matplotlib.pyplot").close("all")


@pytest.mark.parametrize("name", PLANS)
def test_the_table_of_every_rule(name: str) -> None:
    """Catches a set that is counted once for all orders, and a token outside its set as accepted.

    The sum over the table's own cells is `acceptance`, which no plan computes in this way.
    """
    plan = PLANS[name](Problem(DRAFT, TARGET, 2))
    try:
        transport = plan.transport()
    except ProblemTooLargeError:
        assert name == "list coupling"  # not exact
        return
    assert transport.accepted == plan.acceptance
    assert transport.mass.sum() == 1
    assert all(drafts == tuple(sorted(drafts)) for drafts in transport.sets)
    assert len(set(transport.sets)) == len(transport.sets)


def test_a_wrong_table_is_refused() -> None:
    transport = otm.solve(DRAFT, TARGET, 2).plan.transport()
    moved = transport.mass.copy()
    moved[0, [0, 1]] += (
        Fraction(1, 10**9),
        -Fraction(1, 10**9),
    )  # the rows still sum to their drafts
    with pytest.raises(CertificateError, match="entries of token 0 sum to"):
        replace(transport, mass=moved).check()
    with pytest.raises(CertificateError, match="set of drafts 0 sum to"):
        replace(transport, mass=transport.mass[::-1]).check()


def test_token_ids_and_labels() -> None:
    sparse = otm.solve(SparseProbs([5, 9], [0.5, 0.5]), SparseProbs([5, 7], [0.5, 0.5]), 2)
    transport = sparse.plan.transport()
    assert transport.sets == ((5, 5), (5, 9), (9, 9))
    assert transport.tokens.tolist() == [5, 7, 9]
    assert "drafts \\ output  a" in repr(sparse.plan.transport("a b c".split()))
    with pytest.raises(InvalidInputError, match="2 labels for 3 tokens"):
        sparse.plan.transport(["a", "b"])
    with pytest.raises(InvalidInputError, match="labels = 'abc' for 3 tokens"):
        sparse.plan.transport("abc")
    with pytest.raises(InvalidInputError, match="labels = 5 for 3 tokens"):
        sparse.plan.plot(5)  # type: ignore[attr-defined]


def test_sizes() -> None:
    uniform = np.full(200, 1 / 200)
    with pytest.raises(ProblemTooLargeError, match="at most 4,194,304"):
        KSeq(Problem(uniform, uniform, 4)).transport()
    for k, size in ((64, r"1\.84e19 tuples of drafts"), (10**6, "at most 1,024")):
        with pytest.raises(ProblemTooLargeError, match=size):  # 2^64 is 0 in integers of 64 bits
            KSeq(Problem(np.array([0.5, 0.5]), np.array([0.25, 0.75]), k)).transport()
    hundred = np.full(100, 0.01)
    wide = KSeq(Problem(hundred, hundred, 2)).transport()
    lines = repr(wide).splitlines()
    assert len(lines) == 18
    assert max(map(len, lines)) < 105
    assert "5,036 others" in lines[-2]
    with pytest.raises(InvalidInputError, match="at most 40"):
        wide.plot()


@pytest.mark.parametrize("rule", [KSeq, GreedyRule], ids=["i.i.d.", "greedy"])
def test_pictures(rule: Callable[[Problem], ResidualPlan]) -> None:
    plan = rule(Problem(DRAFT, TARGET, 2))
    axes = plan.transport().plot()
    assert len(axes.patches) == plan.transport().members.sum()
    bars = plan.plot(["a", "b", "c", "d"])
    height = {text: sum(bar.get_height() for bar in group) for group, text in zip(
        bars.containers, ("draft", "accepted", "residual"), strict=True)}  # fmt: skip
    assert height["accepted"] == pytest.approx(float(plan.accepted_mass.sum()))
    assert sum(height.values()) == pytest.approx(2)


def test_a_picture_has_the_likeliest_tokens() -> None:
    target = np.full(100, 0.5 / 99)
    target[70] = 0.5
    bars = KSeq(Problem(np.full(100, 0.01), target, 2)).plot()
    assert [text.get_text() for text in bars.get_xticklabels()][-1] == "70"
    assert bars.get_xlabel() == "token (24 of 100)"
