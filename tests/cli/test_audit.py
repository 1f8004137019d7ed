"""``otm audit``: verdicts as statuses, functions by their names, the known bugs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from otm.audit.diagnose.known_bugs import KNOWN_BUGS
from otm.audit.lossless import lossless
from otm.cli import main
from otm.coupling import KSeq

pytest.importorskip("hypothesis")

VERIFIERS = """
print("a module that prints")


def first_draft(target_probs, draft_probs, draft_tokens, uniforms):
    print("a verifier that prints")
    return [*draft_tokens, 0]


def first_path(target_probs, draft_probs, tokens, parents, uniforms):
    return [tokens[0], 0]


class Rules:
    @staticmethod
    def one(target_probs, draft_probs, drafts, uniforms):
        return drafts[0]


number = 3
"""
QUICK = ["--examples", "0"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # and taken back, as the command does not
    for name in ("verifiers_of_a_test", "broken_module_of_a_test"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("verifiers_of_a_test.py").write_text(VERIFIERS)
    Path("broken_module_of_a_test.py").write_text("raise SystemExit('two\\nlines')")


def test_a_lossless_rule_has_status_0_and_the_report_of_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", "otm.coupling:KSeq", *QUICK]) == 0
    assert capsys.readouterr().out == f"{lossless(KSeq, examples=0)}\n"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("first_draft", []),
        ("first_draft", ["--kind", "windowed", "--slow"]),
        ("Rules.one", ["--kind", "token"]),
        ("first_path", ["--kind", "tree"]),
    ],
)
def test_a_lossy_verifier_has_status_1(
    name: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: what the user's module prints ends up in the JSON."""
    arguments = ["audit", f"verifiers_of_a_test:{name}", *QUICK, *options, "--json"]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["verdict"] == "not lossless"
    assert "a module that prints" in err


def test_an_audit_that_is_not_allowed_enough_runs_has_status_3() -> None:
    """Bug: a script that takes "nothing found" for "nothing there"."""
    few = ["--method", "Monte Carlo", "--max-runs", "100", *QUICK]
    assert main(["audit", "otm.coupling:KSeq", *few]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no verifier to audit"),
        (["verifiers_of_a_test"], "does not name a function"),
        (["verifiers_of_a_test:"], "does not name a function"),
        (["../x:f"], "does not name a function"),
        (["verifiers_of_a_test:nothing"], "has no 'nothing'"),
        (["verifiers_of_a_test:number"], "the verifier is 3"),
        (["mine.py:f"], "give the module name as in Python: mine:f"),
        (["broken_module_of_a_test:f"], "cannot be imported: SystemExit: two lines"),
        (["no_such_module_of_a_test:f"], "No module named 'no_such_module_of_a_test'"),
        (["otm.coupling:KSeq", "--kind", "magic"], "no kind of verifier 'magic'; there are"),
        (["otm.coupling:KSeq", "--method", "magic"], "no method 'magic'; there are"),
        (["otm.coupling:KSeq", "--false-alarms", "2"], "false_alarms = 2"),
        (["otm.coupling:KSeq", "--delta", "1e-300"], "delta = 1e-300"),
        (["otm.coupling:KSeq", "--delta", "nan"], "delta = nan"),
        (["otm.coupling:KSeq", "--max-runs", "0"], "max_runs = 0"),
        (["otm.coupling:KSeq", "--max-seconds", "0"], "max_seconds = 0"),
        (["otm.coupling:KSeq", "--seed", "-1"], "seed = -1"),
        (["ünï:f"], "No module named 'ünï'"),
        (["nonsense", "--known-bugs"], "there is no known bug 'nonsense'; there are "),
    ],
)
def test_a_mistake_has_status_2_and_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    line = err.splitlines()[-1]  # behind what the user's module printed
    assert line.startswith("otm: ")
    assert message in line


def test_known_bugs_are_listed_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--known-bugs"]) == 0
    out = capsys.readouterr().out
    assert all(bug.name in out for bug in KNOWN_BUGS)
    assert main(["audit", "--known-bugs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [bug["name"] for bug in listed] == [bug.name for bug in KNOWN_BUGS]
    assert main(["audit", "--known-bugs", KNOWN_BUGS[0].name, *QUICK]) == 1


@pytest.mark.parametrize("name", [["otm.coupling:KSeq"], ["--known-bugs", KNOWN_BUGS[0].name]])
def test_without_hypothesis_there_is_no_verdict(
    name: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a traceback, and the status that means "not lossless"."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    assert main(["audit", *name]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Hypothesis is not installed; " in err
    assert 'pip install "otm[testing]"' in err
    assert err.count("\n") == 1


def test_recorded_steps_have_the_statuses_of_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    step = {"target_probs": [[0.5, 0.5]], "output": [0]}
    Path("steps.jsonl").write_text(json.dumps(step))
    assert main(["audit", "--recorded", "steps.jsonl"]) == 3
    assert "file 'steps.jsonl': undecided" in capsys.readouterr().out
    assert main(["audit", "--recorded", "steps.jsonl", "--delta", "0.999"]) == 3
    capsys.readouterr()
    Path("steps.jsonl").write_text("\n".join([json.dumps(step)] * 60))  # only zeros
    assert main(["audit", "--recorded", "steps.jsonl", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["output"]["follow"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recorded", "none.jsonl"], "file 'none.jsonl' cannot be found"),
        (["--recorded", "none.jsonl", "otm.coupling:KSeq"], "--recorded FILE takes no verifier"),
        (["--recorded", "none.jsonl", "--kind", "chain"], "--recorded FILE takes no verifier"),
        (["--recorded", "verifiers_of_a_test.py"], "line 2 of file 'verifiers_of_a_test.py' is no"),
        (["otm.coupling:KSeq", "--rounding", "0.1"], "--rounding requires --recorded"),
    ],
)
def test_bad_calls_about_recorded_steps(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *arguments]) == 2
    assert message in capsys.readouterr().err
