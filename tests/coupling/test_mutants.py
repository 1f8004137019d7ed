"""Wrong rules that the exact checks of correct rules must detect: negative controls."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm._core.arithmetic import Probs, at_least_once
from otm._core.probs.sampling import InverseCdf
from otm.coupling.k_seq import KSeq
from otm.coupling.maximal import MaximalCoupling
from otm.coupling.optimal.plan import OptimalPlan
from otm.coupling.optimal.slots import SlotTable
from otm.coupling.optimal.swaps import Swaps
from otm.coupling.plan import TransportPlan
from otm.coupling.recursive_rejection import RecursiveRejection
from otm.coupling.residual import SequentialPlan, acceptance_ratio
from otm.problem import Problem
from otm.testing import assert_lossless, exact_acceptance, exact_output_distribution
from otm.testing.instances import instance

F = Fraction


class RepeatedAlgorithm1(SequentialPlan):
    """SpecTr, section 4: Algorithm 1's test applied to each draft in turn, with its residual."""

    @property
    def accepted_mass(self) -> Probs:
        one_draft = np.minimum(self.problem.draft, self.problem.target)
        beta = one_draft.sum()
        mass: Probs = one_draft * at_least_once(beta, self.problem.k) / beta
        return mass

    @property
    def residual(self) -> InverseCdf:
        problem = self.problem
        left = problem.target - np.minimum(problem.draft, problem.target)
        return InverseCdf.from_weights(left)

    def _pass_probability(self, drafts: Any) -> Probs:
        return acceptance_ratio(self.problem.target, self.problem.draft)[drafts]


class AcceptsAtZero(KSeq):
    """`u <= ratio` for `u < ratio`: accepts what has target probability 0 if u = 0."""

    def _accept(self, drafts: Any, uniforms: Any) -> Any:
        passed = uniforms <= self._pass_probability(drafts)
        return np.where(passed.any(axis=1), passed.argmax(axis=1), -1)


class ResidualOfOneDraft(KSeq):
    """The residual max(q − p, 0) of the maximal coupling, where k-Seq needs max(q − v, 0)."""

    @property
    def residual(self) -> InverseCdf:
        return InverseCdf.from_weights(np.maximum(self.problem.target - self.problem.draft, F(0)))


class ResidualOfTheDraft(KSeq):
    """Draft and target swapped in the residual."""

    @property
    def residual(self) -> InverseCdf:
        return InverseCdf.from_weights(np.maximum(self.problem.draft - self.accepted_mass, F(0)))


class NoResidual(KSeq):
    """The target itself, drawn after a rejection."""

    @property
    def residual(self) -> InverseCdf:
        return InverseCdf.from_weights(self.problem.target)


class UniformResidual(KSeq):
    """Any token alike, drawn after a rejection."""

    @property
    def residual(self) -> InverseCdf:
        return InverseCdf.from_weights(0 * self.problem.target + 1)


class SwappedLaws(MaximalCoupling):
    """Draft and target swapped in the test."""

    def _pass_probability(self, drafts: Any) -> Probs:
        return acceptance_ratio(self.problem.draft, self.problem.target)[drafts]


class SharedCoin(KSeq):
    """One coin for all drafts."""

    def _accept(self, drafts: Any, uniforms: Any) -> Any:
        return super()._accept(drafts, uniforms[:, :1])


class CoinReusedForTheResidual(KSeq):
    """The first coin draws the residual too: one stream for two purposes."""

    def select(self, drafts: Any, uniforms: Any) -> Any:
        reused = np.array(uniforms)
        reused[..., -1] = reused[..., 0]
        return super().select(drafts, reused)


class LastDraftFirst(RecursiveRejection):
    """Drafts taken from the end, with the targets of the rounds from the start."""

    def _accept(self, drafts: Any, uniforms: Any) -> Any:
        passed = uniforms < self._pass_probability(drafts)
        last = passed.shape[1] - 1 - passed[:, ::-1].argmax(axis=1)
        return np.where(passed.any(axis=1), last, -1)


class OneRoundTooFew(RecursiveRejection):
    """The second draft tested against the target of the first."""

    def _pass_probability(self, drafts: Any) -> Probs:
        return self._accept_probability(0, drafts)


class TrustedTable(SlotTable):
    """Tokens are trusted to win as often as they should."""

    @property
    def win_ratio(self) -> tuple[Probs, Probs]:
        return self.target.mean, 0 * self.target.mean


class NoSwaps(OptimalPlan):
    """The highest draft wins, and is trusted to win with the distribution that was wanted."""

    @property
    def slots(self) -> SlotTable:
        none, target = np.array([], dtype=np.int64), self._target_win_ratio
        return TrustedTable(target, self.problem.k, Swaps(none, none, target.mean[:0]))


class LowestSlotWins(OptimalPlan):
    """The order of the slots upside down in the code that decides."""

    def _accept(self, drafts: Any, uniforms: Any) -> Any:
        places = self.slots.place(self.problem.target[drafts] / self.problem.draft[drafts])
        winner = self.slots.slots_of(*places, uniforms[:, :-1]).argmin(axis=1)
        token = np.take_along_axis(drafts, winner[:, None], axis=1)[:, 0]
        return np.where(uniforms[:, -1] < self.accept_probability[token], winner, -1)


class AlwaysAccepts(OptimalPlan):
    """The winner output without its coin."""

    @property
    def target_mass(self) -> Probs:
        return 0 * self.problem.draft + 1


@pytest.mark.parametrize(
    ("mutant", "name", "message"),
    [
        (RepeatedAlgorithm1, "Bernoulli", "the output distribution is"),
        (AcceptsAtZero, "zeros", "token 0 has target probability 0"),
        (ResidualOfOneDraft, "four tokens", "the output distribution is"),
        (ResidualOfTheDraft, "Bernoulli", "the output distribution is"),
        (NoResidual, "Bernoulli", "the output distribution is"),
        (UniformResidual, "zeros", "target probability 0"),
        (UniformResidual, "four tokens", "the output distribution is"),
        (SwappedLaws, "Bernoulli", "the output distribution is"),
        (SharedCoin, "Bernoulli", "but conditional is"),
        (CoinReusedForTheResidual, "one token drafted", "but conditional is"),
        (LastDraftFirst, "four tokens", "but conditional is"),
        (OneRoundTooFew, "Bernoulli", "the output distribution is"),
        (NoSwaps, "four tokens", "the output distribution is"),
        (LowestSlotWins, "four tokens", "but conditional is"),
        (AlwaysAccepts, "Bernoulli", "the output distribution is"),
    ],
)
def test_a_wrong_rule_is_found(mutant: type[TransportPlan], name: str, message: str) -> None:
    problem = instance(name)
    if mutant is SwappedLaws:
        problem = Problem(problem.draft, problem.target, 1)
    with pytest.raises(AssertionError, match=message):
        assert_lossless(mutant(problem))


@pytest.mark.parametrize("k", [2, 3])
def test_the_counterexample_of_the_paper(k: int) -> None:
    # SpecTr, section 4: p = Ber(1), q = Ber(1/2); the output is 1 with probability 1 − 1/2^k
    plan = RepeatedAlgorithm1(Problem([F(0), F(1)], [F(1, 2), F(1, 2)], k))
    assert exact_output_distribution(plan).tolist() == [F(1, 2**k), 1 - F(1, 2**k)]
    with pytest.raises(AssertionError, match="the output distribution is"):
        assert_lossless(plan)
    assert_lossless(RepeatedAlgorithm1(Problem([F(0), F(1)], [F(1, 2), F(1, 2)], 1)))


def test_what_a_wrong_residual_does_in_floats() -> None:
    # The test integrates the plan's decisions; v + (q − v) would give q for any plan.
    problem = instance("four tokens", exact=False)
    wrong = ResidualOfOneDraft(problem).output_distribution()
    assert abs(wrong - problem.target).sum() / 2 > 1e-3
    assert abs(KSeq(problem).output_distribution() - problem.target).max() < 1e-15


def test_more_acceptance_than_the_optimum_is_a_sign_of_a_wrong_rule() -> None:
    problem = instance("Bernoulli")
    assert exact_acceptance(AlwaysAccepts(problem)) == 1 > OptimalPlan(problem).acceptance
