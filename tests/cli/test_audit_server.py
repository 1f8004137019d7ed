"""The command that audits a server: its options, and its progress in a pipe."""

from __future__ import annotations

from typing import Any

import pytest

from otm.audit import RequestParameters
from otm.cli import audit_server as command
from otm.cli import main


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
    return now


def test_long_audits_tell_a_pipe_how_far_they_are(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Bugs: silence for an hour in a log; a line for every request; control characters."""
    progress = command.PipedProgress()
    for number in range(10, 101):
        clock[0] += 1.0
        progress("server: request", number, 2000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "server: request 39 of 2,000, at most 33 min more",
        "server: request 69 of 2,000, at most 32 min more",
        "server: request 99 of 2,000, at most 32 min more",
    ]


def test_short_audits_tell_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    progress = command.PipedProgress()
    for number in range(20):
        clock[0] += 1.0
        progress("server: request", number, 20)
    assert capsys.readouterr().err == ""


def test_parameters_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: an option that does not reach the audit."""
    pytest.importorskip("httpx2")
    given: dict[str, Any] = {}

    def audit(url: str, **options: Any) -> Any:
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("otm.audit.audit_server", audit)
    options = ["--leave-out", "temperature", "--leave-out", "top_p", "--top-p", "0.8"]
    assert main(["audit", "server", "http://m", *options]) == 130
    assert given["leave_out"] == ["temperature", "top_p"]
    assert [parameters.top_p for parameters in given["sampling"]] == [0.8]
    assert given["progress"] is not None


def test_request_parameters_reach_the_audit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bugs: an option that does not reach the audit; a bias that cannot be read, and a trace."""
    pytest.importorskip("httpx2")
    given: dict[str, Any] = {}

    def audit(url: str, **options: Any) -> Any:
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("otm.audit.audit_server", audit)
    options = {
        "--frequency-penalty": "0.5",
        "--presence-penalty": "-0.5",
        "--repetition-penalty": "1.1",
        "--min-p": "0.1",
        "--logit-bias": "13=-2.5",
        "--min-tokens": "2",
        "--end-token": "7",
    }
    words = [word for pair in options.items() for word in pair]
    assert main(["audit", "server", "http://m", *words]) == 130
    expected = RequestParameters(0.5, -0.5, 1.1, {13: -2.5}, min_tokens=2, end_tokens=7)
    assert given["request"] == expected
    assert [parameters.min_p for parameters in given["sampling"]] == [0.1]
    stops = ["--stop", "a", "--stop", "b", "--leave-out", "all", "--generation-config", "x"]
    assert main(["audit", "server", "http://m", *stops]) == 130
    assert given["request"].stop == ("a", "b")
    assert str(given["generation_config"]) == "x"
    capsys.readouterr()
    assert main(["audit", "server", "http://m", "--logit-bias", "13"]) == 2
    assert "TOKEN=VALUE" in capsys.readouterr().err
    twice = ["--logit-bias", "3=1", "--logit-bias", "3=2"]
    assert main(["audit", "server", "http://m", *twice]) == 2
    assert "token 3 twice" in capsys.readouterr().err
