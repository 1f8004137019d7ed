from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

import otm
from otm._core.means import Prompts, clustered_mean
from otm._core.ratios.bins import RatioBins
from otm.coupling import KSeq, OptimalPlan, RecursiveRejection
from otm.coupling.compare.capped import by_cut, by_division_factor, by_rounds
from otm.coupling.plan import TransportPlan
from otm.gain.reports.steps_along_text import mean_steps_of_prompts

# Distributions of the next token after each last token, of a text over two tokens
DRAFT = np.array([[0.75, 0.25], [0.375, 0.625]])
TARGET = np.array([[0.25, 0.75], [0.5, 0.5]])
CAPS = {
    OptimalPlan: lambda *a: by_cut(*a)[0],
    KSeq: by_division_factor,
    RecursiveRejection: by_rounds,
}


def texts(length: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """All texts with their probabilities under the target; the token before them is 0."""
    for text in itertools.product((0, 1), repeat=length):
        before = (0, *text[:-1])
        yield text, float(np.prod([TARGET[b, y] for b, y in zip(before, text, strict=True)]))


def steps_of_loop(
    rule: type[TransportPlan], length: int, k: int, gamma: int, *, tree: bool
) -> float:
    """Mean number of steps of the loop itself, over all drafts and decisions, text by text.

    Algorithm 3 of SpecTr with K chains, or with K new children at each node; written from the
    plans' conditional distributions, and from nothing that the report uses.
    """
    plans: dict[tuple[int, int], TransportPlan] = {}

    def outputs(before: int, count: int) -> Iterator[tuple[int, int, float]]:
        """Output, number of drafts that equal it, and the probability of both."""
        key = before, count
        if key not in plans:
            plans[key] = rule(otm.Problem(DRAFT[before], TARGET[before], count))  # type: ignore[call-arg]
        for drafts in itertools.product((0, 1), repeat=count):
            drawn = float(np.prod(DRAFT[before, list(drafts)]))
            law = plans[key].conditional(np.array(drafts))
            for y in (0, 1):
                yield y, drafts.count(y), drawn * float(law[y])

    def go_on(before: int, count: int, level: int, left: int) -> float:
        """Count steps that begin from here on, where `count` drafts are to be judged on a level."""
        if left == 0:
            return 0.0
        if level == gamma:  # the last token of the step is the target's
            return sum(TARGET[before, y] * begin(y, left - 1) for y in (0, 1))
        total = 0.0
        for y, hits, probability in outputs(before, count):
            if probability:
                following = (
                    go_on(y, k if tree else hits, level + 1, left - 1)
                    if hits
                    else begin(y, left - 1)
                )
                total += probability * following
        return total

    def begin(before: int, left: int) -> float:
        return 1 + go_on(before, k, 0, left) if left else 0.0

    return begin(0, length)


def steps_of_report(
    rule: type[TransportPlan], length: int, k: int, gamma: int
) -> tuple[float, float]:
    """Take the same from the texts alone, as the report does: with trees, and chains at most."""
    steps = np.zeros(2)
    for text, probability in texts(length):
        before = (0, *text[:-1])
        accepted = np.empty((length, 1, 2))
        for row, b, y in zip(accepted, before, text, strict=True):
            caps = CAPS[rule](RatioBins.of(DRAFT[b], TARGET[b]), (1, k)).cap
            row[0] = np.minimum(caps * DRAFT[b, y] / TARGET[b, y], 1)
        prompts = Prompts(np.zeros(length, dtype=np.int64))
        steps += probability * mean_steps_of_prompts(accepted, (gamma,), prompts)[0, 0, 1, 0]
    return float(steps[0]), float(steps[1])


@pytest.mark.parametrize("rule", CAPS)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_steps_are_those_of_the_loop(rule: type[TransportPlan], gamma: int) -> None:
    """Catches a step that begins a token too early or too late, and conditionals that are none."""
    chain = steps_of_loop(rule, 5, 1, gamma, tree=False)
    assert steps_of_report(rule, 5, 1, gamma) == pytest.approx((chain, chain), abs=1e-12)
    tree = steps_of_loop(rule, 4, 2, gamma, tree=True)
    chains = steps_of_loop(rule, 4, 2, gamma, tree=False)
    fewest, most = steps_of_report(rule, 4, 2, gamma)
    assert fewest == pytest.approx(tree, abs=1e-12)
    assert fewest <= chains + 1e-12 <= most + 2e-12
    if gamma > 1:
        assert fewest < chains < most


def test_prompts_run_side_by_side_as_they_do_alone() -> None:
    """Catches a prompt that goes on into the next, lengths in disorder, and blocks of prompts."""
    rng = np.random.default_rng(2)
    of_position = np.repeat([5, 1, 9], [4, 7, 2])
    accepted = np.sort(rng.random((13, 2, 3)), axis=-1)
    together = mean_steps_of_prompts(accepted, (1, 4), Prompts(of_position))
    for row, prompt in enumerate([1, 5, 9]):
        its = accepted[of_position == prompt]
        alone = mean_steps_of_prompts(its, (1, 4), Prompts(np.zeros(len(its), dtype=np.int64)))
        np.testing.assert_allclose(together[row], alone[0], atol=1e-13)


def test_means_of_sums_are_clustered_means_of_values() -> None:
    """Catches equal weights for prompts of different lengths, and a wrong order."""
    rng = np.random.default_rng(3)
    names = rng.integers(0, 6, size=50)
    values = rng.normal(size=(50, 2))
    prompts = Prompts(names, 0.9)
    sums = prompts.sums(values)
    for column in range(2):
        wanted = clustered_mean(values[:, column], names, level=0.9)
        assert prompts.mean(sums[:, column]) == pytest.approx(wanted, abs=1e-12)


def test_tokens_per_step_have_the_interval_of_a_ratio() -> None:
    """Catches a reciprocal linearised with the wrong sign, by the delta method."""
    prompts = Prompts(np.repeat([0, 1, 2, 3], [3, 5, 4, 8]))
    steps = np.array([2.0, 3.0, 1.5, 5.0])
    found = prompts.mean(prompts.per(steps))
    inverse = prompts.mean(steps)  # steps per token
    assert found.mean == pytest.approx(1 / inverse.mean)
    assert found.high - found.mean == pytest.approx((inverse.high - inverse.mean) / inverse.mean**2)
    assert Fraction(found.mean).limit_denominator(100) == Fraction(20 * 2, 23)
