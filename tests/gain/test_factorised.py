"""One distribution for several contexts: against a linear program, in fractions, and in a loop."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from otm import SparseProbs
from otm.decoding import NonAutoregressiveDrafter, Randomness, SamplingParameters, stream
from otm.decoding.reading import Path
from otm.errors import InvalidDistributionError, InvalidInputError
from otm.gain import common_draft, factorised_draft
from otm.models import TableModel
from otm.testing.sequences import output_distribution_of, sequence_distribution

F = Fraction


def accepted(draft: Any, rows: Any, weights: Any) -> Any:
    return sum(w * np.minimum(draft, row).sum() for w, row in zip(weights, rows, strict=True))


def best_by_program(rows: Any, weights: Any) -> float:
    """Maximise Σ w s with s ≤ d, s ≤ T and Σ d = 1, over d and s."""
    n, v = rows.shape
    cost = np.concatenate([np.zeros(v), -np.repeat(weights, v)])
    below = np.hstack([-np.tile(np.eye(v), (n, 1)), np.eye(n * v)])
    bounds = [(0, None)] * v + [(0, cap) for cap in rows.ravel()]
    sums = np.concatenate([np.ones(v), np.zeros(n * v)])[None]
    found = linprog(cost, below, np.zeros(n * v), sums, [1], bounds)
    return float(-found.fun)


@pytest.mark.parametrize("seed", range(30))
def test_no_distribution_is_accepted_more(seed: int) -> None:
    """Bug: a level that is not common, equal probabilities counted twice, weights of other rows."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(rng.integers(2, 6), 0.5), rng.integers(1, 7))
    if seed % 3 == 0:
        rows = np.round(rows * 4) / 4 + 0.01  # ties
        rows /= rows.sum(1, keepdims=True)
    weights = rng.dirichlet(np.ones(len(rows)))
    draft = common_draft(rows, weights)
    assert draft.sum() == pytest.approx(1, abs=1e-15)
    assert accepted(draft, rows, weights) == pytest.approx(best_by_program(rows, weights), abs=1e-9)
    mean = weights @ rows
    assert accepted(draft, rows, weights) >= accepted(mean, rows, weights) - 1e-12


def test_fractions_stay_exact() -> None:
    """The example of the theory page: 17/25, where the mean is accepted with 77/125."""
    rows = [[F(9, 10), F(1, 10)], [F(1, 10), F(9, 10)]]
    weights = np.array([F(3, 5), F(2, 5)])
    draft = common_draft(rows, weights)
    assert draft.tolist() == rows[0]
    mean = weights @ np.array(rows)
    assert [accepted(d, np.array(rows), weights) for d in (draft, mean)] == [F(17, 25), F(77, 125)]


def test_rows_of_both_kinds_are_floats_and_weights_may_be_large() -> None:
    """Bug: a result that is half a fraction, sums of weights that overflow."""
    found = common_draft([[F(1, 3), F(2, 3)], [0.2, 0.8]], [1e308, 1e308])
    assert found.dtype == np.float64


def test_one_context_is_drafted_as_it_is() -> None:
    rng = np.random.default_rng(0)
    row = rng.dirichlet(np.ones(50))
    assert common_draft([row]) == pytest.approx(row, abs=1e-15)


def test_later_tokens_are_weighted_by_what_is_accepted() -> None:
    """By enumeration: texts behind a rejected token count less.  Bug: weights of another depth."""
    model = TableModel({(): [F(1, 2), F(1, 2)], (0,): [1, F(0)], (1,): [F(1, 4), F(3, 4)]})
    texts = list(itertools.product(range(2), repeat=3))
    rows = np.array([[model.probs(text[:i]) for i in range(3)] for text in texts])
    chances = [np.prod([rows[n, i, x] for i, x in enumerate(t)]) for n, t in enumerate(texts)]
    copies = [int(64 * chance) for chance in chances]
    drawn = [text for text, count in zip(texts, copies, strict=True) for _ in range(count)]
    found = factorised_draft(np.repeat(rows, copies, axis=0), drawn)
    weights = {(): F(1)}
    for i, draft in enumerate(found):
        paths = list(weights)
        of_paths = np.array([model.probs(path) for path in paths])
        expected = best_by_program(
            of_paths.astype(float), np.array([float(weights[path]) for path in paths])
        )
        value = accepted(draft, of_paths, [weights[path] for path in paths])
        assert float(value) == pytest.approx(expected, abs=1e-9)
        weights = {
            (*path, x): weight * min(draft[x], model.probs(path)[x])
            for path, weight in weights.items() for x in range(2)
        }  # fmt: skip
        assert i < 3


LIKELY = {
    1: ([1 / 4, 3 / 4], [2 / 3, 1 / 3]), 0.5: ([0.1, 0.9], [0.8, 0.2]), 0: ([1.0], [1.0]),
}  # fmt: skip


@pytest.mark.parametrize("temperature", LIKELY)
def test_drafts_drawn_in_any_way_keep_the_law(temperature: float) -> None:
    """Bug: drafts that are sharpened, and judged by the distribution before that."""
    target = TableModel.random(3, 2, np.random.default_rng(2))
    row = [SparseProbs([0, 2], [F(1, 4), F(3, 4)]), SparseProbs([1, 2], [F(2, 3), F(1, 3)])]
    drafter = NonAutoregressiveDrafter(
        lambda contexts, gamma: [row] * len(contexts),
        sampling=SamplingParameters(temperature=temperature),
    )
    [root] = drafter.draft([(0,)], [2], None, [lambda m: np.full(m, 0.5)])
    for node, expected in (
        (root, LIKELY[temperature][0]),
        (root.children[0], LIKELY[temperature][1]),
    ):
        assert node.checked_draft_probs().probabilities.astype(float) == pytest.approx(expected)
        assert node.children[0].token == 2 or node is not root
    if temperature < 1:
        return  # in floats, which paths of comparisons do not take

    def decode(uniforms: Randomness) -> Path:
        steps = stream(target, [(0,)], drafter, gamma=2, max_tokens=3, uniforms=[uniforms])
        return tuple(itertools.chain.from_iterable(step.output for step in steps))

    assert output_distribution_of(decode) == sequence_distribution(target, (0,), 3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: common_draft([0.5, 0.5]), InvalidInputError, r"\(2,\)"),
        (lambda: common_draft([[0.5, 0.4]]), InvalidDistributionError, "row 0"),
        (lambda: common_draft([[0.5, 0.5]], [1, 1]), InvalidInputError, "for 1 contexts"),
        (lambda: common_draft([[0.5, 0.5]], ["a"]), InvalidInputError, "give numbers"),
        (lambda: common_draft([[0.5, 0.5]], [1j]), InvalidInputError, "give numbers"),
        (lambda: common_draft([[0.5, 0.5]], [np.inf]), InvalidInputError, "finite"),
        (lambda: common_draft([[0.5, 0.5]], [0]), InvalidInputError, "all weights are 0"),
        (lambda: factorised_draft([[[1.0, 0.0]]], [[1]]), InvalidInputError, "probability 0"),
        (lambda: factorised_draft([[[1.0, 0.0]]], [[2]]), InvalidInputError, "from 0 to 1"),
        (lambda: factorised_draft([[[1.0, 0.0]]], [0]), InvalidInputError, "of shape"),
    ],
    ids=[
        "flat",
        "sum",
        "weights",
        "text",
        "complex",
        "infinite",
        "zero",
        "other text",
        "token",
        "shape",
    ],
)
def test_bad_input_is_refused(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()
