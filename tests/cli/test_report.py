"""``otm report`` hands everything on, and prints what the library computed."""

from __future__ import annotations

import itertools
import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from otm.cli import main
from otm.decoding.sampling_parameters import SamplingParameters
from otm.gain import Latency, Settings, from_files, report
from tests.gain.reports.instruct import write_model

for package in ("joblib", "jinja2", "matplotlib"):
    pytest.importorskip(package)

SMALL = ["-k", "2", "--rule", "optimal", "--rule", "k-Seq", "--gamma", "2", "--workers", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # tests/gain/reports looks at the pictures, which take longer than all else
    monkeypatch.setattr(import_module("otm.gain.reports.report"), "pictures", lambda _: {})
    rng = np.random.default_rng(0)
    target = rng.normal(size=(20, 6)).astype(np.float32)
    np.save("target.npy", target)
    np.save("draft.npy", target + rng.normal(size=target.shape).astype(np.float32))
    np.save("prompts.npy", np.repeat(np.arange(5), 4))
    lists = {"draft": {"1": -0.4, "2": -1.6}, "target": {"2": -0.7, "1": -0.9}}
    Path("lists.jsonl").write_text(f"{json.dumps(lists)}\n" * 3)


def test_json_is_the_report_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["draft.npy", "target.npy", "--prompts", "prompts.npy"]
    more = ["--temperature", "0.7", "--draft-temperature", "1", "--latency", "0.1", "--json"]
    assert main(["report", *files, *SMALL, *more, "--output", "out"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(Path("out/report.json").read_text(encoding="utf-8"))
    summary = report(
        from_files(Path("draft.npy"), Path("target.npy"), prompts=Path("prompts.npy")),
        Path("again"),
        Settings(
            ks=(2,),
            rules=("optimal", "k-Seq"),
            sampling=SamplingParameters(0.7),
            draft_temperatures=(1.0,),
        ),
        gammas=(2,),
        latency=Latency.constant(0.1),
    )
    assert printed == json.loads(json.dumps(summary.as_json()))


def test_the_text_names_the_files_and_the_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "draft.npy", "target.npy", *SMALL]) == 0
    out = capsys.readouterr().out
    found = json.loads(Path("report/report.json").read_text(encoding="utf-8"))
    for row in found["acceptance"]:
        assert f"{row['mean']['mean']:.3f}" in out
    assert str(Path("report/report.html")) in out
    assert "the report has no intervals" in out
    assert "±" not in out


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["--latency", "0.05"], "Use optimal, K = 1, γ = 2: 1."),
        (["--latency", "3"], "Do not use drafts with these models. The best setting found (opt"),
        (["--latency", "0.4"], "It is uncertain whether drafts pay with these models. The best"),
        ([], "With one chain of γ = 2 drafts, a target call gives 1."),
        (["--rule", "greedy"], "With one chain of γ = 2 drafts, a target call gives 1."),
    ],
)
def test_the_first_line_is_the_answer(
    options: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an answer below the description of the input, and an unknown speed as a verdict."""
    files = ["draft.npy", "target.npy", "--prompts", "prompts.npy"]
    assert main(["report", *files, *SMALL, *options]) == 0
    out = capsys.readouterr().out
    assert out.startswith(answer)
    assert ("The speed is unknown" in out) == ("--latency" not in options)
    page = Path("report/report.html").read_text(encoding="utf-8")
    assert f"<h1>{answer[:30]}" in page


def test_rules_without_tokens_per_call_have_an_acceptance(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = ["draft.npy", "target.npy", "-k", "2", "--rule", "greedy", "--workers", "1"]
    assert main(["report", *files]) == 0
    out = capsys.readouterr().out
    assert out.startswith("With k = 2 drafts, greedy accepts one with probability 0.")


def test_a_second_run_goes_on_where_the_first_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: the same command rejects its folder, or computes it again."""
    command = ["report", "draft.npy", "target.npy", *SMALL, "--json"]
    assert main(command) == 0
    first = capsys.readouterr().out
    (block,) = Path("report/positions").glob("block-*.npz")
    before = block.stat().st_mtime_ns
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert block.stat().st_mtime_ns == before


def test_lists_of_a_server_give_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", "lists.jsonl", "--vocabulary", "9", "-k", "2", "--workers", "1"]
    assert main([*command, "--json"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out)["bounds"] if row["k"] == 2]
    assert 0 < row["lower"]["mean"] < row["upper"]["mean"] < 1
    assert main(command) == 0
    assert f"{row['lower']['mean']:.3f}" in capsys.readouterr().out


def test_responses_of_two_servers_give_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a command that reads such files as arrays, or as lines of both models."""
    lists = {"draft": {"a": -0.4, "the": -1.6}, "target": {"the": -0.7, "a": -0.9}}
    for name, listed in lists.items():
        logprobs = {"tokens": ["the"] * 3, "top_logprobs": [listed] * 3}
        text = json.dumps([{"choices": [{"logprobs": logprobs}]}] * 2)
        Path(f"{name}.json").write_text(text, encoding="utf-8")
    assert main(["report", "draft.json", "target.json", "-k", "2", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "With k = 2 drafts, the best lossless rule accepts one with a probability"
    )
    assert "file 'draft.json' and file 'target.json'" in out
    assert "bounds on α" in out


def test_models_are_compared_by_rules_of_paths(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Catches a K that the terminal leaves out, and a template that it does not mention."""
    draft, target = (str(write_model(Path(str(width)), width)) for width in (8, 16))
    Path("text.txt").write_text("in the beginning\n\nthe earth\n", encoding="utf-8")
    capsys.readouterr()
    models = [draft, target, "--text", "text.txt", "--window", "9", "--contexts", "3"]
    assert main(["report", *models, "--gamma", "2", "--workers", "1"]) == 0
    out, err = capsys.readouterr()
    assert "in its chat template" in out
    assert "Drafts at up to 3 contexts: at most " in err
    table = out[out.index("tokens per step, from drafts") :].split("\n\n")[0]
    assert [" ".join(line.split()[:-3]) for line in table.splitlines()[3:]] == [
        *(f"{rule} {k}" for rule in ("optimal", "k-Seq", "recursive rejection") for k in (1, 2, 4)),
        "block 1",
        *(
            f"{rule} {k}"
            for rule in ("traversal", "walk and keep", "branch and keep")
            for k in (1, 2, 4)
        ),
    ]
    assert "of trees" not in out
    again = ["--rule", "branch and keep", "--chat", "--workers", "1", "--output", "b"]
    assert main(["report", *models, *again, "-k", "2", "--nodes", "3", "--nodes", "5"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"branch and keep +2 ", out)
    both = "best-first, target-only", "best-first with a drawn child, walk and keep"
    for part, labels in (
        (out[out.index("tokens per step of trees where") :], ""),
        (out[out.index("minus those of another tree") :], "branch and keep "),
    ):
        for kind, nodes in itertools.product(both, (3, 5)):
            assert re.search(rf"\n{kind} +{nodes} +{labels}", part.split("\n\n")[0])


def test_the_title_of_each_bound_has_its_positions(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: a bound over all positions, below a value where steps begin, without a reason."""
    draft, target = (str(write_model(Path(str(width)), width)) for width in (8, 16))
    Path("text.txt").write_text("in the beginning\n\nthe earth\n", encoding="utf-8")
    models = [draft, target, "--text", "text.txt", "--window", "9", "--contexts", "9"]
    options = ["-k", "1", "--rule", "optimal", "--rule", "block", "--gamma", "2", "--workers", "1"]
    assert main(["report", *models, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    places = {
        "tokens per step, from": "where steps begin",
        "upper bound where": "where steps begin",
        "upper bound over": "over all positions of the text, not only where steps begin",
    }
    for start, positions in places.items():
        (title,) = [line for line in lines if line.startswith(start)]
        assert positions in title
    found = json.loads(Path("report/report.json").read_text(encoding="utf-8"))
    (bound,) = found["sampled_bounds"]
    assert f"{bound['bound']['mean']:.3f}" in "\n".join(lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["draft.pt", "target.pt"], "OTM reads no pickles, since they can run code"),
        (["missing.npy", "target.npy"], "cannot be found"),
        (["draft.npy"], "'draft.npy' holds one array; give a file for each model, or one file"),
        ([".", "target.npy"], "'.' is a folder; if it is a Hugging Face model, give a text"),
        (["lists.jsonl", "target.npy"], "which has both models' lists"),
        (["draft.json"], "or two files (.json, .jsonl) with the responses of each model's server"),
        (["lists.jsonl", "--slack", "1"], "slack = 1.0"),
        (["draft.npy", "target.npy", "--slack", "0.1"], "--slack has no effect on arrays"),
        (["lists.jsonl", "--temperature", "0.5"], "--temperature has no effect on lists"),
        (["lists.jsonl", "--gamma", "2"], "--gamma has no effect on lists"),
        (["lists.jsonl", "--kind", "logits"], "--kind has no effect on lists"),
        (
            ["a", "b", "--text", "text", "--tokens", "tokens.npy"],
            "--tokens has no effect",
        ),
        (["a", "b", "--text", "text", "--tokens", "t.npy"], "no effect on models that read"),
        (["a", "b", "--text", "text", "--kind", "logits"], "--kind has no effect"),
        (["draft.npy", "target.npy", "--chat"], "--chat has no effect on arrays"),
        (["draft.npy", "target.npy", "--rule", "block"], "block need drafts, which a report"),
        (["draft.npy", "target.npy", "--sampled"], "--sampled has no effect on arrays"),
        (["draft.npy", "target.npy", "--window", "128"], "--window has no effect"),
        (["draft.npy", "target.npy", "--nodes", "8"], "--nodes has no effect on arrays"),
        (["draft.npy", "target.npy", "--device", "cpu"], "--device has no effect"),
        (["a", "b", "--text", "text", "--vocabulary", "9"], "--vocabulary has no effect"),
        (["draft.npy", "target.npy", "--vocabulary", "0"], "vocabulary = 0"),
        (["lists.jsonl", "--latency", "0.1"], "--latency has no effect"),
        (["lists.jsonl", "--generation-config", "."], "--generation-config has no effect"),
        (
            ["draft.npy", "target.npy", "--generation-config", ".", "--top-k", "3"],
            "--generation-config cannot be combined with --temperature, --top-k",
        ),
        (["draft.npy", "target.npy", "--generation-config", "."], "cannot be found"),
        (
            ["draft.npy", "target.npy", "--kind", "magic"],
            "no kind of scores 'magic'; there are logits",
        ),
        (["draft.npy", "target.npy", "--rule", "magic"], "no rule 'magic'; there are"),
        (["draft.npy", "target.npy", "-k", "0"], "k = 0"),
        (["draft.npy", "target.npy", "--temperature", "-1"], "temperature = -1"),
        (["draft.npy", "target.npy", "--latency", "table.json"], "cannot be found"),
        (["draft.npy", "target.npy", "--level", "1"], "level = 1"),
        (["draft.npy", "target.npy", "--workers", "0"], "workers = 0"),
        (["draft.npy", "target.npy", "--workers", "9" * 30], "workers = 999"),
        (["draft.npy", "target.npy", "--workers", "-7"], "workers = -7"),
        (["draft.npy", "target.npy", "-k", "9" * 30], "k is above 9223372036854775807"),
        (["draft.npy", "target.npy", "--gamma", "9" * 30], "a report accepts at most 1000"),
        (["draft.npy", "target.npy", "--latency", "nan"], "--latency = nan"),
        (["draft.npy", "target.npy", "--latency", "-1"], "--latency = -1.0; it must be"),
        (["draft.npy", "target.npy", "--latency", "."], "is not a regular file"),
        (["draft.npy", "target.npy", "--level", "nan"], "level = nan"),
        (["ünï.npy", "target.npy"], "file 'ünï.npy' cannot be found"),
        (["model", "--text", "text"], "give the draft and the target model"),
        (["draft.npy", "target.npy", "--output", "draft.npy"], "cannot be written to"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert not Path("report/report.json").exists()


def test_probabilities_are_named_with_the_option_and_leave_no_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: the keyword of a function in a message to a shell, and empty folders."""
    np.save("laws.npy", np.full((4, 3), 1 / 3))
    assert main(["report", "laws.npy", "target.npy"]) == 2  # of other shapes
    assert "logits must be [N, V]" in capsys.readouterr().err
    np.save("others.npy", np.full((4, 3), 1 / 3))
    assert main(["report", "laws.npy", "others.npy", *SMALL]) == 2
    err = capsys.readouterr().err
    assert '--kind to "probabilities"' in err
    assert "kind=" not in err
    assert not Path("report").exists()


def test_the_recommendation_says_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "draft.npy", "target.npy", *SMALL, "--latency", "0.05"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The speed with drafts is an estimate without an interval. The best set")
    assert "a draft token takes 0.05 times as long as a target token" in out
    greedy = ["--rule", "greedy", "--latency", "0.05", "--output", "other"]
    assert main(["report", "draft.npy", "target.npy", *SMALL, *greedy]) == 0
    assert "\nNot in the recommendation: greedy. " in capsys.readouterr().out


def test_a_report_samples_as_generate_would(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a file that is read but not used, and settings that the report does not mention."""
    Path("generation_config.json").write_text('{"do_sample": true, "temperature": 0.5}')
    files = ["draft.npy", "target.npy", *SMALL]
    assert main(["report", *files, "--generation-config", ".", "--output", "a"]) == 0
    out = capsys.readouterr().out
    assert "T 0.5, top-k 50" in out
    assert main(["report", *files, "--min-p", "0.25", "--output", "c"]) == 0
    assert "min-p 0.25" in capsys.readouterr().out
    same = ["--temperature", "0.5", "--top-k", "50", "--json", "--output", "b"]
    assert main(["report", *files, *same]) == 0
    of_file = json.loads(Path("a/report.json").read_text(encoding="utf-8"))
    assert json.loads(capsys.readouterr().out)["acceptance"] == of_file["acceptance"]
