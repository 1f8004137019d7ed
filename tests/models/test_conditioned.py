"""A model given an automaton: by enumeration of all texts, in fractions, alone and with drafts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.decoding import ModelDrafter, Randomness, stream, verify_chain, verify_traversal
from otm.decoding.reading import Path
from otm.errors import InvalidInputError, InvalidParameterError, ProblemTooLargeError
from otm.models import ConditionedModel, StatelessModel, TableModel
from otm.testing.sequences import output_distribution_of, sequence_distribution

F = Fraction


def dyck(pairs: int) -> dict[int, dict[int, int]]:
    """States count the open brackets; token 0 opens a bracket and token 1 closes one."""
    return {
        depth: ({0: depth + 1} if depth < pairs else {}) | ({1: depth - 1} if depth else {})
        for depth in range(pairs + 1)
    }


class Masked(StatelessModel):
    """The model under a mask that excludes the tokens after which no text is accepted."""

    def __init__(self, model: StatelessModel, viable: set[Path], prompt_length: int) -> None:
        self.vocabulary, self._model = model.vocabulary, model
        self._viable, self._prompt_length = viable, prompt_length

    def probs(self, context: Path) -> Any:
        own, new = self._model.probs(context), tuple(context[self._prompt_length :])
        row = [x * ((*new, token) in self._viable) for token, x in enumerate(own)]
        return np.array(row) / sum(row) if any(row) else own


def given(texts: dict[Path, Fraction], allowed: Any) -> dict[Path, Fraction]:
    """Return the conditional distribution of texts by its definition."""
    kept = {text: p for text, p in texts.items() if allowed(text)}
    mass = sum(kept.values())
    return {text: p / mass for text, p in kept.items()}


def accepted(transitions: Any, text: Path, accepting: Any, start: Any = 0) -> bool:
    state = start
    for token in text:
        if token not in transitions.get(state, {}):
            return False
        state = transitions[state][token]
    return state in accepting


@pytest.mark.parametrize("seed", range(12))
def test_texts_of_one_length(seed: int) -> None:
    """By enumeration.  Bug: h of another context, a state that starts at the prompt."""
    rng = np.random.default_rng(seed)
    model = TableModel.random(3, int(rng.integers(3)), rng)
    states = range(3)
    table = {s: {x: int(rng.integers(3)) for x in range(3) if rng.random() < 0.8} for s in states}
    prompt, length, final = (2, 0), 4, {int(rng.integers(3))}
    every = sequence_distribution(model, prompt, length)
    conditioned = ConditionedModel(model, table, length, accepting=final, prompt_length=2)
    mass = sum(p for text, p in every.items() if accepted(table, text, final))
    assert conditioned.acceptance(prompt) == mass
    if not mass:
        with pytest.raises(InvalidInputError, match="no text"):
            conditioned.probs(prompt)
        return
    expected = given(every, lambda text: accepted(table, text, final))
    assert sequence_distribution(conditioned, prompt, length) == expected


def test_texts_that_end_with_a_token() -> None:
    """By enumeration: brackets, and token 2 ends a text.  Bug: an end in an open bracket."""
    model = TableModel.random(3, 1, np.random.default_rng(5))
    length, pairs = 5, dyck(4)
    conditioned = ConditionedModel(model, pairs, length, accepting=[0], end=2)
    expected = given(
        sequence_distribution(model, (0,), length, end=2),
        lambda text: text[-1] == 2 and accepted(pairs, text[:-1], {0}),
    )
    assert len(expected) == 4
    assert sequence_distribution(conditioned, (0,), length, end=2) == expected


class Counting(StatelessModel):
    """A model that reads the whole context."""

    vocabulary = 2

    def probs(self, context: Path) -> Any:
        ones = sum(context)
        return np.array([F(1, ones + 2), F(ones + 1, ones + 2)])


def test_a_model_without_a_table_reads_the_whole_context() -> None:
    """Bug: contexts that are cut as if the model were a table."""
    conditioned = ConditionedModel(Counting(), dyck(3), 6, accepting=[0])
    expected = given(
        sequence_distribution(Counting(), (1,), 6), lambda text: accepted(dyck(3), text, {0})
    )
    assert sequence_distribution(conditioned, (1,), 6) == expected


MODEL = TableModel({
    (): [F(1, 2), F(1, 2)], (0,): [F(1, 3), F(2, 3)], (1,): [F(3, 4), F(1, 4)]
})  # fmt: skip
DRAFT = TableModel.random(2, 1, np.random.default_rng(9))


@pytest.mark.parametrize("kind", ["conditioned", "masked"])
@pytest.mark.parametrize("rule", [verify_chain, verify_traversal])
def test_drafts_keep_the_distribution_of_the_target_that_the_loop_reads(
    kind: str, rule: Any
) -> None:
    """In fractions, with drafts that ignore the automaton: a mask keeps the masked distribution.

    Bug: a claim that a mask gives the model's distribution given the grammar (the last lines).
    """
    pairs, length = dyck(2), 4
    exact = ConditionedModel(MODEL, pairs, length, accepting=[0])
    texts = [text for text in itertools.product((0, 1), repeat=4) if accepted(pairs, text, {0})]
    viable = {text[:i] for text in texts for i in range(1, 5)}
    target = exact if kind == "conditioned" else Masked(MODEL, viable, 1)

    def decode(uniforms: Randomness) -> Path:
        drafter = ModelDrafter(DRAFT, 1)
        steps = stream(
            target, [(0,)], drafter, rule, gamma=2, max_tokens=length, uniforms=[uniforms]
        )
        return tuple(itertools.chain.from_iterable(step.output for step in steps))

    found = output_distribution_of(decode)
    conditional = given(
        sequence_distribution(MODEL, (0,), length), lambda text: accepted(pairs, text, {0})
    )
    assert found == sequence_distribution(target, (0,), length)
    assert (found == conditional) is (kind == "conditioned")


def test_weights_turn_masked_texts_into_conditional_ones() -> None:
    """Theorem 26.2: the product of the allowed masses.  Bug: a mass of another position."""
    pairs, length = dyck(3), 6
    every = sequence_distribution(MODEL, (0,), length)
    expected = given(every, lambda text: accepted(pairs, text, {0}))
    viable = {text[:i] for text in expected for i in range(1, length + 1)}
    masked = sequence_distribution(Masked(MODEL, viable, 1), (0,), length)
    weighted: dict[Path, Fraction] = defaultdict(Fraction)
    for text, p in masked.items():
        weight = F(1)
        for i in range(length):
            own = MODEL.probs((0, *text[:i]))
            weight *= sum(x for token, x in enumerate(own) if (*text[:i], token) in viable)
        weighted[text] = p * weight
    mass = sum(weighted.values())
    assert mass == ConditionedModel(MODEL, pairs, length, accepting=[0]).acceptance((0,))
    assert {text: p / mass for text, p in weighted.items()} == expected != masked


def test_floats_agree_and_small_probabilities_are_refused() -> None:
    """Bug: an underflow, after which the mask is silently dropped."""
    rows = {(): [0.75, 0.25], (0,): [0.5, 0.5]}
    floats = ConditionedModel(TableModel(rows), dyck(20), 40, accepting=[0])
    exact = {context: [F(x) for x in row] for context, row in rows.items()}
    fractions = ConditionedModel(TableModel(exact), dyck(20), 40, accepting=[0])
    for context in [(0,), (1, 0, 0, 1), (1, 0, 1, 0)]:
        row = fractions.probs(context).astype(float)
        assert floats.probs(context) == pytest.approx(row, abs=1e-13)
    rare = TableModel({(): [1e-30, 1 - 1e-30]})
    with pytest.raises(ProblemTooLargeError, match="use fractions"):
        ConditionedModel(rare, {0: {0: 0}}, 20, accepting=[0]).probs((0,))


@pytest.mark.parametrize("least", [1e-200, 1e-150])
def test_the_first_factor_is_not_lost_either(least: float) -> None:
    """Bug: 0, and then the model's own row or "no text", or few digits, from the last product."""
    rare = TableModel({(): [least, 1e-160, 1 - least]})
    conditioned = ConditionedModel(rare, {0: {0: 0, 1: 0}}, 3, accepting=[0])
    for call in (lambda: conditioned.acceptance((0,)), lambda: conditioned.probs((0, 0))):
        with pytest.raises(ProblemTooLargeError, match="use fractions"):
            call()
    assert conditioned.probs((0, 0, 0))[0] == pytest.approx(least / (least + 1e-160))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": 3}, InvalidParameterError, "is a int"),
        ({"transitions": {0: 1}}, InvalidParameterError, "mapping"),
        ({"transitions": {0: {2: 0}}}, InvalidParameterError, "token of the automaton"),
        ({"length": 0}, InvalidParameterError, "length"),
        ({"end": 2}, InvalidParameterError, "end"),
        ({"accepting": 0}, InvalidParameterError, "collection of states"),
        ({"accepting": "done"}, InvalidParameterError, "collection of states"),
        ({"accepting": [[0]]}, InvalidParameterError, "not hashable"),
        ({"transitions": {0: {0: [1]}}}, InvalidParameterError, "not hashable"),
        ({"start": [0]}, InvalidParameterError, "not hashable"),
    ],
)
def test_bad_arguments_are_refused(change: Any, error: Any, words: str) -> None:
    arguments: Any = {"model": MODEL, "transitions": dyck(1), "length": 2, "accepting": [0]}
    with pytest.raises(error, match=words):
        ConditionedModel(**(arguments | change))


def test_prompts_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="has 2 tokens"):
        ConditionedModel(MODEL, dyck(1), 2, accepting=[0]).acceptance((0, 1))
