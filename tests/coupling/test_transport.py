"""Plans written out: both marginals, and what is accepted, against the plan's own distributions."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm._core.probs.sparse import SparseProbs
from otm.coupling import PLANS, GreedyRule, KSeq
from otm.coupling.lossy import LenientPlan
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


def test_a_rule_that_is_not_lossless_is_rejected() -> None:
    """Catches a table that is returned unchecked."""

    class Careless(KSeq):
        accept_probability = np.ones(4)

    with pytest.raises(CertificateError, match="entries of token 0 sum to"):
        Careless(Problem(DRAFT, TARGET, 2).to_floats()).transport()


def test_a_lossy_rule_is_checked_against_its_own_output() -> None:
    """Catches a lossy plan whose output must be the target."""
    plan = LenientPlan(Problem(DRAFT, TARGET, 2), Fraction(1, 2))
    output = plan.transport().mass.sum(axis=0)
    assert output.tolist() == plan.output_distribution().tolist() != TARGET


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


def test_limits_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a limit that is off by one, and entries without the factor for the tokens."""
    most = KSeq(Problem([1.0], [1.0], 1024)).transport()
    assert most.mass.tolist() == [[1]]
    plan = KSeq(Problem(DRAFT, TARGET, 2))  # 9 tuples of drafts with 4 tokens
    monkeypatch.setattr("otm.coupling.plan.LARGEST_TABLE", 36)
    assert plan.transport().mass.sum() == 1
    monkeypatch.setattr("otm.coupling.plan.LARGEST_TABLE", 35)
    with pytest.raises(ProblemTooLargeError, match="has at most 35"):
        plan.transport()


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


@pytest.mark.parametrize(("n", "width"), [(3, 4.5), (6, 4.5), (7, 4.75), (30, 9)])
def test_a_picture_is_as_wide_as_its_tokens_need(n: int, width: float) -> None:
    """Catches bars that get narrower with every token, and a picture without a least width."""
    uniform = np.full(n, 1 / n)
    axes = KSeq(Problem(uniform, uniform, 2)).plot()
    assert axes.figure.get_size_inches().tolist() == [width, 2.8]  # type: ignore[union-attr]


@pytest.mark.parametrize(("k", "name"), [(1, "draft"), (2, "draft, k = 2"), (3, "draft, k = 3")])
def test_the_legend_says_how_many_drafts_and_what_mass(k: int, name: str) -> None:
    """Catches a legend without the number of drafts, and a residual below zero where it is lossy.

    A lossy rule accepts more of the last token than the target has.
    """
    plan = LenientPlan(Problem([0.25, 0.75], [0.75, 0.25], k), 0.5)
    accepted = plan.accepted_mass
    assert accepted[1] > 0.25
    _, labels = plan.plot().get_legend_handles_labels()
    residual = 0.75 - accepted[0]
    assert labels == [name, f"accepted, {accepted.sum():.4g}", f"residual, {residual:.4g}"]


@pytest.mark.parametrize("likely", ["draft", "target"])
def test_a_token_that_one_distribution_alone_has_is_drawn(likely: str) -> None:
    """Catches tokens chosen by one of the distributions, or by the smaller of both."""
    peaked, other = np.full(40, 0.5 / 39), np.full(40, 1 / 39)
    peaked[30], other[30] = 0.5, 0
    laws = (peaked, other) if likely == "draft" else (other, peaked)
    shown = [text.get_text() for text in KSeq(Problem(*laws, 2)).plot().get_xticklabels()]
    assert shown == [*map(str, range(23)), "30"]


def test_a_picture_has_the_likeliest_tokens() -> None:
    target = np.full(100, 0.5 / 99)
    target[70] = 0.5
    bars = KSeq(Problem(np.full(100, 0.01), target, 2)).plot()
    assert [text.get_text() for text in bars.get_xticklabels()][-1] == "70"
    assert bars.get_xlabel() == "token (24 of 100)"
