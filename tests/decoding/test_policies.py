"""Policies for γ: what they choose, and that decoding with them stays lossless."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.decoding import speculative
from otm.decoding.policies import GammaPolicy, as_policy, huggingface_heuristic
from otm.decoding.trace import Seconds, Step
from otm.errors import InvalidParameterError
from otm.gain import best_gamma, oracle_speedup, walltime_improvement
from otm.gain.online_gamma import OnlineGamma, best_gamma_policy
from otm.models import TableModel
from otm.testing.sequences import output_distribution_of, sequence_distribution


def step(gamma: int, drafted: int, accepted: int, draft: float = 0.0, target: float = 1.0) -> Step:
    """Make a step of one chain, as the loop leaves it."""
    return Step(
        sequence=0,
        call=0,
        position=1,
        gamma=gamma,
        drafts=((0,) * drafted,) if drafted else (),
        output=(0,) * (accepted + 1),
        accepted=accepted,
        finish_reason=None,
        seconds=Seconds(draft, target, 0.0),
    )


def steps(*counts: tuple[int, int], **seconds: float) -> list[Step]:
    return [step(drafted, drafted, accepted, **seconds) for drafted, accepted in counts]


def test_a_number_is_the_policy_of_that_number() -> None:
    assert as_policy(3)([]) == as_policy(3)(steps((3, 3))) == 3


@pytest.mark.parametrize(("alpha", "cost"), [(0.5, 0.02), (0.8, 0.1), (0.2, 0.3)])
def test_the_best_gamma_is_that_of_theorem_3_8(alpha: float, cost: float) -> None:
    """Catches arguments that are swapped, and a bound by the oracle that does not hold."""
    gamma = best_gamma_policy(alpha, cost)([])
    assert gamma == best_gamma(alpha, cost) == best_gamma_policy(alpha, cost)(steps((5, 0)))
    gains = walltime_improvement(alpha, np.arange(60), cost)
    assert gains.argmax() == gamma
    assert gains.max() <= oracle_speedup(alpha, cost)


def test_the_heuristic_of_hugging_face() -> None:
    """Against the two lines of transformers, on random numbers of matches and short drafts."""
    rng = np.random.default_rng(5)
    policy = huggingface_heuristic()
    assumed, made = 5, list[Step]()
    for _ in range(300):
        assert policy(made) == assumed
        candidates = int(rng.integers(1, assumed + 1))  # fewer are drafted near the end
        matches = candidates if rng.random() < 0.3 else int(rng.integers(0, candidates))
        made = [*made, step(assumed, candidates, matches)][-2:]
        assumed = assumed + 2 if matches == candidates else max(1, assumed - 1)


def test_the_heuristic_at_its_limits() -> None:
    """Catches a γ that falls to 0, never to rise again, and one that ignores its limit."""
    policy = huggingface_heuristic(4, max_gamma=6)
    assert policy([]) == 4
    assert policy([step(5, 5, 5)]) == 6
    assert policy([step(1, 1, 0)]) == 1
    assert policy([step(3, 0, 0)]) == 3  # nothing was drafted, so nothing was learnt
    assert huggingface_heuristic(9, max_gamma=6)([]) == 6


def test_online_acceptance_without_forgetting() -> None:
    """Catches drafts behind the first rejected one that are counted, and full steps with one."""
    policy = OnlineGamma(cost=0.1, prior_counts=(1.0, 1.0), decay=1.0)
    made = steps((4, 2), (3, 3), (5, 0))  # 5 accepted, 2 rejected; 5 were never judged
    made.append(step(gamma=5, drafted=1, accepted=1))  # none rejected, although γ asked for more
    assert policy.acceptance_rate(made) == pytest.approx((1 + 6) / (2 + 8))
    assert policy(made) == best_gamma(7 / 10, 0.1)


def test_online_acceptance_forgets() -> None:
    """Catches weights that fall in the wrong direction of time."""
    policy = OnlineGamma(cost=0.1, prior_counts=(1.0, 1.0), decay=0.5)
    assert policy.acceptance_rate(steps((2, 2), (4, 0))) == pytest.approx((1 + 1) / (2 + 1 + 1))


def test_online_gamma_comes_back_from_zero() -> None:
    """Catches a policy that stops for good: without drafts there would be nothing to learn."""
    policy = OnlineGamma(cost=0.3, decay=0.9)
    made = steps(*[(5, 0)] * 30)
    assert policy(made) == 0
    assert policy(made + steps(*[(0, 0)] * 60)) > 0


def test_online_cost_is_the_median_of_what_was_measured() -> None:
    """Catches times that are not divided by the number of levels, and one slow start that stays."""
    policy = OnlineGamma(decay=1.0)
    made = [step(4, 4, 2, draft=9.0, target=1.0)]  # reads the prompt too
    made += [step(4, 4, 2, draft=0.4, target=2.0)] * 4
    assert policy(made) == best_gamma(policy.acceptance_rate(made), 0.05, max_gamma=16)
    assert policy([step(4, 4, 2, draft=0.4, target=0.0)]) <= 16  # a clock that stood still


def test_online_gamma_learns_in_the_loop() -> None:
    """Catches a policy that does not see the steps of its own sequence."""
    target = TableModel({(): [0.5, 0.5], (0,): [0.5, 0.5]})
    alike, other = TableModel({(): [0.5, 0.5]}), TableModel({(): [1.0, 0.0]})
    last = {}
    for name, draft in {"alike": alike, "other": other}.items():
        policy = OnlineGamma(cost=0.2)
        made = speculative(target, draft, [[0]], gamma=policy, max_tokens=150, seed=1)
        last[name] = made.steps[-1].gamma
    assert last["alike"] == 16
    assert last["other"] == pytest.approx(best_gamma(0.5, 0.2), abs=1)


def peeking(made: Sequence[Step]) -> int:
    """γ from all that a past step holds: rejected drafts, and times."""
    return 2 if made and made[-1].drafts[0][0] and made[-1].seconds.total > 0 else 1


@pytest.mark.parametrize(
    "policy", [huggingface_heuristic(1), OnlineGamma(cost=0.2, max_gamma=2), peeking]
)
def test_decoding_with_a_policy_is_lossless(policy: GammaPolicy) -> None:
    """In fractions, over two steps: γ may depend on past steps, rejected drafts included."""
    rng = np.random.default_rng(3)
    target, draft = TableModel.random(2, 1, rng), TableModel.random(2, 1, rng)

    def decode(uniforms: Any) -> tuple[int, ...]:
        made = speculative(target, draft, [[0]], gamma=policy, max_tokens=3, uniforms=[uniforms])
        return made.sequences[0]

    law = output_distribution_of(decode)
    assert law == sequence_distribution(target, (0,), 3)
    assert sum(law.values()) == Fraction(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: huggingface_heuristic(0),
        lambda: huggingface_heuristic(5, max_gamma=0),
        lambda: OnlineGamma(max_gamma=0),
        lambda: OnlineGamma(cost=-1),
        lambda: OnlineGamma(decay=1.5),
        lambda: OnlineGamma(prior_counts=(0, 0)),
        lambda: OnlineGamma(prior_counts=3),  # type: ignore[arg-type]
        lambda: best_gamma_policy(0.5, 0),
        lambda: as_policy(-1),
    ],
)
def test_wrong_numbers_are_refused(make: Any) -> None:
    with pytest.raises(InvalidParameterError):
        make()
