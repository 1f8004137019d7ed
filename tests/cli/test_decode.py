"""``otm decode``, on n-gram models: traces and a table, or JSON; no weights, no torch."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otm.cli import main
from otm.cli.decode import statistics
from otm.cli.demo import Loaded, print_steps
from otm.cli.output import wants_colour
from otm.decoding import Generation, Seconds, Step, tree_rules
from otm.errors import InvalidInputError
from otm.models import load, save_huggingface
from otm.models.ngram import NGramModel

SMALL = ["--target", "ngram-3", "--draft", "ngram-2", "--max-tokens", "12", "--gamma", "3"]
ONE_RULE = [*SMALL, "--k", "1", "--k", "2", "--rule", "k-Seq"]


def decode(*options: str) -> int:
    return main(["decode", *options])


def test_the_demo_prints_traces_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode(*SMALL, "--k", "1", "--k", "2", "--rule", "k-Seq", "--rule", "traversal") == 0
    out, err = capsys.readouterr()
    assert not err
    assert "\x1b" not in out
    assert "text so far|accepted drafts[rejected drafts]+token of the target+" in out
    for name in ("speculative, chain", "SpecTr, k-Seq, K = 2, the first 6 steps"):
        assert re.search(rf"^{name}\n\n   0 And it came to pass\|", out, re.MULTILINE)
    assert out.split(maxsplit=1)[0] in ("Plain", "Fastest,", "Fastest:")
    table = out[out.index("tokens/call") :].splitlines()[2:]
    assert [line.split("  ")[0] for line in table[:8]] == [
        "autoregressive",
        "speculative, chain",
        "speculative, block",
        "speculative, greedy block",
        "SpecTr, k-Seq, K = 1",
        "SpecTr, k-Seq, K = 2",
        "SpecTr, traversal, K = 1",
        "SpecTr, traversal, K = 2",
    ]


def test_without_saved_calls_no_method_is_called_faster(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: "Fastest: …, 1.23 times plain speed" although no draft was accepted."""
    assert decode("--target", "ngram-3", "--draft", "ngram-2", "--max-tokens", "1") == 0
    assert capsys.readouterr().out.startswith("No method saved target calls; differences")


def test_the_same_seed_prints_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("3", "3", "4"):
        decode(*SMALL, "--k", "2", "--rule", "optimal", "--seed", seed, "--colour")
        out = capsys.readouterr().out
        texts.append(out[out.index("text so far") :])
    assert texts[0] == texts[1] != texts[2]
    assert "\x1b[32m" in texts[0]


def test_more_tokens_than_a_model_takes_are_refused_before_the_heading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(NGramModel, "context_length", 512)
    assert decode(*SMALL, "--max-tokens", "600") == 2
    out, err = capsys.readouterr()
    assert not out
    assert "whose limit is 512 tokens" in err


def test_every_rule_that_the_help_lists_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Fails if the help lists rules for drafts that no model draws."""
    assert decode("--help") == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert f"Rule for SpecTr, one of {', '.join(tree_rules())};" in listed
    assert "SpecHub" not in tree_rules()


def test_sampling_is_that_of_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: chat settings that cannot be tried, and a folder that a shipped name hides unseen."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ngram-2").mkdir()
    (tmp_path / "generation_config.json").write_text('{"do_sample": true, "top_p": 0.5}')
    few = ("--target", "ngram-2", "--max-tokens", "2", "--k", "1", "--rule", "k-Seq")
    assert decode(*few, "--draft", "ngram-1", "--generation-config", ".") == 0
    out, err = capsys.readouterr()
    assert "top-p 0.5" in out
    assert "ngram-2 is the model shipped with OTM, not the folder ./ngram-2" in err


def test_without_torch_it_says_so_and_takes_ngrams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("otm.cli.decode.is_installed", lambda name: None)
    assert decode("--max-tokens", "2", "--k", "1", "--rule", "k-Seq") == 0
    out, err = capsys.readouterr()
    assert err.startswith("torch is not installed")
    assert "\ntarget: ngram-5, draft: ngram-3," in out


@pytest.mark.skipif(os.name == "nt", reason="arguments are not bytes there")
def test_a_pipe_without_greek_letters_and_a_prompt_of_any_bytes() -> None:
    """Fails if an encoding ends in a traceback."""
    command = [sys.executable, "-m", "otm", "decode", *SMALL, "--k", "1", "--rule", "k-Seq"]
    done = subprocess.run(
        [*command, "--prompt", b"\xff"],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert rb"\u03b3 = 3" in done.stdout
    assert rb"0 \ufffd|" in done.stdout
    assert b"\x1b" not in done.stdout


def test_models_so_small_are_said_to_be_slower_with_drafts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: a table of slow-downs that looks like what drafts do."""
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    assert decode("--max-tokens", "2", "--k", "1", "--rule", "k-Seq") == 0
    assert "often save only calls" in capsys.readouterr().out.splitlines()[2]


def test_json_has_the_same_ways_and_what_they_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode(*ONE_RULE, "--json") == 0
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(out)
    ways = {way["way"]: way for way in found["ways"]}
    assert list(ways) == [
        "autoregressive",
        "speculative, chain",
        "speculative, block",
        "speculative, greedy block",
        "SpecTr, k-Seq, K = 1",
        "SpecTr, k-Seq, K = 2",
    ]
    assert ways["autoregressive"]["target_calls"] == 12
    assert all(len(way["text"]) == way["tokens"] == 12 for way in ways.values())
    assert decode(*ONE_RULE) == 0
    rate = ways["speculative, chain"]["acceptance_rate"]
    assert f"{rate:.2f}" in capsys.readouterr().out


def test_models_of_hugging_face_decode_in_their_own_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: bytes for a model with other tokens, or a padded model that draws an invalid token."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    save_huggingface(load("small"), tmp_path / "model")
    capsys.readouterr()
    options = ["--max-tokens", "8", "--k", "2", "--rule", "k-Seq", "--json"]
    texts = []
    for name in (str(tmp_path / "model"), "small"):
        assert decode("--target", name, "--draft", name, *options) == 0
        texts.append([way["text"] for way in json.loads(capsys.readouterr().out)["ways"]])
    assert texts[0] == texts[1]  # the same model: its tokens are bytes


def test_text_of_a_hugging_face_model_appears_with_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a text that is cut or repeated, and a draft model that must be given."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = str(tmp_path / "model")
    save_huggingface(load("small"), folder)
    capsys.readouterr()
    options = ["--target", folder, "--max-tokens", "12", "--prompt", "And it came"]
    for draft in ([], ["--draft", folder]):
        assert decode(*options, *draft, "--json") == 0
        ways = json.loads(capsys.readouterr().out)["ways"]
        assert decode(*options, *draft) == 0
        out, err = capsys.readouterr()
        assert "Loaded in" in err
        assert "without a chat template" in out
        assert len(ways) == 2
        for way in ways:
            assert f"\n{way['way']}\n\n{way['text']}\n\n12 tokens in " in out
        assert out.count("tokens per second") == 2


def test_printed_text_is_whole_and_has_no_control_characters() -> None:
    """Catches half of a character of two tokens, and escape sequences of the model's text."""
    pieces = {1: b"a", 2: b"\xc3", 3: b"\xa9", 4: b"\x1b"}

    def text_of(tokens: Sequence[int]) -> str:
        return b"".join(pieces[token] for token in tokens).decode(errors="replace")

    steps = [step((), (1, 2), 1), step((), (3,), 0)]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert list(print_steps(iter(steps), text_of, colour=True)) == steps
    assert out.getvalue() == "\x1b[32ma\x1b[0mé"
    loaded = Loaded(*[None] * 2, SimpleNamespace(decode=lambda t, **_: text_of(t)), [0], False)
    assert loaded.text_of([1, 4]) == "a\ufffd"


def test_json_says_nothing_else_without_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: the remark that torch is missing in front of the JSON."""
    monkeypatch.setattr("otm.cli.decode.is_installed", lambda name: None)
    options = ["--max-tokens", "2", "--k", "1", "--rule", "k-Seq", "--json"]
    assert decode(*options) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "ngram-5"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gamma", "x"], "Invalid value for '--gamma'"),
        (["--nonsense"], "No such option: --nonsense"),
        (["--prompt", ""], "prompt 0 is empty"),
        (["--gamma", "-1"], "γ = -1"),
        (["--k", "0"], "k = 0"),
        (["--rule", "nonsense"], "there is no rule 'nonsense'; there are optimal, k-Seq"),
        (["--rule", "SpecHub"], "'SpecHub' cannot be used here: it is for HubPairs drafts"),
        (["--max-tokens", "0"], "max_tokens = 0"),
        (["--temperature", "-1"], "temperature = -1.0"),
        (["--seed", "-1"], "seed = -1"),
        (["--target", "nonsense"], "there is no model 'nonsense'; there are target, large"),
        (["--target", ""], "there is no model ''"),
        (["--target", "gpt2"], "; or give the folders of two Hugging Face models"),
        (["--target", "some/model"], "'some/model' is a Hugging Face model and 'ngram-2' is"),
        (["--draft", ""], "there is no model ''"),
        (["--chat"], "--chat and --dtype have no effect on shipped models"),
        (["--dtype", "int8"], "no dtype 'int8'; there are float32"),
        (["--gamma", "-1", "--json"], "γ = -1"),
        (["--k", "1", "--k", "100000000"], "the limit is 65,536"),
        (["--rule", "k-Seq", "--rule", "ünï"], "there is no rule 'ünï'"),
        (["--temperature", "nan"], "temperature = nan"),
        (["--seed", "-1", "--json"], "seed = -1"),
        (["--max-tokens", "0", "--json"], "max_tokens = 0"),
        (["--prompt", "", "--json"], "prompt 0 is empty"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decode(*SMALL, *options) == 2
    out, err = capsys.readouterr()
    assert not out  # the error came before the work
    assert err.startswith("otm: ")
    assert message in err
    assert err.count("\n") == 1


def test_json_too_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: the last K is checked only after all others have decoded the whole text."""
    most: list[int] = []

    def autoregressive(*arguments: Any, max_tokens: int, **options: Any) -> None:
        most.append(max_tokens)

    monkeypatch.setattr("otm.cli.decode.autoregressive", autoregressive)
    for options in ([], ["--json"]):
        assert decode(*SMALL, "--k", "1", "--k", "0", *options) == 2
        assert "k = 0" in capsys.readouterr().err
    assert max(most) <= 2


def step(drafts: Any, output: tuple[int, ...], accepted: int, **others: Any) -> Step:
    fields: Any = {
        "sequence": 0,
        "call": 0,
        "position": 1,
        "gamma": 3,
        "finish_reason": None,
        "seconds": Seconds(1, 2, 1),
    }
    return Step(drafts=drafts, output=output, accepted=accepted, **(fields | others))


def test_the_table_compares_with_its_first_row() -> None:
    slow = Generation(
        ((0,),), (step((), (1,), 0), step((), (1,), 0, call=1, finish_reason="length"))
    )
    fast = Generation(((0,),), (step(((1, 2),), (1, 2), 1, finish_reason="length"),))
    first, line, *rows = statistics({"alone": slow, "drafts": fast}).splitlines()
    edges = [match.start() for match in re.finditer("-+", line)][1:]
    assert all(row[edge - 1] == " " != row[edge] for row in (first, *rows) for edge in edges)
    assert [row.split() for row in rows] == [
        ["alone", "2", "2", "1.00", "–", "2.00", "4.00", "2.00", "0.25", "1.00"],
        ["drafts", "2", "1", "2.00", "0.50", "1.00", "2.00", "1.00", "0.50", "2.00"],
    ]


def test_without_a_step_the_means_are_dashes() -> None:
    """Bug: a division by zero, or a mean of nothing that is printed as a number."""
    nothing = Generation(((0,),), ())
    assert math.isnan(nothing.block_efficiency)
    *_, row = statistics({"nothing": nothing}).splitlines()
    assert row.split() == ["nothing", "0", "0", "–", "–", "0.00", "0.00", "0.00", "–", "–"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "")  # empty does not count: no-color.org
    assert wants_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())


def test_a_table_of_nothing_is_refused() -> None:
    """Bug: it ends in an error of Python's."""
    with pytest.raises(InvalidInputError, match="at least one"):
        statistics({})
