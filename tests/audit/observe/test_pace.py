"""An audit ends near its time limit in every phase, and lack of time never means lossless.

The clock is not real: each call of a verifier moves it on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, UNDECIDED, Report, chain, chains, loop, lossless
from otm.audit.diagnose import diagnosis
from otm.audit.instances import GROUPS, INSTANCES, left_out
from otm.audit.larger_instances import larger_instances
from otm.audit.observe import methods
from otm.audit.scope import AT_LEAST, FIRST, Pace, TimeIsUpError
from tests.audit.helpers import drawn

SECONDS = 40.0


class Clock:
    """Takes the place of `time.monotonic`; counts the calls that move it on."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, 0

    def __call__(self) -> float:
        return self.now

    def taking(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """Let each call of a function take `seconds`."""

        def slow(*arguments: Any, **options: Any) -> Any:
            self.now, self.calls = self.now + seconds, self.calls + 1
            return function(*arguments, **options)

        slow.__signature__ = __import__("inspect").signature(function)  # type: ignore[attr-defined]
        return slow


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", ())
    return clock


def verified(t: Any, d: Any, xs: Any, coins: Any, last: Any) -> list[int]:
    for i, x in enumerate(xs):
        if coins[i] * d[i][x] >= t[i][x]:
            return [*map(int, xs[:i]), drawn(np.maximum(t[i] - d[i], 0), last)]
    return [*map(int, xs), drawn(t[len(xs)], last)]


def right(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return verified(target_probs, draft_probs, draft_tokens, uniforms, uniforms[-1])


def by_seed(target_probs: Any, draft_probs: Any, draft_tokens: Any, seed: int) -> Any:
    uniforms = np.random.default_rng(seed).random(len(draft_tokens) + 1)
    return verified(target_probs, draft_probs, draft_tokens, uniforms, uniforms[-1])


def no_residual(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    return right(target_probs, draft_probs / 2, draft_tokens, uniforms)


def decode(target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **_: Any) -> Any:
    output: list[int] = []
    while len(output) < max_tokens:
        output.append(drawn(target.probs((*prompt, *output)), uniforms(1)[0]))
    return output


WAYS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "exact paths": (right, chain),
    "breakpoints": (right, lambda f: chain(f, convert=np.asarray)),
    "Monte Carlo": (by_seed, chain),
    "loop": (decode, loop),
    "wrong, exact paths": (no_residual, chain),
    "wrong, breakpoints": (no_residual, lambda f: chain(f, convert=np.asarray)),
}


@pytest.mark.parametrize("seconds", [0.02, 1.0])
@pytest.mark.parametrize("way", WAYS)
def test_an_audit_ends_near_its_time(way: str, seconds: float, clock: Clock) -> None:
    """Catches a part of an audit that does not look at the clock: the search, Monte Carlo, ..."""
    function, kind = WAYS[way]
    report = lossless(kind(clock.taking(function, seconds)), max_seconds=SECONDS, examples=5)
    spare = 3 * SECONDS / 4 + 16 * seconds  # Monte Carlo, larger pairs, mistakes; runs that end
    assert clock.now <= SECONDS + spare
    assert report.lossless is False or seconds < 1
    assert report.verdict == NOT_LOSSLESS or not way.startswith("wrong") or seconds == 1


def test_a_function_that_slows_down_is_left_in_time(clock: Clock) -> None:
    """Catches Monte Carlo without an end, on code whose runs take longer and longer."""
    runs = 0

    def slower(target_probs: Any, draft_probs: Any, draft_tokens: Any, seed: int) -> Any:
        nonlocal runs
        runs += 1
        clock.now += runs * 1e-3
        return by_seed(target_probs, draft_probs, draft_tokens, seed)

    report = lossless(slower, max_seconds=SECONDS)
    assert clock.now < 1.5 * SECONDS
    assert report.verdict == UNDECIDED
    assert report.slower is not None
    assert report.slower > 4
    assert "times as long at the end as at the start" in str(report)


def slow_mistake(clock: Clock, seconds: float) -> Callable[..., Any]:
    def observed(*arguments: Any) -> Any:
        clock.now += seconds
        return kept(*arguments)

    kept = diagnosis._observe_bug
    return observed


def test_known_mistakes_are_looked_for_in_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a comparison without an end, and one that was cut off and says "no known mistake"."""
    from otm.audit.diagnose.known_bugs import KNOWN_BUGS

    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", KNOWN_BUGS)
    monkeypatch.setattr(diagnosis, "_observe_bug", slow_mistake(clock, 1.0))
    few = [INSTANCES["rows differ"]]
    report = lossless(clock.taking(no_residual, 1e-4), instances=few, examples=0)
    assert clock.now < 1.5 * SECONDS
    assert (report.verdict, report.compared) == (NOT_LOSSLESS, False)
    assert "no time was left to search for known mistakes" in str(report)
    assert "no known mistake has" not in str(report)


def off_at(belongs: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    """Make a verifier of a chain that accepts all drafts on some pairs of models."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        if belongs(target_probs, draft_tokens):
            uniforms = np.concatenate([0 * uniforms[:-1], uniforms[-1:]])
        return right(target_probs, draft_probs, draft_tokens, uniforms)

    return verify


HIDDEN: dict[str, Callable[[Any, Any], bool]] = {
    "many tokens": lambda t, xs: t.shape[1] >= 40,
    "four drafts": lambda t, xs: len(xs) >= 4,
    "two drafts": lambda t, xs: len(xs) >= 2,
}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("seconds", [1e-3, 0.1, 0.5, 5.0])
def test_less_time_never_makes_a_verifier_lossless(
    hidden: str, seconds: float, clock: Clock
) -> None:
    """Catches "lossless" where the pairs that show a mistake were left out for time."""
    slow = clock.taking(off_at(HIDDEN[hidden]), seconds)
    report = lossless(chain(slow), examples=0, max_seconds=SECONDS)
    assert report.verdict in {NOT_LOSSLESS, UNDECIDED}, str(report)
    assert report.verdict == NOT_LOSSLESS or seconds > 1e-3


def test_several_chains_left_out_for_time_are_told(clock: Clock) -> None:
    """Catches a verdict on single chains alone for a verifier of several."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        clock.now += 60.0 if len(draft_tokens) > 1 else 0.01
        return [drawn(target_probs[0][0], uniforms[-1])]

    names = ("two tokens", "three tokens", "pairs of three tokens")
    pairs = [INSTANCES[name] for name in names]
    report = lossless(chains(verify), instances=pairs, examples=0)
    assert report.verdict == UNDECIDED
    assert "several chains" in report.left_out
    assert "no time was left for whole kinds of pairs: several" in str(report)


def test_what_was_asked_for_is_not_left_out(clock: Clock) -> None:
    """Catches "lossless" where the pairs of the size that a user gave found no time."""

    def slow(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        clock.now += 60.0 if target_probs.shape[1] == 60 else 1e-5
        return right(target_probs, draft_probs, draft_tokens, uniforms)

    report = lossless(slow, vocabulary=60, examples=0)
    assert report.verdict == UNDECIDED
    assert "pairs of the requested size" in report.left_out


def test_the_first_pairs_are_of_all_kinds() -> None:
    """Catches an order in which a kind comes late, so that slower code is never judged."""
    known = INSTANCES | larger_instances()
    first = [known[name] for name in FIRST]
    assert left_out(first, list(known.values())) == ()
    assert all(any(map(belongs, known.values())) for n, belongs in GROUPS.items() if n[0] != "a")
    assert left_out([], first[:1]) == ()
    assert left_out(first[:1], first) == tuple(n for n in GROUPS if n != "a γ that changes")


def test_a_right_verifier_of_moderate_speed_is_still_lossless(clock: Clock) -> None:
    """Catches a rule so strict that all but the fastest code is undecided."""
    report = lossless(clock.taking(right, 0.02), examples=0)
    assert report.verdict == LOSSLESS, str(report)


def test_parts_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches parts that leave rows out, take too long, or go on when the time is over."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    rows = np.arange(3000.0)[:, None]

    def sizes(seconds: float, deadline: float = math.inf, most: int = 10**6) -> list[int]:
        clock.now = 0.0
        seen: list[float] = []
        sizes: list[int] = []
        for part in Pace(deadline, most).parts(rows, "this takes"):
            clock.now += seconds * len(part)
            sizes.append(len(part))
            seen += part[:, 0].tolist()
        assert seen == rows[:, 0].tolist()
        return sizes

    assert sizes(0.0) == [1, 16, 256, 2727]
    assert sizes(0.0, most=1000) == [1, 16, 256, 1000, 1000, 727]
    assert set(sizes(0.3)) == {1}
    assert max(sizes(0.01)) == 25
    with pytest.raises(TimeIsUpError, match="this takes more than the remaining time"):
        sizes(1.0, deadline=10.0)
    assert clock.now == 11.0


def audited(**options: Any) -> Report:
    return lossless(right, instances=[INSTANCES["rows differ"]], examples=0, **options)


def test_at_least_some_seconds_are_a_share_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches ten seconds on top of an audit of one."""
    seen: list[float] = []

    def method(runner: Any, instances: Any, budget: Any) -> Any:
        seen.append(budget.at_least)
        return kept(runner, instances, budget)

    kept = methods.METHODS["exact paths"]
    monkeypatch.setitem(methods.METHODS, "exact paths", method)
    audited(max_seconds=4)
    audited(max_seconds=400)
    assert seen == [1.0, AT_LEAST]
