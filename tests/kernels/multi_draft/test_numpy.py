"""Several chains of drafts by the paper's definition: the distribution is exactly the target's."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from otm import Problem
from otm._core.arithmetic import at_least_once
from otm.coupling import KSeq
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidUniformsError,
)
from otm.kernels import verify_probs
from otm.kernels.k_seq import numpy as grid_k_seq
from otm.kernels.k_seq.numpy import find_split
from otm.kernels.multi_draft.numpy import verify_chains
from otm.kernels.optimal import numpy as grid_optimal
from otm.kernels.registry import uniforms_per_position
from otm.testing import paths

F = Fraction
Law = list[Fraction]
Model = dict[tuple[int, ...], Law]  # distribution of the next token after each prefix

EDGES = [
    ([1, 1, 2], [0, 1, 3]),
    ([1, 0, 0], [0, 0, 1]),  # disjoint
    ([1, 2, 3], [1, 2, 3]),  # equal
    ([1, 1, 1], [0, 0, 1]),
    ([0, 1, 0], [1, 1, 1]),
]


def law_of(weights: list[int]) -> Law:
    return [F(w, sum(weights)) for w in weights]


def array(values: Any) -> np.ndarray:
    return np.array(values, dtype=object)


def random_law(rng: np.random.Generator, size: int) -> Law:
    weights = rng.integers(1, 6, size) * (rng.random(size) >= 0.3)
    weights[rng.integers(size)] += 1
    return law_of([int(w) for w in weights])


def random_model(rng: np.random.Generator, size: int, depth: int) -> Model:
    lengths = (itertools.product(range(size), repeat=length) for length in range(depth))
    return {prefix: random_law(rng, size) for prefix in itertools.chain(*lengths)}


def probability(model: Model, tokens: tuple[int, ...], known: int = 0) -> Fraction:
    """Probability of the tokens given the first `known` tokens."""
    factors = (model[tokens[:i]][tokens[i]] for i in range(known, len(tokens)))
    return math.prod(factors, start=F(1))


def law_of_output(
    target: Model, draft: Model, lengths: tuple[int, ...], size: int, rule: str = "grid k-Seq"
) -> Any:
    """Joint distribution of γ + 1 tokens: output of chains of these lengths, then the target's."""
    gamma = max(lengths)
    law = dict.fromkeys(itertools.product(range(size), repeat=gamma + 1), F(0))
    drawn = [itertools.product(range(size), repeat=length) for length in lengths]
    for chains in itertools.product(*drawn):
        mass = math.prod((probability(draft, chain) for chain in chains), start=F(1))
        if not mass:
            continue
        tokens = np.array([[[*c, *[-1] * (gamma - len(c))] for c in chains]]).reshape(
            1, len(chains), gamma
        )
        # beyond the end of a chain stands rubbish
        rubbish = [[F(2, size)] * size] * gamma
        rows = [([target[c[:i]] for i in range(len(c) + 1)] + rubbish)[: gamma + 1] for c in chains]
        laws = [([draft[c[:i]] for i in range(len(c))] + rubbish)[:gamma] for c in chains]
        inputs = (array([rows]), array([laws]).reshape(1, len(chains), gamma, size), tokens)

        def verify(uniforms: np.ndarray, inputs: Any = inputs) -> Any:
            output, accepted, chain = verify_probs(*inputs, uniforms[None], rule=rule)
            return tuple(output[0].tolist()), int(accepted[0]), int(chain[0])

        for path in paths(verify, gamma * uniforms_per_position(rule, len(chains)) + 2):
            padded, accepted, chain = path.outcome
            output = padded[: accepted + 1]
            assert padded[accepted + 1 :] == (-1,) * (gamma - accepted)
            assert output[:-1] == chains[chain][:accepted]
            assert probability(target, output) > 0, "an impossible token, if only at u = 0"
            for rest in itertools.product(range(size), repeat=gamma - accepted):
                continued = probability(target, output + rest, known=accepted + 1)
                law[output + rest] += mass * path.probability * continued
    return law


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (3, (1,)),
        (2, (2,)),
        (3, (1, 1)),
        (2, (1, 1, 1)),
        (3, (0, 1)),
        (2, (2, 2)),
        (2, (1, 2)),
        (2, (2, 0)),
    ],
)
def test_the_joint_law_is_exactly_the_target_s(size: int, lengths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(lengths) + 10 * size)
    for _ in range(1 if lengths == (2, 2) else 3):
        target = random_model(rng, size, max(lengths) + 1)
        found = law_of_output(target, random_model(rng, size, max(lengths)), lengths, size)
        assert found == {tokens: probability(target, tokens) for tokens in found}


@pytest.mark.parametrize("lengths", [(2,), (1, 1)])
def test_the_joint_law_by_bins_is_exactly_the_target_s(
    lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    select = partial(grid_optimal.select, steps=1)
    monkeypatch.setattr(grid_optimal, "verify", partial(verify_chains, select))
    rng = np.random.default_rng(7)
    target, draft = random_model(rng, 2, 3), random_model(rng, 2, 2)
    found = law_of_output(target, draft, lengths, 2, "grid optimal")
    assert found == {tokens: probability(target, tokens) for tokens in found}


@pytest.mark.parametrize(("draft", "target"), EDGES)
def test_the_law_at_one_node_is_exact_on_degenerate_laws(
    draft: list[int], target: list[int]
) -> None:
    rng = np.random.default_rng(3)
    model = {**random_model(rng, 3, 2), (): law_of(target)}
    found = law_of_output(model, {(): law_of(draft)}, (1, 1), 3)
    assert found == {tokens: probability(model, tokens) for tokens in found}


@pytest.mark.parametrize(
    ("slip", "name"),
    [
        (lambda scale, beta, numbers: beta >= 0, "is_valid"),  # ρ = 1 is not for k = 2
        (lambda beta, numbers: beta * (numbers.size - 1), "hit_probability"),  # a union bound
    ],
)
def test_the_exact_law_sees_a_slip(slip: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_k_seq, name, slip)
    target, draft = law_of([1, 2, 3]), law_of([4, 1, 1])
    model = {(): target, **{(x,): target for x in range(3)}}
    found = law_of_output(model, {(): draft}, (1, 1), 3)
    assert found != {tokens: probability(model, tokens) for tokens in found}


def test_one_chain_is_chain_verification() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        gamma, size = int(rng.integers(0, 4)), int(rng.integers(1, 9))
        target = rng.dirichlet(np.full(size, 0.5), (1, gamma + 1)).astype(np.float32)
        draft = rng.dirichlet(np.full(size, 0.5), (1, gamma)).astype(np.float32)
        tokens = np.array([[rng.choice(np.flatnonzero(row)) for row in draft[0]]], dtype=np.int64)
        uniforms = rng.random((1, gamma + 2))
        chain = verify_probs(target, draft, tokens.reshape(1, gamma), uniforms)
        found = verify_probs(
            *(target[:, None], draft[:, None], tokens.reshape(1, 1, gamma), uniforms),
            rule="grid k-Seq",
        )
        assert found.tokens.tolist() == chain.tokens.tolist()
        assert found.accepted.tolist() == chain.accepted.tolist()


@pytest.mark.parametrize("k", [2, 3, 8])
def test_the_mixture_is_nearly_as_good_as_the_best_division_factor(k: int) -> None:
    rng = np.random.default_rng(k)
    lost = []
    for _ in range(30):
        draft, noise = 3 * rng.normal(size=500), rng.normal(size=500)
        draft, target = (np.exp(x) for x in (draft, draft + rng.choice([0.3, 1, 3]) * noise))
        draft, target = draft / draft.sum(), target / target.sum()
        split = find_split(target, draft, k, k)
        h = split.one_draft(target, draft)
        assert (split.factor * h <= target * (1 + 1e-12)).all()
        best = KSeq(Problem(draft, target, k)).acceptance_by_test
        lost.append(best - at_least_once(h.sum(), k))
        grid = find_split(target, draft, max(k - 1, 1), k)  # a chain has left the running
        best = KSeq(Problem(draft, target, max(k - 1, 1))).acceptance_by_test
        lost.append(best - at_least_once(grid.one_draft(target, draft).sum(), max(k - 1, 1)))
    assert -1e-12 < min(lost)
    assert max(lost) < 4e-3


def test_an_equal_law_accepts_and_an_impossible_draft_is_rejected() -> None:
    law = np.array([0.25, 0.75, 0.0])
    for token in (0, 1):
        last = np.full(2, 1 - 2.0**-53)
        assert grid_k_seq.select(law, law, np.array([token, token]), last)[0] == 0
    index, residual = grid_k_seq.select(law, law[::-1], np.array([2, 2]), np.zeros(2))
    assert index == -1
    assert residual[2] == 0


def arguments() -> dict[str, np.ndarray]:
    return {
        "target_probs": np.full((1, 2, 2, 2), 0.5),
        "draft_probs": np.full((1, 2, 1, 2), 0.5),
        "draft_tokens": np.zeros((1, 2, 1), dtype=np.int64),
        "uniforms": np.full((1, 4), 0.5),
    }


@pytest.mark.parametrize(
    ("name", "wrong", "error", "words"),
    [
        ("draft_tokens", np.zeros((1, 2), dtype=np.int64), InvalidDraftsError, r"\[B, K, γ\]"),
        ("draft_tokens", np.zeros((1, 0, 1), dtype=np.int64), InvalidDraftsError, "K ≥ 1"),
        ("draft_tokens", np.full((1, 2, 1), 2), InvalidDraftsError, "vocabulary"),
        ("target_probs", np.full((1, 2, 1, 2), 0.5), InvalidDistributionError, "target has shape"),
        ("draft_probs", np.full((1, 1, 1, 2), 0.5), InvalidDistributionError, "draft has shape"),
        ("draft_probs", np.full((1, 2, 1, 2), 0.7), InvalidDistributionError, "sum to one"),
        ("draft_probs", None, InvalidInputError, "needs the distributions of the drafts"),
        ("uniforms", np.full((1, 5), 0.5), InvalidUniformsError, r"\(1, 4\)"),
        ("uniforms", np.full((1, 4), 0.5, dtype=np.float32), InvalidUniformsError, "float64"),
        ("uniforms", np.array([[0.5, 0.5, 0.5, 1.0]]), InvalidUniformsError, "excludes NaN"),
    ],
)
def test_what_is_refused(name: str, wrong: Any, error: type[Exception], words: str) -> None:
    verify_probs(rule="grid k-Seq", **arguments())
    with pytest.raises(error, match=words):
        verify_probs(rule="grid k-Seq", **{**arguments(), name: wrong})
