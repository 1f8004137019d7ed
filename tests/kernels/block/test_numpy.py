"""Block verification: its output distribution is the target's, and it accepts at least as much."""

from __future__ import annotations

import inspect
import itertools
import math
from fractions import Fraction
from functools import partial
from types import ModuleType

import numpy as np
import pytest

from otm.kernels import verify_probs
from otm.kernels.block import numpy as block
from otm.testing import paths

F = Fraction
verify_block = partial(verify_probs, rule="block")
Law = list[Fraction]
Model = dict[tuple[int, ...], Law]  # distribution of the next token after each prefix


def random_model(rng: np.random.Generator, size: int, depth: int, zeros: float) -> Model:
    model = {}
    for length in range(depth):
        for prefix in itertools.product(range(size), repeat=length):
            weights = rng.integers(1, 9, size) * (rng.random(size) >= zeros)
            weights[rng.integers(size)] += 1
            model[prefix] = [F(int(w), int(weights.sum())) for w in weights]
    return model


def probability(model: Model, tokens: tuple[int, ...], known: int = 0) -> Fraction:
    """Probability of the tokens given the first `known` tokens."""
    factors = (model[tokens[:i]][tokens[i]] for i in range(known, len(tokens)))
    return math.prod(factors, start=F(1))


def as_rows(laws: list[Law], size: int) -> np.ndarray:
    array = np.empty((1, len(laws), size), dtype=object)
    for i, law in enumerate(laws):
        array[0, i] = law
    return array


def joint_law(
    verify: object, target: Model, draft: Model | None, shape: tuple[int, int, int]
) -> tuple[dict[tuple[int, ...], Fraction], Fraction]:
    """Return the distribution of length + 1 tokens, and the mean number of accepted drafts.

    The target continues outputs that are shorter.

    The shape is the vocabulary's size, γ and the chain's length.  All drafts are enumerated, and
    all paths through the comparisons of the verifier itself.
    """
    size, gamma, length = shape
    law = dict.fromkeys(itertools.product(range(size), repeat=length + 1), F(0))
    mean = F(0)
    rubbish = [[F(-3)] * size] * (gamma - length)
    for drafts in itertools.product(range(size), repeat=length):
        drawn = F(drafts == (0,) * length) if draft is None else probability(draft, drafts)
        if drawn == 0:
            continue
        rows = as_rows([target[drafts[:i]] for i in range(length + 1)] + rubbish, size)
        rows_of_draft = None
        if draft is not None:
            rows_of_draft = as_rows([draft[drafts[:i]] for i in range(length)] + rubbish, size)
        tokens = np.array([[*drafts, *[-1, 0, 0][: gamma - length]]], dtype=np.int64)

        def run(
            uniforms: np.ndarray, arguments: tuple[object, ...] = (rows, rows_of_draft, tokens)
        ) -> tuple[list[int], int]:
            outcome = verify(*arguments, uniforms[None])  # type: ignore[operator]
            return outcome.tokens[0].tolist(), int(outcome.accepted[0])

        for path in paths(run, gamma + 2):
            padded, accepted = path.outcome
            output = tuple(padded[: accepted + 1])
            assert output[:-1] == drafts[:accepted]
            assert padded[accepted + 1 :] == [-1] * (gamma - accepted)
            assert probability(target, output) > 0, "an impossible token, if only at u = 0"
            mean += drawn * path.probability * accepted
            for rest in itertools.product(range(size), repeat=length - accepted):
                law[output + rest] += (
                    drawn * path.probability * probability(target, output + rest, accepted + 1)
                )
    return law, mean


CASES = [(1, 2, 0.0), (2, 1, 0.0), (2, 2, 0.0), (3, 2, 0.4), (2, 3, 0.0), (2, 3, 0.5), (4, 1, 0.5)]


@pytest.mark.parametrize(("size", "gamma", "zeros"), CASES)
def test_the_joint_law_is_the_target_s_and_no_shorter(size: int, gamma: int, zeros: float) -> None:
    rng = np.random.default_rng([size, gamma, int(10 * zeros)])
    target = random_model(rng, size, gamma + 1, zeros)
    longer = False
    for draft in (random_model(rng, size, gamma, zeros), None, target):
        for length in range(gamma + 1) if draft is not target else [gamma]:
            shape = (size, gamma, length)
            law, mean = joint_law(verify_block, target, draft, shape)
            assert law == {tokens: probability(target, tokens) for tokens in law}
            chain = joint_law(verify_probs, target, draft, shape)[1]
            assert mean >= chain
            longer |= mean > chain
    if gamma == 1:
        assert not longer  # of one draft the two rules are the same
    elif size > 1 and zeros == 0:
        assert longer


MUTANTS = {
    "u <= h": ("weights[i])) < excess", "weights[i])) <= excess"),
    "weight not capped": ("return int(weighted > 0)", "return weighted / draft"),
    "weight of the step alone": ("weighted = weight * target", "weighted = target"),
    "residual without weight": ("draft, weights[i])", "draft)"),
    "h without 1 − w": ("(excess + (1 - weights[i]))", "excess + 1 - excess"),
    "coin of the next draft": ("coins[i - 1]", "coins[i]"),
    "the end tested as a middle": ("< weights[length]:", "< weights[length] / 2:"),
    "stops early": ("for i in reversed(range(length))", "for i in reversed(range(1))"),
    "bonus of the row before": ("mass(target_probs[length])", "mass(target_probs[length - 1])"),
}


@pytest.mark.parametrize(("right", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_a_slip_is_seen(right: str, wrong: str) -> None:
    source = inspect.getsource(block)
    assert source.count(right) == 1
    module = ModuleType("mutant")
    exec(compile(source.replace(right, wrong), "mutant", "exec"), vars(module))
    rng = np.random.default_rng(1)
    for size, gamma in [(2, 2), (3, 2), (3, 2), (2, 3), (2, 3)]:
        target = random_model(rng, size, gamma + 1, 0.3)
        draft = random_model(rng, size, gamma, 0.3)
        try:
            law, mean = joint_law(module.verify, target, draft, (size, gamma, gamma))
        except (AssertionError, IndexError):
            return
        right_mean = joint_law(verify_block, target, draft, (size, gamma, gamma))[1]
        if law != {tokens: probability(target, tokens) for tokens in law} or mean < right_mean:
            return
    pytest.fail("no instance shows the slip")
