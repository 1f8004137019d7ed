"""Greedy block verification: exact distributions of whole texts, and what one block accepts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.decoding import (
    DraftNode,
    GreedyBlockVerifier,
    ModelDrafter,
    PromptLookup,
    Randomness,
    Step,
    speculative,
    stream,
    verify_hierarchical,
    verify_traversal,
)
from otm.decoding.reading import Path
from otm.errors import InvalidDraftsError, InvalidInputError
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

F = Fraction
PROMPT = (0,)
TARGET, DRAFT = TableModel({(): [F(1, 3), F(2, 3)]}), TableModel({(): [F(2, 3), F(1, 3)]})


def models(vocabulary: int, seed: int) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    return TableModel.random(vocabulary, 2, rng), TableModel.random(vocabulary, 2, rng)


def alternating(steps: Sequence[Step]) -> int:
    """Draft two tokens, then one, then none: what is owed reaches beyond a step's drafts."""
    return (2, 1, 0)[len(steps) % 3]


@pytest.mark.parametrize(
    ("vocabulary", "gamma", "length", "end"),
    [(2, 2, 4, None), (2, 3, 4, None), (3, 2, 3, 1), (2, alternating, 4, None), (2, 2, 3, 1)],
    ids=["two", "three drafts", "three tokens", "alternating", "end"],
)
def test_whole_texts_have_the_law_of_the_target(
    vocabulary: int, gamma: Any, length: int, end: int | None
) -> None:
    """Catches a debt that is forgotten, paid twice, of the wrong row, or lost at the limit."""
    target, draft = models(vocabulary, seed=vocabulary + length)

    def decode(uniforms: Randomness) -> Path:
        return speculative(
            target, draft, [PROMPT], rule="greedy block", gamma=gamma, max_tokens=length,
            eos_token_id=end, uniforms=[uniforms],
        ).sequences[0]  # fmt: skip

    assert output_distribution_of(decode) == sequence_distribution(target, PROMPT, length, end)


def first_step(verifier: Any, gamma: int, target: Any = TARGET, draft: Any = DRAFT) -> Any:
    """Distribution of what the first step outputs."""

    def output(uniforms: Randomness) -> Path:
        steps = stream(
            target, [PROMPT], ModelDrafter(draft), verifier, gamma=gamma, uniforms=[uniforms]
        )
        return next(steps).output

    return output_distribution_of(output)


def accepted(law: dict[Path, Fraction]) -> Fraction:
    """Mean number of accepted drafts."""
    return sum((mass * (len(path) - 1) for path, mass in law.items()), F(0))


@pytest.mark.parametrize("seed", [None, 3, 5])
def test_a_block_accepts_as_much_as_any_coupling(seed: int | None) -> None:
    """Theorem 19.1, by path probabilities; the example of Sun et al. gives 12/9, block 11/9."""
    target, draft = (TARGET, DRAFT) if seed is None else models(2, seed)
    law = first_step(GreedyBlockVerifier(), 2, target, draft)
    most = F(0)
    for length in (1, 2):
        for path in itertools.product(range(2), repeat=length):
            masses = [F(1), F(1)]
            for i, token in enumerate(path):
                for j, model in enumerate((target, draft)):
                    masses[j] *= model.probs((*PROMPT, *path[:i])).item(token)
            most += min(masses)
    assert accepted(law) == most
    block = first_step(verify_traversal, 2, target, draft)
    assert accepted(block) <= most
    if seed is None:
        assert (accepted(block), most) == (F(11, 9), F(12, 9))


def test_one_step_alone_is_not_lossless() -> None:
    """Negative control: a step without the pending correction is not lossless."""
    law = first_step(GreedyBlockVerifier(), 2)
    assert continued_distribution(law, TARGET, PROMPT, 3) != sequence_distribution(
        TARGET, PROMPT, 3
    )


def test_a_batch_keeps_what_each_sequence_owes() -> None:
    """Catches a debt of another sequence, where one has ended before."""
    target, draft = models(3, seed=1)
    options: dict[str, Any] = {"rule": "greedy block", "gamma": 2, "eos_token_id": 2}
    sources = [np.random.default_rng(i).random for i in range(4)]
    together = speculative(
        target, draft, [[0], [1], [0], [1]], max_tokens=9, uniforms=sources, **options
    ).sequences
    for i, prompt in enumerate([[0], [1], [0], [1]]):
        source = np.random.default_rng(i).random
        alone = speculative(target, draft, [prompt], max_tokens=9, uniforms=[source], **options)
        assert alone.sequences[0] == together[i]


@pytest.mark.parametrize(
    "drafter", [PromptLookup(), ModelDrafter(DRAFT, 2), ModelDrafter(DRAFT, draft_kind="Top"), None]
)
def test_other_drafters_are_refused(drafter: Any) -> None:
    with pytest.raises(
        InvalidInputError, match="give a model, or a ModelDrafter of one sampled chain"
    ):
        next(stream(TARGET, [PROMPT], drafter, GreedyBlockVerifier(), gamma=1, seed=0))


# The released code of hierarchical speculative decoding


def test_the_released_hierarchical_rule_loses_one_ninth() -> None:
    """Theorem 19.2, on the smallest example: TV 1/9 of a step of two drafts."""
    law = continued_distribution(first_step(verify_hierarchical, 2), TARGET, PROMPT, 3)
    right = sequence_distribution(TARGET, PROMPT, 3)
    distance = sum(max(law.get(path, F(0)) - mass, F(0)) for path, mass in right.items())
    assert distance == F(1, 9)
    assert accepted(first_step(verify_hierarchical, 2)) > F(11, 9)


def test_for_one_draft_it_is_block_verification() -> None:
    """No path was likelier before, so that nothing is accepted too often."""
    for seed in range(4):
        target, draft = models(3, seed)
        found, right = (
            first_step(verify, 1, target, draft)
            for verify in (verify_hierarchical, verify_traversal)
        )
        assert found == right


def test_hierarchical_verification_takes_one_chain() -> None:
    root = DraftNode((), None, [DraftNode((0,)), DraftNode((1,))])
    with pytest.raises(InvalidDraftsError, match="needs a single chain"):
        verify_hierarchical(root, lambda path: None, np.zeros)  # type: ignore[arg-type, return-value]
