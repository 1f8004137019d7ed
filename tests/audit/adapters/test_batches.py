"""A batch is correct if each row is correct for all values of the other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import Adapter, batch, lossless
from otm.audit.adapters.base import Failure
from otm.audit.instances import INSTANCES
from otm.kernels import verify_probs

pytestmark = pytest.mark.usefixtures("no_diagnosis")

FEW = [INSTANCES[name] for name in ("rows differ", "three tokens", "two drafts, two tokens")]


def draw(weights: Any, uniform: Any) -> int:
    ends = np.cumsum(weights)
    return min(int(np.searchsorted(ends, uniform * ends[-1], side="right")), len(ends) - 1)


def of_rows(
    coins_of: Callable[[int, int], int] = lambda b, size: b,
    bonus_of: Callable[[int, int], int] = lambda b, size: b,
    bonus_at: Callable[[int, int], int] = lambda length, width: length,
    read: Callable[[int, int], int] = lambda length, width: length,
    all_stop: bool = False,
) -> Callable[..., Any]:
    """Verify row by row, with an index that may be wrong."""

    def verify(
        target_probs: Any, draft_probs: Any, draft_tokens: Any, lengths: Any, uniforms: Any
    ) -> Any:
        size, width = draft_tokens.shape
        outputs, shortest = [], width
        for b in range(size):
            length, row = int(lengths[b]), uniforms[coins_of(b, size)]
            for i in range(read(length, width)):
                x, draft, target = draft_tokens[b, i], draft_probs[b, i], target_probs[b, i]
                if row[min(i, len(row) - 1)] * draft[x] >= target[x]:
                    shortest = min(shortest, i)
                    weights = np.maximum(target - draft, 0)
                    break
            else:
                i, weights = length, target_probs[bonus_of(b, size), bonus_at(length, width)]
            if all_stop and i > shortest:
                i, weights = shortest, target_probs[b, shortest]
            outputs.append([*draft_tokens[b, :i].tolist(), draw(weights, row[-1])])
        return outputs

    return verify


def of_one_length(verify: Callable[..., Any]) -> Callable[..., Any]:
    """Verify a batch of rows that are all as long as the widest."""

    def even(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        size, width = draft_tokens.shape
        return verify(target_probs, draft_probs, draft_tokens, [width] * size, uniforms)

    return even


WRONG = {
    "the uniforms of row 0": of_rows(coins_of=lambda b, size: 0),
    "the uniforms of the next row": of_rows(coins_of=lambda b, size: (b + 1) % size),
    "the bonus row of the last row": of_rows(bonus_of=lambda b, size: size - 1),
    "all rows stop where one is rejected": of_rows(all_stop=True),
}

WRONG_IF_RAGGED = {
    "the bonus row of the longest": of_rows(bonus_at=lambda length, width: width),
    "drafts behind the end of the row": of_rows(read=lambda length, width: width),
}


def finding(adapter: Adapter, **options: Any) -> str:
    report = lossless(adapter, instances=FEW, examples=0, **options)
    assert report.verdict == "not lossless"
    assert report.counterexample is not None
    assert report.counterexample.drafts is not None
    output = report.counterexample.output
    assert isinstance(output, Failure)
    assert f"    {output.text} (probability" in str(report)
    return output.text


@pytest.mark.parametrize("verify", [of_rows(), of_one_length(of_rows())])
def test_a_right_batch_is_lossless(verify: Any) -> None:
    """Bug: neighbours that make a right verifier fail, or a row that is not where it was put."""
    report = lossless(verify, kind="batch", instances=FEW, examples=0)
    assert (report.verdict, report.tv_distance) == ("lossless on everything tried", 0)
    assert report.method == "exact paths"


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_read_their_neighbours(name: str) -> None:
    for verify in (WRONG[name], of_one_length(WRONG[name])):
        assert "changes with the other rows of the batch: (" in finding(batch(verify))


@pytest.mark.parametrize("name", WRONG_IF_RAGGED)
def test_rows_that_read_their_padding(name: str) -> None:
    """Catches what only rows of other lengths show."""
    verify = WRONG_IF_RAGGED[name]
    assert lossless(batch(of_one_length(verify)), instances=FEW, examples=0).lossless
    assert "changes with the other rows of the batch" in finding(batch(verify))


def test_a_wrong_row_that_is_alone_is_wrong() -> None:
    """Bug: the distribution of the row itself is forgotten."""
    verify = of_rows(bonus_at=lambda length, width: 0)
    report = lossless(batch(verify), instances=FEW, examples=0)
    assert report.tv_distance > 0
    assert report.counterexample is not None
    assert isinstance(report.counterexample.output, tuple)


def kernel(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    """Verify tensors, and return (tokens [B, n], accepted [B])."""
    tokens, accepted, *_ = verify_probs(
        target_probs, draft_probs, draft_tokens, uniforms, backend="torch"
    )
    return tokens, accepted


def mixed_up(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return kernel(target_probs, draft_probs, draft_tokens, uniforms.roll(1, 0))


def test_tensors() -> None:
    """Bug: many runs in one batch are mixed up, or what rows do to each other is missed."""
    import torch

    few: Any = {"instances": FEW[:1], "examples": 0}
    report = lossless(batch(kernel, convert=torch.as_tensor), **few)
    assert (report.verdict, report.method) == ("lossless on everything tried", "breakpoints")
    report = lossless(batch(mixed_up, convert=torch.as_tensor), **few)
    assert "changes with the other rows of the batch" in str(report)


def by_rng(target_probs: Any, draft_probs: Any, draft_tokens: Any, rng: Any) -> Any:
    uniforms = rng.random((len(draft_tokens), draft_tokens.shape[1] + 2))
    return of_one_length(of_rows())(target_probs, draft_probs, draft_tokens, uniforms)


def by_one_coin(target_probs: Any, draft_probs: Any, draft_tokens: Any, rng: Any) -> Any:
    bonus = target_probs[::-1] if len(target_probs) == 2 else target_probs
    return by_rng(bonus, draft_probs, draft_tokens, rng)


def test_code_that_draws_for_itself() -> None:
    """Bug: rows in place of others where outputs cannot be compared at the same uniforms."""
    few: Any = {"instances": FEW[:2], "delta": 0.05}
    report = lossless(batch(by_rng), **few)
    assert (report.verdict, report.method) == ("lossless on everything tried", "exact paths")

    def own(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        uniforms = [np.random.default_rng().random(draft_tokens.shape[1] + 2) for _ in draft_tokens]
        return of_one_length(of_rows())(target_probs, draft_probs, draft_tokens, uniforms)

    report = lossless(batch(own), instances=FEW[:1], examples=0)
    assert (report.verdict, report.method) == ("lossless on everything tried", "exact paths")

    def next_row(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        return own(np.roll(target_probs, 1, axis=0), draft_probs, draft_tokens)

    assert not lossless(batch(next_row), instances=FEW[:1], examples=0).lossless


def test_a_batch_of_too_few_rows_is_a_finding() -> None:
    def first(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        return of_one_length(of_rows())(target_probs, draft_probs, draft_tokens, uniforms)[:1]

    report = lossless(batch(first), instances=FEW, examples=0)
    assert "returned 1 rows for a batch of 3" in str(report)
