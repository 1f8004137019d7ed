"""The probability of a text under a rule, against the exact distribution of the loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from otm.coupling import OptimalPlan
from otm.coupling.lossy import LenientPlan, SyntheticAcceptance, TypicalAcceptance
from otm.decoding import SamplingParameters, sampled_log_probs, spectr
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path, Reader
from otm.decoding.text_probs import sampled_probs
from otm.errors import InvalidInputError, InvalidParameterError, UnknownMethodError
from otm.models import TableModel, load
from otm.testing.sequences import output_distribution_of

PROMPT = (0,)
HALF = Fraction(1, 2)
LOSSY: dict[str, Callable[[Any], Any]] = {
    "lenient": lambda problem: LenientPlan(problem, HALF),
    "synthetic": lambda problem: SyntheticAcceptance(problem, HALF),
    "typical": lambda problem: TypicalAcceptance(problem, Fraction(1, 3), Fraction(1, 3)),
}
RULES = LOSSY | {"optimal": OptimalPlan}


def models(seed: int) -> tuple[TableModel, TableModel]:
    rng = np.random.default_rng(seed)
    return TableModel.random(2, 2, rng), TableModel.random(2, 1, rng)


def probability(
    target: TableModel, draft: TableModel, text: Path, rule: Any, **options: int
) -> Fraction:
    """Multiply the probabilities of the tokens of a text."""
    aim, drafts = (
        Reader(model).read([PROMPT], [[text[:-1]]], None, whole=True) for model in (target, draft)
    )
    found = sampled_probs(aim, drafts, text, rule, **options)
    try:
        return Fraction(math.prod(found))
    except InvalidInputError:
        return Fraction(0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("gamma", "limit", "end"), [(1, 3, None), (2, 4, None), (3, 3, None), (2, 4, 1), (0, 2, None)]
)
def test_it_is_the_distribution_of_the_loop(
    rule: str, gamma: int, limit: int, end: int | None
) -> None:
    """In fractions, all texts.  Bugs: a forgotten division into steps, γ near the limit."""
    target, draft = models(gamma + limit)

    def text_of(uniforms: Randomness) -> Path:
        return spectr(
            target,
            draft,
            [PROMPT],
            k=1,
            gamma=gamma,
            rule=RULES[rule],
            max_tokens=limit,
            eos_token_id=end,
            uniforms=[uniforms],
        ).sequences[0]

    expected = output_distribution_of(text_of)
    of = partial(probability, target, draft, rule=RULES[rule], gamma=gamma, limit=limit)
    assert {text: of(text) for text in expected} == expected
    assert sum(expected.values()) == 1
    # The control: a lossy rule does not sample from the target.
    likely = [math.prod(target.probs(PROMPT + t[:i])[x] for i, x in enumerate(t)) for t in expected]
    assert (likely == list(expected.values())) == (rule == "optimal" or gamma == 0)


def test_a_lossless_rule_has_the_log_probabilities_of_the_target() -> None:
    """On networks, with sampling parameters.  Bug: a row of another place, unprocessed scores."""
    target, draft = load("target"), load("small")
    options: Any = {"gamma": 3, "max_tokens": 12, "sampling": SamplingParameters(temperature=0.7)}
    made = spectr(target, draft, [PROMPT], rule="k-Seq", k=1, seed=2, log_probs=True, **options)
    found = sampled_log_probs(target, draft, PROMPT, made.sequences[0], "k-Seq", **options)
    assert made.log_probs is not None
    assert found == pytest.approx(made.log_probs[0], abs=1e-5)
    lenient = sampled_log_probs(
        target, draft, PROMPT, made.sequences[0], LOSSY["lenient"], **options
    )
    assert max(abs(a - b) for a, b in zip(found, lenient, strict=True)) > 0.01


def test_probabilities_after_a_text_sum_to_one() -> None:
    """In floats too, where states after rare tokens have tiny weights."""
    target, draft = (
        TableModel({(): [0.7, 0.2, 0.1]}),
        TableModel({(): [0.1, 0.1, 0.8], (2,): [0.9, 0.05, 0.05]}),
    )
    for before in itertools.product(range(3), repeat=4):
        options: Any = {"gamma": 3, "max_tokens": 9}
        last = [
            sampled_log_probs(target, draft, PROMPT, [*before, x], LOSSY["lenient"], **options)[-1]
            for x in range(3)
        ]
        assert sum(map(math.exp, last)) == pytest.approx(1, abs=1e-12)


def test_wrong_arguments_are_refused() -> None:
    target, draft = TableModel({(): [1, 0]}), TableModel({(): [0.5, 0.5]})
    ask = partial(sampled_log_probs, target, draft, PROMPT)
    with pytest.raises(InvalidInputError, match="never samples token 1 after 1 tokens"):
        ask([0, 1], "optimal")
    with pytest.raises(InvalidInputError, match="3 tokens, but max_tokens = 2"):
        ask([0, 0, 0], "optimal", max_tokens=2)
    with pytest.raises(InvalidInputError, match="the text has token 2"):
        ask([0, 2], "optimal")
    with pytest.raises(InvalidInputError, match=r"the text is an array .* shape"):
        ask([[0]], "optimal")  # type: ignore[list-item]
    for name in ("traversal", "chain"):
        with pytest.raises(UnknownMethodError, match="cannot be used here"):
            ask([0], name)
    with pytest.raises(InvalidParameterError, match="rule for 1 Top drafts"):
        ask([0, 0], "target-only")
    assert ask([], "optimal") == ()
    with pytest.raises(InvalidInputError, match="draft is a int"):
        sampled_log_probs(target, 3, PROMPT, [0], "optimal")  # type: ignore[arg-type]
