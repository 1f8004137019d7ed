"""Verifiers that take many uniforms get a report, by the next method if need be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Adapter, chain, chains, loop, lossless, tree
from otm.audit.adapters.base import OutOfUniformsError
from otm.audit.instances import INSTANCES
from otm.audit.runs import MOST_UNIFORMS, add_uniforms
from otm.errors import InvalidParameterError
from tests.audit.helpers import drawn

pytestmark = pytest.mark.usefixtures("no_diagnosis")


def blocks(size: int, *, floats: bool = False, wrong: bool = False) -> Any:
    """Make a loop that draws a block of uniforms for each token and uses one of them."""

    def decode(
        target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **others: Any
    ) -> Any:
        output: list[int] = []
        for _ in range(max_tokens):
            block = uniforms(size)
            probs = target.probs((*prompt, *output[: 1 if wrong else None]))
            output.append(drawn(probs.astype(float) if floats else probs, block[-1]))
        return output

    return decode


PAIRS = [INSTANCES[name] for name in ("rows differ", "two drafts, two tokens")]


@pytest.mark.parametrize("size", [40, 100])
@pytest.mark.parametrize("wrong", [False, True])
def test_large_blocks_are_followed_exactly(size: int, wrong: bool) -> None:
    """Catches `ProblemTooLargeError` in place of a report."""
    report = lossless(loop(blocks(size, wrong=wrong)), instances=PAIRS, examples=0)
    assert report.method == "exact paths"
    assert report.verdict == (NOT_LOSSLESS if wrong else LOSSLESS)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_next_method_takes_over_and_it_is_said(wrong: bool) -> None:
    """Catches the same by breakpoints and Monte Carlo, on blocks that are too large for paths."""
    decode = blocks(300, wrong=wrong)
    report = lossless(loop(decode), instances=PAIRS, examples=0, delta=0.3, max_runs=2_000)
    assert report.verdict == (NOT_LOSSLESS if wrong else LOSSLESS), str(report)
    assert report.method == "Monte Carlo"
    assert "uniforms, but only" in report.why_not_exact[0]


def test_floats_are_followed_by_breakpoints() -> None:
    """Catches Monte Carlo for a loop that takes few uniforms of each block."""
    floats = lossless(loop(blocks(40, floats=True)), instances=PAIRS[:1], examples=0)
    assert (floats.verdict, floats.method) == (LOSSLESS, "breakpoints")


def of_chains(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return [drawn(target_probs[0][0], uniforms[-1])]


def of_tree(target_probs: Any, draft_probs: Any, tokens: Any, parents: Any, uniforms: Any) -> Any:
    return [drawn(target_probs[0], uniforms[-1])]


def of_chain(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return [drawn(target_probs[0], uniforms[-1])]


@pytest.mark.parametrize(
    "adapter",
    [
        chain(of_chain, uniforms=lambda drafts: 200),
        chains(of_chains, uniforms=lambda drafts: 200),
        tree(of_tree, uniforms=lambda drafts: 200),
        chain(of_chain, uniforms=lambda drafts: 200, convert=np.asarray),
    ],
    ids=["chain", "chains", "tree", "floats"],
)
def test_verifiers_of_steps_may_take_many_too(adapter: Adapter) -> None:
    report = lossless(adapter, instances=PAIRS[:1], examples=0)
    assert report.verdict == LOSSLESS


def test_what_takes_uniforms_without_end_is_an_error_of_ours() -> None:
    """Catches a run that never returns, or a bare traceback."""

    def never(target: Any, draft: Any, prompt: Any, uniforms: Any, **others: Any) -> Any:
        while uniforms(1)[0] < 2:
            pass

    with pytest.raises(InvalidParameterError, match="only 4,096 are available"):
        lossless(loop(never), instances=PAIRS, examples=0)


def test_rows_are_lengthened_not_drawn_again() -> None:
    """Catches runs that are replaced since they were long, which would select for short ones."""
    rng = np.random.default_rng(0)
    rows = rng.random((3, 64))
    more = add_uniforms(rows, OutOfUniformsError(65, 64), rng)
    assert (more[:, :64] == rows).all()
    assert more.shape == (3, 128)
    assert add_uniforms(rows, OutOfUniformsError(3000, 64), rng).shape == (3, 3000)
    full = rng.random((1, MOST_UNIFORMS))
    with pytest.raises(OutOfUniformsError):
        add_uniforms(full, OutOfUniformsError(MOST_UNIFORMS + 1, MOST_UNIFORMS), rng)
