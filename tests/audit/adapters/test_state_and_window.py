"""Verifiers that keep a state, or must not look at all that they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import Report, lossless, stateful, windowed
from otm.audit.adapters.base import Failure
from otm.audit.instances import INSTANCES
from otm.errors import InvalidParameterError

pytestmark = pytest.mark.usefixtures("no_diagnosis")

FEW = [INSTANCES[name] for name in ("rows differ", "three tokens", "two drafts, two tokens")]


def draw(weights: Any, uniform: Any) -> int:
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, uniform * ends[-1], side="right"))


def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    """Verify a chain."""
    for i, x in enumerate(draft_tokens):
        if uniforms[i] * draft_probs[i][x] >= target_probs[i][x]:
            left = np.maximum(target_probs[i] - draft_probs[i], 0)
            return [*draft_tokens[:i].tolist(), draw(left, uniforms[-1])]
    return [*draft_tokens.tolist(), draw(target_probs[len(draft_tokens)], uniforms[-1])]


class Counts:
    """Counts its steps, which changes nothing."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def reset(self) -> None:
        """Begin a sequence."""
        self.seen = []

    def __call__(
        self, target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any
    ) -> Any:
        self.seen.append(uniforms)
        return verify(target_probs, draft_probs, draft_tokens, uniforms)


class OldCoins(Counts):
    """Accepts by the coins of the first step."""

    def __call__(
        self, target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any
    ) -> Any:
        self.seen.append(uniforms)
        coins = np.append(self.seen[0][:-1], uniforms[-1:])
        return verify(target_probs, draft_probs, draft_tokens, coins)


class Survives(Counts):
    """Begins with 1 if the last sequence did: `reset` forgets to forget."""

    last: Any = (0,)

    def keep(self, output: Any) -> None:
        """Keep it for the next sequence."""
        self.last = tuple(output[:1])

    def __call__(
        self, target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any
    ) -> Any:
        output = super().__call__(target_probs, draft_probs, draft_tokens, uniforms)
        if len(self.seen) == 1 and self.last == (1,):
            output = [1]
        self.keep(output)
        return output


class OfTheClass(Survives):
    """Keeps in its class what it should keep in itself."""

    def keep(self, output: Any) -> None:
        """Keep it for all."""
        OfTheClass.last = tuple(output[:1])


def audit(new: Any) -> Report:
    return lossless(new, kind="stateful", instances=FEW, examples=0)


@pytest.mark.parametrize("new", [Counts, Counts(), lambda: verify], ids=["class", "reset", "new"])
def test_a_state_that_does_no_harm(new: Any) -> None:
    """Bug: steps of one sequence that are not those of another one; drafts after a wrong prompt."""
    report = audit(new)
    assert (report.verdict, report.tv_distance) == ("lossless on everything tried", 0)
    assert (report.method, report.skipped) == ("exact paths", 0)


def test_a_state_that_goes_wrong_in_the_second_step() -> None:
    """Catches what a single step cannot show; each step alone is lossless."""
    assert lossless(stateful(OldCoins, steps=1), instances=FEW, examples=0).lossless
    report = audit(OldCoins)
    assert (report.verdict, report.method) == ("not lossless", "exact paths")
    example = report.counterexample
    assert example is not None
    assert example.drafts is not None
    assert len(example.drafts) == 2
    assert f"drafts: {' | '.join(str(x) for (x,) in example.drafts)}" in str(report)


@pytest.mark.parametrize("new", [Survives(), OfTheClass], ids=["reset", "class"])
def test_a_state_that_survives_its_sequence(new: Any) -> None:
    report = audit(new)
    assert report.verdict == "not lossless"
    assert report.counterexample is not None
    assert isinstance(report.counterexample.output, Failure)
    assert "changes with the previous sequence: (" in report.counterexample.output.text


def test_what_makes_no_verifier() -> None:
    with pytest.raises(InvalidParameterError, match="makes no verifier; give a class"):
        stateful(lambda: 3)
    with pytest.raises(InvalidParameterError, match="must have 3 parameters"):
        stateful(lambda: lambda target_probs: [0])
    with pytest.raises(InvalidParameterError, match="steps"):
        stateful(Counts, steps=0)


def in_window(
    window: int, bonus: int | None = None, coin: Callable[..., Any] = lambda coin, *arrays: coin
) -> Callable[..., Any]:
    """Verify the first drafts only."""

    def verify_window(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        w = min(window, len(draft_tokens))
        target = [*target_probs[:w], target_probs[w if bonus is None else bonus]]
        coins = np.append(
            [coin(u, target_probs, draft_tokens) for u in uniforms[:w]], uniforms[-1:]
        )
        return verify(target, draft_probs, draft_tokens[:w], coins)

    return verify_window


def small_if_draft(coin: Any, target_probs: Any, draft_tokens: Any) -> Any:
    return coin if draft_tokens[-1] or len(draft_tokens) == 1 else coin * 0


def small_if_number(coin: Any, target_probs: Any, draft_tokens: Any) -> Any:
    return coin if target_probs[-1].sum() == 1 else coin * 0


@pytest.mark.parametrize("convert", [None, np.float64])
def test_a_window_that_drops_the_rest(convert: Any) -> None:
    """Bug: drafts of the window itself are replaced, or other drafts become NaN."""
    for window in (1, 2):
        adapter = windowed(in_window(window), window=window, convert=convert and np.asarray)
        report = lossless(adapter, instances=[*FEW, *adapter.more], examples=0)
        assert report.verdict == "lossless on everything tried"
        assert report.method == ("exact paths" if convert is None else "breakpoints")


WRONG = {
    "the last row as the bonus": in_window(1, bonus=-1),
    "the last draft": in_window(1, coin=small_if_draft),
    "the last row": in_window(1, coin=small_if_number),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_window_that_reads_what_it_drops(name: str) -> None:
    report = lossless(windowed(WRONG[name], window=1), instances=FEW, examples=0)
    assert report.verdict == "not lossless"
    example = report.counterexample
    assert example is not None
    assert example.instance.gamma == 2
    assert example.drafts is not None
    assert isinstance(example.output, Failure)
    assert "it reads data that it must ignore: (" in example.output.text
    assert "from draft 2 on" in example.output.text


def test_a_verifier_that_stops() -> None:
    """Catches one that looks ahead where it stops; γ = 1 cannot show it."""
    report = lossless(verify, kind="windowed", instances=FEW, examples=0)
    assert (report.verdict, report.tv_distance) == ("lossless on everything tried", 0)

    def looks_ahead(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        if draft_tokens[-1] == 1 and len(draft_tokens) > 1:
            uniforms = uniforms[[1, 0, 2, 3]]
        return verify(target_probs, draft_probs, draft_tokens, uniforms)

    report = lossless(looks_ahead, kind="windowed", instances=FEW, examples=0)
    assert "it reads data that it must ignore: (" in str(report)
    assert lossless(looks_ahead, instances=FEW, examples=0).lossless  # as the drafts are honest


def test_a_window_without_uniforms() -> None:
    """Bug: what cannot be run again is not audited at all."""

    def own(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        return in_window(1)(
            target_probs, draft_probs, draft_tokens, np.random.default_rng().random(3)
        )

    assert lossless(windowed(own, window=1), instances=FEW, examples=0).lossless

    def last_row(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        return WRONG["the last row as the bonus"](
            target_probs, draft_probs, draft_tokens, np.random.default_rng().random(3)
        )

    assert not lossless(windowed(last_row, window=1), instances=FEW, examples=0).lossless
