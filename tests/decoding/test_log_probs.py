"""Log-probabilities of decoded tokens: those of the target, without a second pass."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.coupled import CoupledVerifier
from otm.decoding import (
    BestFirstDrafter,
    DeviceVerifier,
    DrawnTreeDrafter,
    Generation,
    GreedyBlockVerifier,
    ModelDrafter,
    SamplingParameters,
    autoregressive,
    speculative,
    stream,
    verify_chain,
    verify_traversal,
    verify_walk_and_keep,
)
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError
from otm.models import LanguageModel, TableModel, load

TARGET = TableModel.random(4, 2, np.random.default_rng(1))
DRAFT = TableModel.random(4, 1, np.random.default_rng(2))
PROMPTS = ((0,), (3, 1))


def decode(verifier: Any, k: int, target: Any = TARGET, draft: Any = DRAFT, **options: Any) -> Any:
    steps = stream(target, PROMPTS, ModelDrafter(draft, k), verifier, gamma=3, **options)
    return Generation(PROMPTS, tuple(steps))


@pytest.mark.parametrize(
    ("verifier", "k"),
    [
        (verify_chain, 1),
        (verify_traversal, 3),
        (verify_walk_and_keep, 3),
        (GreedyBlockVerifier(), 1),
        (CoupledVerifier(), 2),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_the_target_in_fractions(
    verifier: Any, k: int, seed: int
) -> None:
    """Token by token, also where an end cuts a step.  Bug: a row of another node or sequence."""
    found = decode(verifier, k, max_tokens=12, seed=seed, eos_token_id=2, log_probs=True)
    for b, prompt in enumerate(PROMPTS):
        text = found.sequences[b]
        expected = [TARGET.probs(prompt + text[:i])[x] for i, x in enumerate(text)]
        probs = [p for step in found.steps_of(b) for p in step.probs]
        assert probs == expected
        assert all(isinstance(p, Fraction) for p in probs)
        assert found.log_probs[b] == pytest.approx([math.log(p) for p in expected])
        # the control: the probabilities of the draft model are others
        assert probs != [DRAFT.probs(prompt + text[:i])[x] for i, x in enumerate(text)]


def log_probs_of(
    target: LanguageModel, prompt: Path, text: Path, sampling: SamplingParameters
) -> list[float]:
    """Compute the log-probabilities by a second pass over the whole text."""
    session: Any = target.start(1)
    scores = np.asarray(session.append(np.array([prompt + text])))[0].astype(float)
    rows = sampling.sparse_probs_rows(scores[len(prompt) - 1 : -1])
    return [math.log(row.of(x)) for row, x in zip(rows, text, strict=True)]


@pytest.mark.parametrize("rule", ["chain", "grid optimal"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "top_p": 0.9}])
def test_the_device_gives_the_same_probabilities(rule: str, sampling: dict[str, Any]) -> None:
    """The distribution of the sampling parameters.  Bug: bits of another chain, or before top-p."""
    target, parameters = load("target"), SamplingParameters(**sampling)
    k = 1 if rule == "chain" else 3
    options: Any = {"max_tokens": 20, "seed": 3, "sampling": parameters, "log_probs": True}
    found = decode(DeviceVerifier(rule), k, target, load("small"), **options)
    for b, prompt in enumerate(PROMPTS):
        text = found.sequences[b]
        expected = log_probs_of(target, prompt, text, parameters)
        assert found.log_probs[b] == pytest.approx(expected, abs=2e-5)
    assert found.block_efficiency > 1.2


@pytest.mark.parametrize("rule", ["walk and keep", "target-only"])
def test_trees_on_the_device_give_the_same_probabilities(rule: str) -> None:
    """Bug: the probability of a sibling, or of the token after another node."""
    target, draft = load("target"), load("small")
    drafter: Any = DrawnTreeDrafter(draft, 10)
    if rule == "target-only":
        drafter = BestFirstDrafter(draft, 10)
    options: Any = {"gamma": 3, "max_tokens": 20, "seed": 3, "log_probs": True}
    steps = tuple(stream(target, PROMPTS, drafter, DeviceVerifier(rule), **options))
    found = Generation(PROMPTS, steps)
    assert found.log_probs is not None
    for b, prompt in enumerate(PROMPTS):
        text = found.sequences[b]
        expected = log_probs_of(target, prompt, text, SamplingParameters())
        assert found.log_probs[b] == pytest.approx(expected, abs=2e-5)
    assert found.block_efficiency > 1.2


def test_the_option_changes_neither_tokens_nor_reads() -> None:
    """Bug: a second pass over the model, random numbers that the option uses."""
    reads: list[int] = []

    class Counted(TableModel):
        def probs(self, context: tuple[int, ...]) -> Any:
            reads[-1] += 1
            return super().probs(context)

    model = Counted({(): [Fraction(1, 4)] * 4, (1,): [Fraction(1, 2), Fraction(1, 2), 0, 0]})
    texts = []
    for log_probs in (False, True):
        reads.append(0)
        found = decode(None, 1, model, max_tokens=20, seed=0, log_probs=log_probs)
        texts.append(found.sequences)
    assert texts[0] == texts[1]
    assert reads[0] == reads[1] > 0


def test_without_the_option_there_are_none() -> None:
    assert autoregressive(TARGET, PROMPTS, max_tokens=2, seed=0).log_probs is None
    both = autoregressive(TARGET, PROMPTS, max_tokens=2, seed=0, log_probs=True)
    assert [len(row) for row in both.log_probs or ()] == [2, 2]


def test_an_impossible_token_of_a_lossy_rule_has_minus_infinity() -> None:
    """Bug: an error, or a number that hides that the rule is not lossless."""

    def accept_everything(root: Any, target_probs: Any, uniforms: Any) -> tuple[int, ...]:
        return (*max((node.path for node in root.nodes()), key=len), 0)

    target, draft = TableModel({(): [1, 0]}), TableModel({(): [0, 1]})
    drafter = ModelDrafter(draft, 1)
    options: Any = {"gamma": 2, "max_tokens": 3, "seed": 0, "log_probs": True}
    steps = tuple(stream(target, [(0,)], drafter, accept_everything, **options))
    assert Generation(((0,),), steps).log_probs == ((-math.inf, -math.inf, 0.0),)


def test_other_values_of_the_option_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="log_probs = 5"):
        speculative(TARGET, DRAFT, PROMPTS, log_probs=5)  # type: ignore[arg-type]
