"""Coupled decoding: texts do not depend on the drafter; exact numbers of accepted drafts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm.coupled import ListCoupling, decode_coupled
from otm.coupled.rounds import CoupledVerifier
from otm.decoding import ModelDrafter, PromptLookup, SamplingParameters
from otm.decoding.reading import Path
from otm.errors import InvalidDraftCountError, InvalidParameterError
from otm.models import TableModel
from otm.problem import Problem
from otm.testing import BUDGET, Control
from otm.testing.sequences import sequence_distribution

F = Fraction
TARGET = TableModel(
    {
        (): [F(1, 8), F(3, 8), F(1, 2)],
        (0,): [F(2, 3), F(1, 3), F(0)],
        (1,): [F(1, 4), F(1, 4), F(1, 2)],
    }
)
DRAFT = TableModel(
    {
        (): [F(1, 2), F(1, 4), F(1, 4)],
        (0,): [F(1, 3), F(1, 3), F(1, 3)],
        (2,): [F(0), F(1, 2), F(1, 2)],
    }
)
PROMPT = (0,)


def test_a_seed_gives_the_same_text_with_any_drafter_or_none() -> None:
    """Many sequences, each with a key of its own, under five drafters."""
    prompts, options = [[0, 1, 2, 0]] * 100, {"max_tokens": 6, "seed": 3}
    alone = decode_coupled(TARGET, None, prompts, lists=3, **options).sequences
    for drafter, k, gamma in (
        (DRAFT, 3, 2),
        (TARGET, 1, 4),
        (DRAFT, (3, 2), 3),
        (PromptLookup(2), 1, 3),
        (ModelDrafter(DRAFT, 2), 1, 1),
    ):
        given: Any = decode_coupled(TARGET, drafter, prompts, k=k, lists=3, gamma=gamma, **options)
        assert given.sequences == alone
    assert len(set(alone)) > 50
    # what the text depends on
    assert decode_coupled(TARGET, None, prompts, lists=2, **options).sequences != alone
    assert decode_coupled(TARGET, None, prompts, lists=3, max_tokens=6, seed=4).sequences != alone


def test_one_sequence_is_the_same_in_any_batch() -> None:
    """Bug: clocks that follow the place in the batch, which changes as sequences end."""
    prompts = [[0], [1], [2], [0, 2]]
    options: Any = {"k": 2, "eos_token_id": 2, "max_tokens": 9, "seed": 0}
    together = decode_coupled(TARGET, DRAFT, prompts, **options).sequences
    assert len({len(text) for text in together}) > 1
    one_by_one = [decode_coupled(TARGET, None, prompts[: b + 1], **options) for b in range(4)]
    assert together == tuple(each.sequences[b] for b, each in enumerate(one_by_one))


# Distributions


def sequences(target: TableModel, **options: Any) -> Any:
    """Sampler of the number of a text of two tokens."""

    def sample(rng: np.random.Generator, draws: int) -> npt.NDArray[np.int64]:
        seed = int(rng.integers(2**63))
        texts = decode_coupled(target, DRAFT, [PROMPT] * draws, max_tokens=2, seed=seed, **options)
        return np.array([3 * a + b for a, b in texts.sequences])

    return sample


def law_of_texts(target: TableModel) -> list[Fraction]:
    law = sequence_distribution(target, PROMPT, 2)
    return [law.get((a, b), F(0)) for a in range(3) for b in range(3)]


def test_texts_have_the_law_of_the_target() -> None:
    other = TableModel({(): [F(1, 8), F(3, 8), F(1, 2)], (0,): [F(1, 3), F(2, 3), F(0)]})
    BUDGET.check_distribution(
        "coupled decoding: texts",
        sequences(TARGET, k=2, gamma=1),
        law_of_texts(TARGET),
        delta=0.25,
        control=Control(sequences(other, k=2, gamma=1), law_of_texts(other)),
    )


@cache
def law_of_accepted(k: int, alive: int, gamma: int, path: Path = PROMPT) -> tuple[Fraction, ...]:
    """Return the exact distribution of the number of accepted drafts of a step, 0 to γ."""
    if not gamma or not alive:
        return (F(1), *[F(0)] * gamma)
    plan = ListCoupling(Problem(DRAFT.probs(path), TARGET.probs(path), k))
    agreeing = plan.agreeing(alive)
    law = [F(0)] * (gamma + 1)
    for b in range(alive + 1):
        for y, mass in enumerate(agreeing[b]):
            below = law_of_accepted(k, b, gamma - 1, (*path, y)) if mass and b else (F(1),)
            for n, chance in enumerate(below):
                law[n + (b > 0)] += mass * chance
    return tuple(law)


@dataclass(frozen=True)
class Accepted:
    """Sampler of the number of accepted drafts in the first step of k chains."""

    k: int
    gamma: int

    def __call__(self, rng: np.random.Generator, draws: int) -> npt.NDArray[np.int64]:
        seed = int(rng.integers(2**63))
        run = decode_coupled(
            TARGET, DRAFT, [PROMPT] * draws, k=self.k, gamma=self.gamma, max_tokens=3, seed=seed
        )
        return np.array([step.accepted for step in run.steps if step.call == 0])


@pytest.mark.parametrize("k", [1, 3])
def test_drafts_are_accepted_by_the_exact_law(k: int) -> None:
    """The control takes another number of lists; both distributions are exact."""
    other = 4 - k
    BUDGET.check_distribution(
        f"coupled decoding: accepted drafts, k = {k}",
        Accepted(k, 2),
        law_of_accepted(k, k, 2),
        delta=0.15,
        control=Control(Accepted(other, 2), law_of_accepted(other, other, 2)),
    )


def test_one_draft_in_fractions() -> None:
    """Pr(X = Y = i) = 1 / Σ_j max(p_j/p_i, q_j/q_i), and never below (1 − TV)/(1 + TV)."""
    p, q = DRAFT.probs(PROMPT), TARGET.probs((1,))
    both = [1 / sum(max(a / p[i], b / q[i]) for a, b in zip(p, q, strict=True)) for i in range(3)]
    plan = ListCoupling(Problem(p, q, 1))
    assert plan.agreeing()[1].tolist() == both
    far = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    assert plan.acceptance >= (1 - far) / (1 + far)


def test_agreeing_drafts_add_up() -> None:
    """In floats and in fractions, for every number of lists that are left."""
    p, q = [F(1, 2), F(1, 4), F(1, 4), F(0)], [F(1, 8), F(0), F(1, 2), F(3, 8)]
    for k in (1, 2, 3):
        exact = ListCoupling(Problem(p, q, k))
        floats = ListCoupling(Problem(*([float(x) for x in law] for law in (p, q)), k))
        for alive in range(k + 1):
            law = exact.agreeing(alive)
            assert law.sum(axis=0).tolist() == q
            assert floats.agreeing(alive) == pytest.approx(law.astype(float), abs=1e-13)
        assert exact.agreeing()[1:].sum() == exact.acceptance
    with pytest.raises(InvalidParameterError, match="alive = 4"):
        exact.agreeing(4)


def test_bad_input() -> None:
    with pytest.raises(InvalidDraftCountError):
        CoupledVerifier(0)
    with pytest.raises(InvalidParameterError, match="at least one list per draft"):
        decode_coupled(TARGET, DRAFT, [[0]], k=4, lists=2)
    with pytest.raises(InvalidParameterError, match="no effect on a drafter"):
        decode_coupled(TARGET, PromptLookup(), [[0]], k=2)
    with pytest.raises(InvalidParameterError, match="no effect on a drafter"):
        decode_coupled(
            TARGET, PromptLookup(), [[0]], draft_sampling=SamplingParameters(temperature=2)
        )
