"""Check an engine's answers to the test vectors with the standard library alone, without OTM.

    python check.py vectors-1.json answers.jsonl
    python check.py vectors-1.json -- ./verifier
    python check.py vectors-1.json --questions > questions.jsonl

The second form starts a program, writes the problems to its standard input, one JSON object on each
line, and reads its answers from its standard output.  An answer is a JSON object on one line: the
problem's id, and the fields of `expected` with probabilities in place of integers::

    {"id": 7, "accepted": 2, "next": [0.25, 0.75, 0.0]}

README.md beside this file describes the problems.  The exit status is 0 if all selected problems
pass, 1 if some do not, and 2 for an unusable file, command or argument.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FORMAT, VERSION = "otm-test-vectors", 1

SHOWN = 5
"""Default number of failures that a report shows."""

LARGEST = 1e300
"""Numbers beyond this, which NaN fails to be within too, are not probabilities."""

Vector = dict[str, Any]
Answer = dict[str, Any]


class UnusableError(Exception):
    """The file of vectors, the answers or the command cannot be used."""


class Failure(NamedTuple):
    """A problem with a wrong answer or without an answer, and the reason."""

    vector: Vector
    reason: str


def read_vectors(path: str) -> dict[str, Any]:
    """Read the file of test vectors; raise if it is not of this format and version."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnusableError(f"cannot read the test vectors in {path}: {error}") from None
    known = isinstance(document, dict) and document.get("format") == FORMAT
    sound = known and document.get("version") == VERSION
    sound = sound and isinstance(document.get("rules"), dict)
    if not sound or not isinstance(document.get("problems"), list):
        raise UnusableError(
            f"{path} is not a file of {FORMAT}, version {VERSION}: use the check.py that is beside "
            "your file of vectors"
        )
    return dict(document)


def select(document: dict[str, Any], rules: Sequence[str], ties: bool) -> list[Vector]:
    """Return the problems of some rules (all if none is named), with or without ties."""
    known = document["rules"]
    unknown = [rule for rule in rules if rule not in known]
    if unknown:
        raise UnusableError(f"unknown rule {unknown[0]!r}; the file has: {', '.join(known)}")
    return [
        vector
        for vector in document["problems"]
        if (not rules or vector["rule"] in rules) and (ties or not vector.get("tie"))
    ]


def questions(vectors: Iterable[Vector]) -> str:
    """Return the problems without their answers, one JSON object on each line."""
    lines = ({name: x for name, x in vector.items() if name != "expected"} for vector in vectors)
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def read_answers(text: str) -> dict[int, Answer]:
    """Return the answers by id, from one JSON object on each line."""
    answers: dict[int, Answer] = {}
    # Only "\n" ends a line: JSON strings may contain the other characters of `splitlines`.
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise UnusableError(f"line {number} of the answers is not JSON: {line[:80]}") from None
        identity = answer.get("id") if isinstance(answer, dict) else None
        if type(identity) is not int:
            raise UnusableError(f"line {number} of the answers has no integer 'id': {line[:80]}")
        if identity in answers:
            raise UnusableError(f"line {number} of the answers repeats the id {identity}")
        answers[identity] = answer
    return answers


def read_text(path: str) -> str:
    """Return the text of a file of answers."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableError(f"cannot read the answers in {path}: {error}") from None


def run(command: Sequence[str], problems: str, seconds: float) -> str:
    """Return the output of a program that reads the problems on its standard input."""
    try:
        done = subprocess.run(
            command, input=problems, stdout=subprocess.PIPE, timeout=seconds,
            check=False, encoding="utf-8",
        )  # fmt: skip
    except UnicodeDecodeError as error:
        raise UnusableError(f"the output of {command[0]} is not UTF-8: {error}") from None
    except subprocess.TimeoutExpired:
        raise UnusableError(f"{command[0]} did not end within {seconds:g} seconds") from None
    except (OSError, ValueError) as error:
        raise UnusableError(f"cannot run {command[0]}: {error}") from None
    if done.returncode:
        raise UnusableError(f"{command[0]} ended with exit status {done.returncode}")
    return done.stdout


def probability_fault(given: Any, expected: float, tolerance: float) -> str | None:
    """Return what is wrong with a probability, or None."""
    if type(given) not in {int, float} or not -LARGEST <= given <= LARGEST:
        return f"{short(given, 40)} is not a finite number; {expected:.6g} is expected"
    if abs(given - expected) > tolerance:
        return f"{given:.6g}, where {expected:.6g} is expected"
    return None


def row_fault(given: Any, weights: Sequence[int], tolerance: float) -> str | None:
    """Return what is wrong with a distribution, or None."""
    if not isinstance(given, list) or len(given) != len(weights):
        return f"{short(given)} is not a list of {len(weights)} probabilities"
    total = sum(weights)
    for token, (value, weight) in enumerate(zip(given, weights, strict=True)):
        fault = probability_fault(value, weight / total, tolerance)
        if fault:
            expected = short([round(weight / total, 6) for weight in weights])
            return f"token {token} has {fault}; the whole row is {expected}"
    return None


def list_fault(name: str, given: Any, expected: Sequence[Any], tolerance: float) -> str | None:
    """Return what is wrong with a list of probabilities or of rows, or None.

    Entries that are null in the file are not compared, and neither are surplus entries of the
    answer.
    """
    if not isinstance(given, list) or len(given) < len(expected):
        return f"{name}: {short(given)} is not a list of {len(expected)} entries"
    for place, (value, wanted) in enumerate(zip(given, expected, strict=False)):
        if wanted is None:
            continue
        if name == "next":
            fault = row_fault(value, wanted, tolerance)
        else:
            fault = probability_fault(value, wanted[0] / wanted[1], tolerance)
        if fault:
            return f"{name}[{place}]: {fault}"
    return None


def answer_fault(vector: Vector, answer: Answer | None, tolerance: float) -> str | None:
    """Return what is wrong with the answer to a problem, or None."""
    if answer is None:
        return "no answer"
    for name, expected in vector["expected"].items():
        if expected is None:
            continue
        if name not in answer:
            return f"the answer has no field {name!r}"
        given = answer[name]
        if name in {"accepted", "index"}:
            wrong = type(given) is not int or given != expected
            fault = f"{name}: {short(given)}, where {expected} is expected" if wrong else None
        elif name == "next" and not isinstance(expected[0], list | None):
            fault = row_fault(given, expected, tolerance)
            fault = fault and f"next: {fault}"
        else:
            fault = list_fault(name, given, expected, tolerance)
        if fault:
            return fault
    return None


def failures(
    vectors: Iterable[Vector], answers: dict[int, Answer], tolerance: float
) -> list[Failure]:
    """Return the problems whose answer is missing or wrong."""
    failed = []
    for vector in vectors:
        fault = answer_fault(vector, answers.get(vector["id"]), tolerance)
        if fault:
            failed.append(Failure(vector, fault))
    return failed


def short(value: Any, width: int = 160) -> str:
    """Return a value as JSON, cut to a width."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= width else text[: width - 1] + "…"


def report(vectors: Sequence[Vector], failed: Sequence[Failure], shown: int) -> str:
    """Return the number of passed and failed problems of each rule, and its first failures."""
    lines = []
    for rule in dict.fromkeys(vector["rule"] for vector in vectors):
        of_rule = [vector for vector in vectors if vector["rule"] == rule]
        wrong = [failure for failure in failed if failure.vector["rule"] == rule]
        line = f"{rule + ':':21} {len(of_rule) - len(wrong):5,} of {len(of_rule):5,} passed"
        on_ties = sum(bool(failure.vector.get("tie")) for failure in wrong)
        if wrong:
            line += f", {len(wrong):,} failed ({on_ties:,} with a uniform on a threshold)"
        lines.append(line)
        if wrong and on_ties == len(wrong):
            lines.append(
                "  Only ties fail: a test passes if u < threshold, and fails at equality; "
                "--skip-ties leaves ties out."
            )
        for vector, reason in wrong[:shown]:
            given = {x: y for x, y in vector.items() if x not in {"expected", "id", "rule"}}
            lines += [f"  problem {vector['id']}: {reason}", f"    {short(given, 400)}"]
        if len(wrong) > shown:
            lines.append(f"  … and {len(wrong) - shown:,} more")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split the arguments at "--" into options and the command of a program."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="check.py",
        usage="check.py VECTORS [options] (ANSWERS | -- COMMAND ... | --questions)",
        description="Check an engine's answers to the test vectors; README.md describes them.",
    )
    parser.add_argument("vectors", metavar="VECTORS", help="the file of test vectors")
    parser.add_argument("answers", metavar="ANSWERS", nargs="?", help="a file of answers")
    parser.add_argument("--questions", action="store_true", help="print the problems, and stop")
    parser.add_argument("--rules", default="", help="check only these rules: chain,block,k-Seq")
    parser.add_argument("--skip-ties", action="store_true", help="leave out uniforms on thresholds")
    parser.add_argument("--tolerance", type=float, help="allowed error of a probability (1e-5)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for COMMAND (600)")
    parser.add_argument("--shown", type=int, default=SHOWN, help="failures shown for each rule")
    # With options before ANSWERS, `parse_args` would not find it.
    options = parser.parse_intermixed_args(arguments[:at])
    command = list(arguments[at + 1 :])
    if bool(command) + (options.answers is not None) + options.questions != 1:
        parser.error("give one of: a file of answers, -- and a command, or --questions")
    if not 0 < options.timeout < 1e9:
        parser.error(f"--timeout is {options.timeout}; it must be a number of seconds above 0")
    if options.shown < 0:
        parser.error(f"--shown is {options.shown}; it must be at least 0")
    if options.tolerance is not None and not 0 <= options.tolerance < 1:
        parser.error(f"--tolerance is {options.tolerance}; it must be at least 0 and less than 1")
    return options, command


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status."""
    options, command = parse(arguments)
    try:
        document = read_vectors(options.vectors)
        rules = [rule.strip() for rule in options.rules.split(",") if rule.strip()]
        vectors = select(document, rules, not options.skip_ties)
        if options.questions:
            sys.stdout.write(questions(vectors))
            return 0
        if command:
            text = run(command, questions(vectors), options.timeout)
        else:
            text = read_text(options.answers)
        tolerance = document["tolerance"] if options.tolerance is None else options.tolerance
        failed = failures(vectors, read_answers(text), tolerance)
    except UnusableError as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 2
    print(report(vectors, failed, options.shown))
    print("all passed" if not failed else f"{len(failed):,} of {len(vectors):,} problems failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
