"""Chain verification by the papers' definition: its output distribution is exactly the target's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from otm.errors import InvalidInputError
from otm.kernels import verify_probs
from otm.testing import paths

F = Fraction
Verify = Callable[..., Any]
Law = list[Fraction]
Model = dict[tuple[int, ...], Law]  # distribution of the next token after each prefix


def random_law(rng: np.random.Generator, size: int, zeros: float) -> Law:
    weights = rng.integers(1, 9, size) * (rng.random(size) >= zeros)
    weights[rng.integers(size)] += 1
    return [F(int(w), int(weights.sum())) for w in weights]


def random_model(rng: np.random.Generator, size: int, depth: int, zeros: float) -> Model:
    lengths = (itertools.product(range(size), repeat=length) for length in range(depth))
    return {prefix: random_law(rng, size, zeros) for prefix in itertools.chain(*lengths)}


def probability(model: Model, tokens: Sequence[int], known: int = 0) -> Fraction:
    """Probability of the tokens given the first `known` tokens."""
    factors = (model[tuple(tokens[:i])][tokens[i]] for i in range(known, len(tokens)))
    return math.prod(factors, start=F(1))


def as_rows(rows: list[Law], size: int) -> np.ndarray:
    array = np.empty((1, len(rows), size), dtype=object)
    array[0] = rows or np.empty((0, size))
    return array


class Instance(NamedTuple):
    """Two models and a length of the chain, in arrays for γ drafts."""

    target: Model
    draft: Model | None  # None: one-hot, and the draft is always token 0
    size: int
    gamma: int
    length: int

    def drafts(self) -> list[tuple[tuple[int, ...], Fraction]]:
        if self.draft is None:
            return [((0,) * self.length, F(1))]
        sequences = itertools.product(range(self.size), repeat=self.length)
        drawn = ((sequence, probability(self.draft, sequence)) for sequence in sequences)
        return [(sequence, mass) for sequence, mass in drawn if mass]

    def arguments(self, drafts: tuple[int, ...]) -> list[np.ndarray | None]:
        """Return arguments of `verify_probs`, with invalid values after the end of the chain."""
        beyond = self.gamma - self.length
        rubbish = [[F(-3)] * self.size] * beyond
        target = [self.target[drafts[:i]] for i in range(self.length + 1)] + rubbish
        draft = None
        if self.draft is not None:
            laws = [self.draft[drafts[:i]] for i in range(self.length)] + rubbish
            draft = as_rows(laws, self.size)
        tokens = np.array([[*drafts, *[-1, 0, 0][:beyond]]], dtype=np.int64)
        return [as_rows(target, self.size), draft, tokens]


def assert_lossless(verify: Verify, instance: Instance) -> None:
    """Assert that the output, continued by the target, has the target's distribution.

    All drafts are enumerated, and all paths through the comparisons of the verifier itself.
    """
    target, length = instance.target, instance.length
    law = dict.fromkeys(itertools.product(range(instance.size), repeat=length + 1), F(0))
    for drafts, drawn in instance.drafts():
        arguments = instance.arguments(drafts)

        def decide(uniforms: np.ndarray, arguments: list[np.ndarray | None] = arguments) -> object:
            tokens, accepted, _ = verify(*arguments, uniforms[None])
            return tokens[0].tolist(), int(accepted[0])

        for path in paths(decide, instance.gamma + 2):
            padded, accepted = path.outcome
            tokens = tuple(padded[: accepted + 1])
            assert tokens[:-1] == drafts[:accepted]
            assert padded[accepted + 1 :] == [-1] * (instance.gamma - accepted)
            assert probability(target, tokens) > 0, "an impossible token, if only at u = 0"
            for rest in itertools.product(range(instance.size), repeat=length - accepted):
                continued = probability(target, tokens + rest, known=accepted + 1)
                law[tokens + rest] += drawn * path.probability * continued
    assert law == {sequence: probability(target, sequence) for sequence in law}


def instances() -> list[Instance]:
    rng = np.random.default_rng(11)
    found = []
    for size, gamma, zeros in [(1, 2, 0.0), (2, 2, 0.4), (3, 2, 0.5), (3, 1, 0.0), (4, 1, 0.5)]:
        target = random_model(rng, size, gamma + 1, zeros)
        draft = random_model(rng, size, gamma, zeros)
        found += [Instance(target, draft, size, gamma, length) for length in range(gamma + 1)]
        found.append(Instance(target, None, size, gamma, gamma))
    found.append(Instance(target, target, size, gamma, gamma))
    return found


@pytest.mark.parametrize("instance", instances())
def test_the_law_is_exactly_the_target_s(instance: Instance) -> None:
    assert_lossless(verify_probs, instance)


def test_the_law_is_exact_for_four_tokens_and_two_drafts() -> None:
    rng = np.random.default_rng(12)
    models = random_model(rng, 4, 3, 0.3), random_model(rng, 4, 2, 0.3)
    assert_lossless(verify_probs, Instance(*models, 4, 2, 2))


def test_every_mutant_is_seen(mutant: ModuleType) -> None:
    for instance in instances():
        try:
            assert_lossless(mutant.verify, instance)
        except (AssertionError, InvalidInputError, IndexError):
            return
    pytest.fail("no instance shows the slip")


def test_sums_that_differ_cost_no_more_than_their_difference() -> None:
    rng = np.random.default_rng(13)
    for _ in range(30):
        target, draft = random_law(rng, 3, 0.3), random_law(rng, 3, 0.3)
        target_sum, draft_sum = F(int(rng.integers(8, 13)), 10), F(int(rng.integers(8, 13)), 10)
        target_probs = as_rows([[target_sum * t for t in target]] * 2, 3)
        draft_probs = as_rows([[draft_sum * d for d in draft]], 3)
        law = [F(0)] * 3
        for x in np.flatnonzero(draft).tolist():

            def first_token(uniforms: np.ndarray, x: int = x) -> int:
                arguments = (target_probs, draft_probs, np.array([[x]]), uniforms[None])  # noqa: B023
                return int(verify_probs(*arguments, validate=False).tokens[0, 0])

            for path in paths(first_token, 3):
                law[path.outcome] += draft[x] * path.probability
        distance = sum(abs(a - t) for a, t in zip(law, target, strict=True)) / 2
        assert distance <= abs(draft_sum - target_sum) / max(draft_sum, target_sum)
