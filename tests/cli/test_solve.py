"""``otm solve`` prints what the library computes, in text and in JSON."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import otm
from otm.cli import main
from otm.cli.app import app

DRAFT, TARGET = [0.5, 0.25, 0.15, 0.1], [0.2, 0.3, 0.1, 0.4]
INLINE = ["--draft", "0.5,0.25,0.15,0.1", "--target", "0.2, 0.3, 0.1, 0.4"]


def printed_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["solve", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    found: dict[str, object] = json.loads(out)
    return found


def test_json_has_the_numbers_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: rounded numbers, or another solver's, in what scripts read."""
    found = printed_json([*INLINE, "-k", "2", "--compare"], capsys)
    solution, comparison = otm.solve(DRAFT, TARGET, 2), otm.compare(DRAFT, TARGET, 2)
    assert found["alpha"] == solution.alpha
    assert [found["lower"], found["upper"]] == [
        solution.certificate.lower,
        solution.certificate.upper,
    ]
    assert (found["n"], found["k"], found["exact"]) == (4, 2, False)
    assert found["left_out"] == {}
    rules = found["rules"]
    assert isinstance(rules, list)
    assert {rule["rule"]: rule["acceptance"] for rule in rules} == {
        rule.name: rule.acceptance for rule in comparison
    }


def test_the_first_line_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", *INLINE, "-k", "2"]) == 0
    assert capsys.readouterr().out.startswith("α  ")


def test_fractions_stay_exact(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: 1/3 turned into a float on the way."""
    found = printed_json(["--draft", "1/3,2/3", "--target", "2/3,1/3", "-k", "2"], capsys)
    third = Fraction(1, 3)
    assert found["alpha_exact"] == str(otm.alpha([third, 2 * third], [2 * third, third], 2))
    assert found["gap"] == 0


def test_exact_takes_decimals_for_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: 0.1 taken for the float next to it."""
    laws = ["--draft", "0.1,0.9", "--target", "0.9,0.1"]
    assert printed_json([*laws, "--exact"], capsys)["alpha_exact"] == "1/5"
    assert printed_json(laws, capsys)["alpha_exact"] is None


def test_laws_from_files_are_those_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: draft and target exchanged, or a kind of file that cannot be read."""
    safetensors = pytest.importorskip("safetensors.numpy")
    p, q = np.array(DRAFT), np.array(TARGET)
    np.save(tmp_path / "p.npy", p)
    np.save(tmp_path / "q.npy", q.astype(">f8"))
    np.savez(tmp_path / "pair.npz", target=q, draft=p)
    np.savez_compressed(tmp_path / "packed.npz", target=q, draft=p)
    safetensors.save_file({"target": q, "draft": p}, tmp_path / "pair.safetensors")
    (tmp_path / "pair.json").write_text(json.dumps({"target": TARGET, "draft": DRAFT}))
    (tmp_path / "q.json").write_text(json.dumps(TARGET))
    alpha = otm.solve(DRAFT, TARGET, 3).alpha
    for names in ("p.npy q.npy", "pair.npz", "packed.npz", "pair.safetensors", "pair.json",
                  "p.npy q.json"):  # fmt: skip
        files = [str(tmp_path / name) for name in names.split()]
        assert printed_json([*files, "-k", "3"], capsys)["alpha"] == alpha, names


def test_fractions_in_a_file_are_strings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pair.json").write_text('{"draft": ["1/3", "2/3"], "target": [0, 1]}')
    assert printed_json([str(tmp_path / "pair.json")], capsys)["alpha_exact"] == "2/3"


def test_the_certificate_that_is_written_can_be_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "proof.json"
    found = printed_json([*INLINE, "-k", "2", "--certificate", str(file)], capsys)
    assert otm.Certificate.load(file).upper == found["upper"]


def test_plain_text_has_neither_boxes_nor_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: a table drawn for a terminal in a pipe, which `cut` and `awk` cannot read."""
    assert main(["solve", *INLINE, "-k", "2", "--compare"]) == 0
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b│─━┃")
    assert "optimal" in out
    assert f"{otm.solve(DRAFT, TARGET, 2).alpha:.12g}" in out


def test_the_app_runs_under_typer_s_own_runner() -> None:
    """Bug: statuses that only `main` knows, lost to whoever embeds the app."""
    runner = CliRunner()
    assert runner.invoke(app, ["solve", *INLINE]).exit_code == 0
    failed = runner.invoke(app, ["solve", "--draft", "0.5,0.6", "--target", "1,0"])
    assert failed.exit_code == 2
    assert "sums to 1.1" in failed.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no draft and no target distribution is given"),
        (["--draft", "1"], "no target distribution is given"),
        ([*INLINE, "x.npy"], "distributions are given in files and in options"),
        (["a.npy", "b.npy", "c.npy"], "3 files"),
        ([*INLINE, "-k", "0"], "k = 0"),
        ([*INLINE, "-k", "two"], "Invalid value for '-k'"),
        ([*INLINE, "--method", "magic"], "no method 'magic'; there are auto"),
        ([*INLINE, "--nonsense"], "No such option"),
        (["--draft", "0.5,x", "--target", "1,0"], "has 'x' at index 1"),
        (["--draft", "0.5,", "--target", "1,0"], "has '' at index 1"),
        (["--draft", "nan,1", "--target", "1,0"], "has 'nan' at index 0"),
        (["--draft", "1/0,1", "--target", "1,0"], "has '1/0' at index 0"),
        (["--draft", "1e1000000000,1", "--target", "1,0", "--exact"], "at index 0"),
        (["--draft", "9" * 5000 + "/3", "--target", "1"], "at most 400 digits"),
        (["--draft", "1e999,1", "--target", "1,0"], "has inf at index 0"),
        (["--draft", "-1,2", "--target", "1,0"], "must be a finite number of at least 0"),
        (["--draft", "1/3,2/3", "--target", "1,0", "-k", "10000000"], "a smaller k"),
        ([*INLINE, "--exact", "-k", "1000000000000"], "a smaller k"),
        ([*INLINE, "--certificate", "no/such/folder/x"], "there is no folder 'no/such/folder'"),
        ([*INLINE, "--certificate", "/"], "'/' is a folder; give a file in it"),
        ([*INLINE, "--certificate", "x" * 300], "cannot be written: File name too long"),
        (["--draft", "½,½", "--target", "1,0"], "has '½' at index 0"),
        ([*INLINE, "-k", "9" * 30], "k is above 9223372036854775807"),
        ([*INLINE, "--method", "lp-highs", "-k", "1000000000"], "above the limit of 2,147,483,648"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("otm: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_whole_number_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: "α  1 = 1"."""
    assert main(["solve", "--draft", "1/2,1/2", "--target", "1/2,1/2"]) == 0
    assert re.search(r"^α +1$", capsys.readouterr().out, re.MULTILINE)
    assert main(["solve", "--draft", "1/2,1/2", "--target", "1/4,3/4"]) == 0
    assert "0.75 = 3/4" in capsys.readouterr().out
