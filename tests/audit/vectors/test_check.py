"""The checker of test vectors: a verifier in C passes, and every planted mistake is found."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otm.audit.vectors import check, path

SOURCE = Path(__file__).with_name("verifier.c")
MISTAKES = sorted(
    {int(number) for number in re.findall(r"\bis\((\d+)\)", SOURCE.read_text("utf-8"))}
)
DOCUMENT = check.read_vectors(str(path()))
RULES = {0: "chain", 2: "block", 4: "k-Seq", 6: "recursive rejection", 7: "walk and keep"}


def built(folder: Path, *options: str) -> str:
    """Compile the verifier, or skip the test where no compiler is."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = folder / "verifier"
    command = [compiler, "-O1", "-Wall", "-Werror", *options, "-o", str(program), str(SOURCE)]
    subprocess.run(command, check=True)
    return str(program)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(tmp_path_factory.mktemp("verifier"))


def failed(command: list[str], rule: str) -> list[check.Failure]:
    vectors = check.select(DOCUMENT, [rule], ties=True)
    answers = check.read_answers(check.run(command, check.questions(vectors), 60))
    return check.failures(vectors, answers, DOCUMENT["tolerance"])


@pytest.mark.parametrize("real", ["double", "float"])
def test_a_verifier_in_c_passes(
    real: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a file that a correct verifier fails, also in single precision and on ties."""
    program = built(tmp_path, f"-DREAL={real}")
    assert check.main([str(path()), "--", program]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" passed\n") == 5 + 1
    assert printed.endswith("\nall passed\n")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: int, verifier: str) -> None:
    """Bug: vectors that a wrong verifier passes; one mistake fails in ten problems or more."""
    rule = next(name for tens, name in reversed(RULES.items()) if mistake >= 10 * tens)
    assert len(failed([verifier, str(mistake)], rule)) >= 10


def test_the_mistakes_are_many_and_ties_alone_show_some_of_them(verifier: str) -> None:
    """Bug: mistakes that the pattern above does not find in the source, and so nobody tries."""
    assert len(MISTAKES) == 43
    for mistake, rule in ((4, "chain"), (28, "block"), (43, "k-Seq")):
        assert all(failure.vector["tie"] for failure in failed([verifier, str(mistake)], rule))


def perfect(vectors: list[check.Vector]) -> list[dict[str, Any]]:
    """Turn the expected answers into answers in floats."""

    def row(weights: Any) -> Any:
        if weights is None or isinstance(weights[0], list | None):
            return weights and [row(x) for x in weights]
        return [x / sum(weights) for x in weights]

    answers = []
    for vector in vectors:
        answer: dict[str, Any] = {"id": vector["id"]}
        for name, value in vector["expected"].items():
            if name in {"accept", "keep"}:
                answer[name] = [pair and pair[0] / pair[1] for pair in value]
            else:
                answer[name] = row(value) if name == "next" else value
        answers.append(answer)
    return answers


def written(folder: Path, answers: list[Any]) -> str:
    file = folder / "answers.jsonl"
    file.write_text("\n".join(map(json.dumps, answers)), encoding="utf-8")
    return str(file)


def test_the_checker_runs_alone(tmp_path: Path) -> None:
    """Bug: a checker that imports OTM or a package, and so does not run beside an engine."""
    for name in ("check.py", path().name):
        shutil.copy(path().with_name(name), tmp_path)
    answers = written(tmp_path, perfect(DOCUMENT["problems"]))
    command = [sys.executable, "-I", "-S", "check.py", path().name, answers]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all passed" in done.stdout
    program = f"import sys; sys.stdin.read(); print(open({answers!r}).read())"
    command = [*command[:-1], "--", sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    program = "import sys; sys.exit(3)"  # reads nothing
    done = subprocess.run(
        [*command[:-1], program], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "exit status 3" in done.stderr


def test_the_example_of_the_readme_is_in_the_file_and_passes() -> None:
    """Bug: an example from an older file."""
    text = path().with_name("README.md").read_text(encoding="utf-8")
    problem, answer = (json.loads(x) for x in re.findall(r'(?ms)^    (\{"id".*?\}\n)\n', text))
    assert problem in DOCUMENT["problems"]
    assert check.answer_fault(problem, answer, 1e-5) is None
    assert f"{len(DOCUMENT['problems']):,} problems" in text


def test_a_wrong_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: NaN, a boolean, a short row or no answer at all that counts as passed."""
    vector = next(x for x in DOCUMENT["problems"] if x["expected"].get("accepted") == 1)
    (answer,), size = perfect([vector]), len(vector["target"][0])
    changes: dict[str, dict[str, Any]] = {
        "accepted: true, where 1 is expected": {"accepted": True},
        "accepted: 2, where 1 is expected": {"accepted": 2},
        "NaN is not a finite number": {"next": [float("nan")] * size},
        "false is not a finite number": {"next": [False] * size},
        '"1" is not a finite number': {"next": ["1"] * size},
        "00… is not a finite number": {"next": [10**400] * size},
        f"[1.0] is not a list of {size} probabilities": {"next": [1.0]},
        f"null is not a list of {size} probabilities": {"next": None},
    }
    for message, change in changes.items():
        assert message in str(check.answer_fault(vector, {**answer, **change}, 1e-5))
    del answer["next"]
    assert "the answer has no field 'next'" in str(check.answer_fault(vector, answer, 1e-5))
    file = written(tmp_path, perfect(DOCUMENT["problems"])[:-1])
    assert check.main([str(path()), file]) == 1
    assert "no answer" in capsys.readouterr().out
    assert check.main([str(path()), file, "--rules", "chain,k-Seq"]) == 0


def test_a_probability_off_by_more_than_the_tolerance_fails() -> None:
    """Bug: a comparison that is looser than it says, or that lists escape."""
    for rule, name in (("recursive rejection", "accept"), ("walk and keep", "keep")):
        vector = check.select(DOCUMENT, [rule], ties=True)[0]
        (answer,) = perfect([vector])
        for error, fails in ((9e-6, False), (1.1e-5, True)):
            moved = {**answer, name: [answer[name][0] + error, *answer[name][1:]]}
            assert bool(check.answer_fault(vector, moved, 1e-5)) == fails
        assert check.answer_fault(vector, {**answer, name: []}, 1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "line 1 of the answers is not JSON"),
        ('{"accepted": 1}', "line 1 of the answers has no integer 'id'"),
        ('{"id": 3}\n\n{"id": 3}', "line 3 of the answers repeats the id 3"),
        ("[" * 100_000, "line 1 of the answers is not JSON"),
    ],
)
def test_bad_answers_are_an_error(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(text, encoding="utf-8")
    assert check.main([str(path()), str(file)]) == 2
    assert message in capsys.readouterr().err


def test_bad_files_commands_and_options_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "vectors.json"
    other.write_text('{"format": "otm-test-vectors", "version": 2}', encoding="utf-8")
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "otm-test-vectors", "version": 1, "rules": [], "problems": 5}')
    latin = tmp_path / "latin"
    latin.write_bytes(b"\xff")
    limited = [str(path()), "--timeout", "0.2", "--", sys.executable, "-c"]
    for arguments, message in (
        ([str(other), "a"], "is not a file of otm-test-vectors, version 1"),
        ([str(tmp_path / "none"), "a"], "cannot read the test vectors"),
        ([str(path()), str(tmp_path / "none")], "No such file"),
        ([str(bad), "a"], "is not a file of otm-test-vectors"),
        ([str(path()), str(latin)], "cannot read the answers in"),
        ([str(path()), "--rules", "chains", "a"], "unknown rule 'chains'; the file has: chain"),
        ([str(path()), "--", str(tmp_path / "none")], "cannot run"),
        ([*limited, "import time; time.sleep(9)"], "did not end within 0.2 seconds"),
    ):
        assert check.main(arguments) == 2
        assert message in capsys.readouterr().err
    for options in (
        [],
        ["a", "--shown", "-1"],
        ["a", "--timeout", "nan"],
        ["a", "--questions"],
        ["--tolerance", "2", "a"],
        ["a", "--", "b"],
    ):
        with pytest.raises(SystemExit, match="2"):
            check.main([str(path()), *options])


def test_questions_hold_no_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: an engine that could copy the answers from its input."""
    assert check.main([str(path()), "--questions", "--skip-ties"]) == 0
    printed = capsys.readouterr().out
    assert "expected" not in printed
    assert '"tie"' not in printed
    assert printed.count("\n") > 2500
