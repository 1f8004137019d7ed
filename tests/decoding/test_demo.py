"""The command line, on n-gram models: no weights, no torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from otm.decoding.__main__ import main
from otm.decoding.verifiers import tree_rules
from otm.models.ngram import NGramModel

SMALL = ["--target", "ngram-3", "--draft", "ngram-2", "--max-tokens", "12", "--gamma", "3"]


def test_the_demo_prints_traces_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--k", "1", "2", "--rule", "k-Seq", "traversal"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "\x1b" not in out
    assert "text so far|accepted drafts[rejected drafts]+token of the target+" in out
    for name in ("speculative, chain", "SpecTr, k-Seq, K = 2, the first 6 steps"):
        assert re.search(rf"^{name}\n\n   0 And it came to pass\|", out, re.MULTILINE)
    table = out[out.rindex("per run") :].splitlines()[1:]
    assert [line.split("  ")[0] for line in table[:7]] == [
        "autoregressive",
        "speculative, chain",
        "speculative, block",
        "SpecTr, k-Seq, K = 1",
        "SpecTr, k-Seq, K = 2",
        "SpecTr, traversal, K = 1",
        "SpecTr, traversal, K = 2",
    ]


def test_the_same_seed_prints_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("3", "3", "4"):
        main([*SMALL, "--k", "2", "--rule", "optimal", "--seed", seed, "--colour"])
        out = capsys.readouterr().out
        texts.append(out[out.index("\n") : out.index("target  ")])
    assert texts[0] == texts[1] != texts[2]
    assert "\x1b[32m" in texts[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", ""], "prompt 0 is empty"),
        (["--gamma", "-1"], "γ = -1"),
        (["--k", "0"], "k = 0"),
        (["--rule", "nonsense"], "there is no rule 'nonsense'; there are optimal, k-Seq"),
        (["--rule", "greedy"], "rule 'greedy' cannot be used here: it is for Greedy drafts"),
        (["--max-tokens", "0"], "max_tokens = 0"),
        (["--temperature", "-1"], "temperature = -1.0"),
        (["--seed", "-1"], "seed = -1"),
        (["--target", "nonsense"], "there is no model 'nonsense'; there are target, large"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *options]) == 2
    out, err = capsys.readouterr()
    assert not out  # refused before the work
    assert err.startswith("python -m otm.decoding: ")
    assert message in err
    assert err.count("\n") == 1


def test_more_tokens_than_a_model_takes_are_refused_before_the_heading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(NGramModel, "context_length", 512)
    assert main([*SMALL, "--max-tokens", "600"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "which takes 512 tokens" in err


def test_every_rule_that_is_offered_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Fails if the help offers rules for drafts that are not i.i.d."""
    with pytest.raises(SystemExit):
        main(["--help"])
    offered = " ".join(capsys.readouterr().out.split())
    assert f"SpecTr's rules: {', '.join(tree_rules())} (" in offered
    assert "greedy" not in tree_rules()


def test_without_torch_it_says_so_and_takes_ngrams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("otm.decoding.__main__.is_installed", lambda name: None)
    assert main(["--max-tokens", "2", "--k", "1", "--rule", "k-Seq"]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("torch is not installed")
    assert second.startswith("target: ngram-5, draft: ngram-3,")


@pytest.mark.skipif(os.name == "nt", reason="arguments are no bytes there")
def test_a_pipe_without_greek_letters_and_a_prompt_of_any_bytes() -> None:
    """Fails if an encoding ends in a traceback."""
    command = [sys.executable, "-m", "otm.decoding", *SMALL, "--k", "1", "--rule", "k-Seq"]
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
    assert main(["--max-tokens", "2", "--k", "1", "--rule", "k-Seq"]) == 0
    assert "save runs, not time" in capsys.readouterr().out.splitlines()[-1]
