"""The line that says how far a computation is."""

from __future__ import annotations

import io
import sys
import time

import pytest

from otm._core.display import progress
from otm.audit import lossless


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def accept_all(
    target_probs: list[float], draft_probs: list[float], draft_tokens: list[int]
) -> list[int]:
    return [*draft_tokens, 0]


def until(terminal: Terminal, text: str) -> None:
    """Wait until the timer shows the line; give up after a while."""
    for _ in range(2000):
        if text in terminal.getvalue():
            return
        time.sleep(0.005)
    raise AssertionError(f"{text!r} does not come")


def test_a_line_on_a_terminal_is_shown_late_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: nothing shows while the first item takes long, or the line stays behind."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "AFTER", 0.0)
    with progress.watching(None, "exact paths") as watch:
        for _ in watch.over(["long"], "pair of models", 1200):
            until(terminal, "exact paths: pair of models 1 of 1,200")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_line_says_how_long_the_rest_takes_and_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: blocks that were finished before count as fast ones; a result behind half a line."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "BETWEEN", 0.0)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress.watching(None, "report") as watch:
        watch.tell("finished blocks", 10, 40)  # by an earlier run
        now[0] += 30.0
        watch.tell("finished blocks", 15, 40)  # 6 s a block
        assert terminal.getvalue().endswith("report: finished blocks 15 of 40, about 3 min")
        watch.hide()
        assert terminal.getvalue().endswith("\r\x1b[K")
        watch.tell("something else", 1, 3)  # from here on nothing is known
        assert terminal.getvalue().endswith("something else 1 of 3")


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO(), None])
def test_what_is_quick_or_in_a_pipe_says_nothing(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    if not isinstance(stream, Terminal):
        monkeypatch.setattr(progress, "AFTER", -1.0)
    with progress.watching(None, "a phase") as watch:
        assert list(watch.over("abc", "letter")) == ["a", "b", "c"]
    assert stream is None or not stream.getvalue()


def test_the_audit_tells_its_method_and_which_pair_of_how_many() -> None:
    told: list[tuple[str, int, int]] = []
    lossless(accept_all, examples=0, progress=lambda *line: told.append(line))
    phases = {what for what, _, _ in told}
    assert phases == {"exact paths: pair of models"}
    total = told[0][2]
    assert [number for _, number, _ in told] == [*range(1, total + 1)]
    told.clear()
    lossless(accept_all, examples=3, progress=lambda *line: told.append(line))
    assert "exact paths: search, pair of models" in {what for what, _, _ in told}
    told.clear()
    lossless(
        accept_all, method="Monte Carlo", max_runs=100, progress=lambda *line: told.append(line)
    )
    assert told[-1][0] == "Monte Carlo: pair of models"
    assert told[-1][1] == told[-1][2]
