"""Accepted drafts along texts of the target: unbiased, with the gradient of the exact mean."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import otm  # noqa: E402
from otm.errors import (  # noqa: E402
    InvalidDistributionError,
    InvalidInputError,
    InvalidParameterError,
    UnknownMethodError,
)
from otm.gain import accepted_along_text  # noqa: E402
from otm.models import TableModel  # noqa: E402

V = 3
PROBS, TEXT = torch.full((4, 2), 0.5), torch.tensor([0, 1, 0, 1])


def logits_of_contexts(seed: int, depth: int) -> dict[tuple[int, ...], Any]:
    """Draw logits after each path of fewer than `depth` tokens."""
    rng = np.random.default_rng(seed)
    paths = [path for i in range(depth) for path in itertools.product(range(V), repeat=i)]
    return {path: torch.tensor(rng.normal(size=V)).requires_grad_() for path in paths}


def mean_over_texts(draft: Any, target: Any, gamma: int, depth: int, rule: str) -> Any:
    """Mean, with the target's probabilities, of the estimate at the first position."""
    total = 0
    for text in itertools.product(range(V), repeat=depth):
        rows = [torch.stack([laws[text[:i]] for i in range(depth)]) for laws in (draft, target)]
        weight = math.prod(rows[1][i, token].item() for i, token in enumerate(text))
        values = accepted_along_text(*rows, torch.tensor(text), gamma, rule=rule)
        assert values.shape == (depth - gamma + 1,)
        total = total + weight * values[0]
    return total


def over_paths(draft: Any, target: Any, gamma: int, rule: str) -> Any:
    """Sum the accepted masses of all paths of drafts, from the definition of each rule."""
    total = 0
    for path in itertools.product(range(V), repeat=gamma):
        drawn = kept = torch.ones((), dtype=torch.float64)
        for i, token in enumerate(path):
            p, q = draft[path[:i]][token], target[path[:i]][token]
            later = V ** (gamma - i - 1)  # the outer loop repeats each prefix this often
            drawn = drawn * p
            # block verification keeps S(yz) = min(S(y) T(z|y), D(yz))
            kept = kept * p.minimum(q) if rule == "chain" else drawn.minimum(kept * q)
            total = total + kept / later
    return total


@pytest.mark.parametrize("rule", ["chain", "block"])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_mean_and_gradient_are_those_of_the_exact_sum(rule: str, gamma: int) -> None:
    """Bug: a path counted from its second token, u without the start 1, a detached factor."""
    scores = logits_of_contexts(gamma, 3)
    target = {
        path: torch.softmax(row.detach(), -1) for path, row in logits_of_contexts(9, 3).items()
    }
    found = []
    for mean in (
        lambda draft: mean_over_texts(draft, target, gamma, 3, rule),
        lambda draft: over_paths(draft, target, gamma, rule),
    ):
        value = mean({path: row.softmax(-1) for path, row in scores.items()})
        reached = [row for path, row in scores.items() if len(path) < gamma]
        found.append([value, *torch.autograd.grad(value, reached)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_the_block_mean_is_the_optimum_of_one_chain() -> None:
    """Bug: block verification replaced by something that accepts less; an independent program."""
    p, q = [Fraction(2, 3), Fraction(1, 3)], [Fraction(1, 3), Fraction(2, 3)]
    models = [TableModel({(): row}) for row in (p, q)]
    best = otm.solve_block(*models, k=1, length=2).accepted
    rows = [torch.tensor([[float(x) for x in row]] * 2, dtype=torch.float64) for row in (p, q)]
    mean = sum(
        float(q[a] * q[b]) * accepted_along_text(*rows, torch.tensor([a, b]), 2).item()
        for a, b in itertools.product(range(2), repeat=2)
    )
    assert mean == pytest.approx(float(best), rel=1e-14)


def test_a_text_of_another_law_is_told_apart() -> None:
    """Negative control: the same mean over texts of the draft is not the expected number."""
    p, q = (
        torch.tensor([row] * 2, dtype=torch.float64) for row in ([2 / 3, 1 / 3], [1 / 3, 2 / 3])
    )
    texts = list(itertools.product(range(2), repeat=2))
    values = [accepted_along_text(p, q, torch.tensor(text), 2).item() for text in texts]
    of_draft = sum(float(p[0, a] * p[1, b]) * v for (a, b), v in zip(texts, values, strict=True))
    assert abs(of_draft - 11 / 9) > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_ratios_and_zeros_give_finite_values_and_gradients(dtype: Any) -> None:
    """Bug: products of ratios that overflow, and infinity times zero in the gradient."""
    q = torch.tensor([[1e-30, 1 - 1e-30, 0.0]] * 6, dtype=dtype)
    p = torch.tensor([[1.0, 0.0, 0.0]] * 6, dtype=dtype).requires_grad_()
    for rule, text in itertools.product(("chain", "block"), ([0] * 6, [1] * 6, [0, 1] * 3)):
        values = accepted_along_text(p, q, torch.tensor(text), 5, rule=rule)
        (slopes,) = torch.autograd.grad(values.sum(), p)
        assert values.isfinite().all()
        assert slopes.isfinite().all()
        assert ((values >= 0) & (values <= 5)).all()


def test_far_ratios_in_a_row_are_not_cut_off() -> None:
    """Bug: a product of ratios that is kept below a bound, and falls again from there."""
    rows = torch.tensor([[1, 1e-12]] * 6), torch.tensor([[1e-12, 1]] * 6)
    text = torch.tensor([0, 0, 0, 1, 1, 1])
    single, double = (
        accepted_along_text(*(row.to(dtype).softmax(-1) for row in map(torch.log, rows)), text, 6)
        for dtype in (torch.float32, torch.float64)
    )
    assert single.item() == pytest.approx(double.item(), rel=1e-4)


def test_half_precision() -> None:
    """Bug: ratios of half precision, which are beyond it, or gradients that overflow in silence."""
    draw = torch.Generator().manual_seed(0)
    p, q = torch.randn(2, 9, 7, generator=draw).softmax(-1)
    text = torch.arange(9) % 7
    found = accepted_along_text(p.bfloat16(), q.bfloat16(), text, 4)
    torch.testing.assert_close(found, accepted_along_text(p, q, text, 4), rtol=0.05, atol=0.05)
    with pytest.raises(InvalidInputError, match="float16, in which gradients overflow"):
        accepted_along_text(p.half(), q.half(), text, 4)


def test_logits_in_place_of_probabilities_are_refused() -> None:
    """Bug: a loss of nonsense."""
    for wrong in (torch.randn(4, 2), torch.tensor([[1.5, -0.5]] * 4), PROBS * float("nan")):
        with pytest.raises(InvalidDistributionError, match="give probabilities"):
            accepted_along_text(wrong, PROBS, TEXT, 2)


def test_equal_models_accept_all_of_any_batch() -> None:
    """Bug: leading axes mixed up, or positions whose drafts do not all lie in the text."""
    q = torch.softmax(torch.randn(2, 4, 7, 5, generator=torch.Generator().manual_seed(0)), -1)
    tokens = torch.randint(5, (2, 4, 7), generator=torch.Generator().manual_seed(1))
    for rule in ("chain", "block"):
        values = accepted_along_text(q, q, tokens, 3, rule=rule)
        torch.testing.assert_close(values, torch.full((2, 4, 5), 3.0))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((PROBS.numpy(), PROBS, TEXT, 2), InvalidInputError, "draft_probs is a ndarray"),
        ((PROBS, PROBS.double(), TEXT, 2), InvalidInputError, "target_probs has torch.float64"),
        ((PROBS, PROBS[:3], TEXT, 2), InvalidInputError, r"probabilities \(4, 2\) and \(3, 2\)"),
        ((PROBS, PROBS, TEXT[:3], 2), InvalidInputError, r"for tokens \(3,\)"),
        ((PROBS, PROBS, TEXT.int(), 2), InvalidInputError, "give int64"),
        ((PROBS, PROBS, TEXT, 5), InvalidParameterError, "gamma = 5; it must be an integer from 1"),
        ((PROBS, PROBS, TEXT + 1, 2), InvalidInputError, "not from 0 to 1"),
        ((PROBS, torch.tensor([[1.0, 0.0]] * 4), TEXT, 2), InvalidDistributionError, "text prob"),
    ],
    ids=["array", "type", "rows", "length", "int32", "gamma", "vocabulary", "zero"],
)
def test_what_is_no_text_of_the_target_is_refused(arguments: Any, error: Any, words: str) -> None:
    """Bug: an error of torch in the middle, or a number for what has none."""
    with pytest.raises(error, match=words):
        accepted_along_text(*arguments)


def test_an_unknown_rule_is_named() -> None:
    """Bug: any other word taken for one of the rules."""
    with pytest.raises(UnknownMethodError, match="chain, block"):
        accepted_along_text(PROBS, PROBS, TEXT, 2, rule="traversal")
