"""``otm decode`` is the demo of `otm.decoding`, with JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otm.cli import main
from otm.decoding.__main__ import main as demo

SMALL = ["--target", "ngram-3", "--draft", "ngram-2", "--max-tokens", "8", "--gamma", "3",
         "--k", "1", "2", "--rule", "k-Seq"]  # fmt: skip


def test_it_prints_the_traces_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(SMALL) == 0
    expected = capsys.readouterr().out
    assert main(["decode", *SMALL]) == 0
    found = capsys.readouterr().out
    table = expected.index("per run")  # from there on there are times
    assert found[:table] == expected[:table]


def test_json_has_the_same_ways_and_what_they_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", *SMALL, "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(out)
    ways = {way["way"]: way for way in found["ways"]}
    assert list(ways) == [
        "autoregressive",
        "speculative, chain",
        "speculative, block",
        "SpecTr, k-Seq, K = 1",
        "SpecTr, k-Seq, K = 2",
    ]
    assert ways["autoregressive"]["target_runs"] == 8
    assert all(len(way["text"]) == way["tokens"] == 8 for way in ways.values())
    assert main(["decode", *SMALL]) == 0
    rate = ways["speculative, chain"]["acceptance_rate"]
    assert f"{rate:.2f}" in capsys.readouterr().out


def test_json_says_nothing_else_without_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: the remark that torch is missing in front of the JSON."""
    monkeypatch.setattr("otm.decoding.__main__.is_installed", lambda name: None)
    options = ["--max-tokens", "2", "--k", "1", "--rule", "k-Seq", "--json"]
    assert main(["decode", *options]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "ngram-5"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gamma", "x"], "argument --gamma: invalid int value: 'x'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--prompt", ""], "prompt 0 is empty"),
        (["--target", "nonsense"], "there is no model 'nonsense'"),
        (["--target", ""], "there is no model ''"),
        (["--draft", ""], "there is no model ''"),
        (["--gamma", "-1", "--json"], "γ = -1"),
        (["--k", "1", "100000000"], "at most 65,536"),
        (["--rule", "k-Seq", "ünï"], "there is no rule 'ünï'"),
        (["--temperature", "nan"], "temperature = nan"),
        (["--seed", "-1", "--json"], "seed = -1"),
        (["--max-tokens", "0", "--json"], "max_tokens = 0"),
        (["--prompt", "", "--json"], "prompt 0 is empty"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", *SMALL, *options]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1


def test_json_too_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: the last of several K is looked at when all others have decoded the whole text."""
    most: list[int] = []

    def autoregressive(*arguments: Any, max_tokens: int, **options: Any) -> None:
        most.append(max_tokens)

    monkeypatch.setattr("otm.decoding.__main__.autoregressive", autoregressive)
    for options in ([], ["--json"]):
        assert main(["decode", *SMALL, "--k", "1", "0", *options]) == 2
        assert "k = 0" in capsys.readouterr().err
    assert max(most) <= 2
