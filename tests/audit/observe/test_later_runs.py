"""The audit reports runs that change later runs, but not own draws or harmless caches."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, UNDECIDED, chain, loop, lossless
from otm.audit.instances import INSTANCES
from otm.audit.observe.later_runs import LaterRuns
from otm.audit.runs import Runner
from tests.audit.helpers import drawn

pytestmark = pytest.mark.usefixtures("no_diagnosis")

Decode = Callable[..., Any]


def plain(context_of: Callable[[Any, list[int]], Any]) -> Decode:
    """Make a loop that draws from the target after a context, made of prompt and output."""

    def decode(
        target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **_: Any
    ) -> Any:
        output: list[int] = []
        while len(output) < max_tokens:
            probs = target.probs(context_of(prompt, output))
            output.append(drawn(probs, uniforms(1)[0]))
        return output

    return decode


def grows() -> Decode:
    """Keep the text of all runs, as a cache that nobody clears does."""
    held: list[int] = [0]

    def context(prompt: Any, output: list[int]) -> Any:
        held.extend(output[-1:])
        del held[:-50]
        return tuple(held)

    return plain(context)


def remembers_the_last_text() -> Decode:
    """Begin where the run before has ended."""
    last: dict[str, int] = {"token": 0}

    def context(prompt: Any, output: list[int]) -> Any:
        before = (last["token"], *output)
        if output:
            last["token"] = output[-1]
        return before

    return plain(context)


def every_second_run() -> Decode:
    """Do something else in each second run."""
    number = itertools.count()

    def decode(*models: Any, max_tokens: int, uniforms: Any, **_: Any) -> Any:
        if next(number) % 2:
            return [0] * max_tokens
        return plain(lambda prompt, output: (*prompt, *output))(
            *models, max_tokens=max_tokens, uniforms=uniforms
        )

    return lambda target, draft, prompt, max_tokens, uniforms, **_: decode(
        target, draft, prompt, max_tokens=max_tokens, uniforms=uniforms
    )


PAIRS = [INSTANCES[name] for name in ("rows differ", "two drafts, two tokens")]


@pytest.mark.parametrize("make", [grows, remembers_the_last_text, every_second_run])
def test_what_is_kept_from_run_to_run_is_told(make: Callable[[], Decode]) -> None:
    """Catches a report that says nothing of why the output is wrong, and no end."""
    report = lossless(loop(make()), instances=PAIRS, examples=0, delta=0.2)
    assert report.verdict == NOT_LOSSLESS
    assert report.later_runs is not None
    assert "runs change later runs: the same uniforms and seeds give" in str(report)


def test_runs_that_change_later_ones_are_never_lossless() -> None:
    """Catches "lossless" for runs that are right one by one, but not by their own uniforms.

    Each token is drawn by the uniform of the token before, which may be that of the run before.
    """
    kept: deque[Any] = deque([0.5], maxlen=2)

    def decode(
        target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **_: Any
    ) -> Any:
        def shifted(m: int) -> list[Any]:
            kept.append(uniforms(1)[0])
            return [kept[0]]

        right = plain(lambda prompt, output: (*prompt, *output))
        return right(target, draft, prompt, max_tokens, shifted)

    report = lossless(loop(decode), instances=PAIRS, examples=0, delta=0.2)
    assert report.verdict == UNDECIDED, str(report)
    assert report.later_runs is not None
    assert "let the code clear its state" in str(report)


def test_a_change_after_many_runs_is_seen_by_methods_that_compute() -> None:
    """Catches exact paths that are right at first, of a loop that is not so for long."""
    made = 0

    def changing(after: float) -> Any:
        runs = itertools.count(1)

        def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
            nonlocal made
            made = next(runs)
            return [drawn(target_probs[0], uniforms[0]) if made <= after else 0]

        return verify

    report = lossless(chain(changing(math.inf)), instances=PAIRS[:1], examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, "exact paths")
    last = chain(changing(made - 4))  # right until the runs that are made again in the end
    report = lossless(last, instances=PAIRS[:1], examples=0, delta=0.2)
    assert report.verdict == NOT_LOSSLESS
    assert any("the same uniforms first gave" in why for why in report.why_not_exact)


def own_generator() -> Decode:
    """Draw from a generator that the audit cannot reach: no run is as another one."""
    rng = np.random.default_rng(5)

    def decode(target: Any, draft: Any, prompt: Any, max_tokens: int, **_: Any) -> Any:
        right = plain(lambda prompt, output: (*prompt, *output))
        return right(target, draft, prompt, max_tokens, rng.random)

    return lambda target, draft, prompt, gamma, max_tokens: decode(
        target, draft, prompt, max_tokens
    )


def keeps_rows() -> Decode:
    """Keep the rows that were computed, and draw for itself."""
    rows: dict[Any, Any] = {}
    rng = np.random.default_rng(6)

    def decode(target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int) -> Any:
        output: list[int] = []
        while len(output) < max_tokens:
            key = (id(target), prompt, *output)
            probs = rows.setdefault(key, (target, target.probs((*prompt, *output))))[1]
            output.append(drawn(probs, rng.random()))
        return output

    return decode


@pytest.mark.parametrize("make", [own_generator, keeps_rows])
def test_draws_of_its_own_and_caches_are_no_finding(make: Callable[[], Decode]) -> None:
    """Catches the false alarm on right code whose runs differ, or that keeps what stays right."""
    report = lossless(loop(make()), instances=PAIRS, examples=0, delta=0.2)
    assert (report.verdict, report.method) == (LOSSLESS, "Monte Carlo"), str(report)
    assert report.later_runs is None


def test_a_cache_of_a_right_loop_is_followed_exactly() -> None:
    rows: dict[Any, Any] = {}

    def decode(
        target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **_: Any
    ) -> Any:
        output: list[int] = []
        while len(output) < max_tokens:
            key = (id(target), prompt, *output)
            probs = rows.setdefault(key, (target, target.probs((*prompt, *output))))[1]
            output.append(drawn(probs, uniforms(1)[0]))
        return output

    report = lossless(loop(decode), instances=PAIRS, examples=0)
    assert (report.verdict, report.method, report.later_runs) == (LOSSLESS, "exact paths", None)


def test_false_alarms_of_the_look_stay_within_the_level() -> None:
    """Catches a level that is not shared by the comparisons of a look."""
    rng = np.random.default_rng(8)
    alarms = 0
    for seed in range(60):

        def own(target: Any, draft: Any, prompt: Any, max_tokens: int, **_: Any) -> Any:
            return rng.integers(2, size=max_tokens).tolist()

        adapter = loop(lambda t, d, p, gamma, max_tokens: own(t, d, p, max_tokens))
        looks = LaterRuns(Runner(adapter), PAIRS[0], seed)
        looks.run_series(np.inf)
        looks.run_series(np.inf)
        alarms += looks.changed(0.1) is not None
    assert alarms <= 17  # 6 are expected at most, 17 or more with probability 10^-4
