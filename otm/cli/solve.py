"""``otm solve``: compute the optimal acceptance probability of two distributions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy.typing as npt
from typer import Argument, Option

from otm._core.display.text import shown
from otm._core.files.headers import open_arrays
from otm._core.files.paths import check_writable, file_label, read_json
from otm._core.files.stored import StoredArray
from otm.cli.output import JsonOption, as_json, exact_text, print_json, print_table
from otm.coupling.compare.comparison import Comparison, compare_pair
from otm.errors import InvalidDistributionError, InvalidInputError, ProblemTooLargeError
from otm.problem import Problem
from otm.solution import Solution
from otm.solve import solve as solve_problem

MAX_TOKENS = 2**24
"""Largest number of tokens of a distribution in a file, about 100 times a usual vocabulary."""

LARGEST_POWER_BITS = 2**20
"""Largest bit length of a common denominator's k-th power, so that certificate checks are fast."""

# digits and exponents are limited, because a short text such as 1e1000000000 is a huge number
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,400}/0*[1-9]\d{0,400}"
    r"|(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?)",
    re.ASCII,
)

HOW = (
    "give --draft and --target, or one file that has both distributions, or one file for the draft "
    "distribution and one for the target distribution"
)


def solve(
    files: Annotated[
        list[Path] | None,
        Argument(
            help="One file with both distributions, or a file with the draft distribution and a "
            "file with the target distribution: .json, .npy, .npz or .safetensors.",
            metavar="FILE",
        ),
    ] = None,
    *,
    draft: Annotated[
        str | None, Option(help="Draft distribution, such as 0.5,0.5 or 1/3,2/3.")
    ] = None,
    target: Annotated[str | None, Option(help="Target distribution, in the same form.")] = None,
    k: Annotated[int, Option("-k", "--k", help="Number of i.i.d. drafts.")] = 1,
    exact: Annotated[
        bool,
        Option("--exact", help="Compute in fractions; always on if a distribution has one."),
    ] = False,
    method: Annotated[
        str, Option(help="Method: auto, closed-form, lp-highs or lp-cvxpy.")
    ] = "auto",
    compared: Annotated[
        bool, Option("--compare", help="Compare all rules on these distributions.")
    ] = False,
    certificate: Annotated[
        Path | None, Option(help="Write a proof of optimality to this file.", metavar="FILE")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compute the optimal acceptance probability α.

    The solution for k drafts comes with a proof of optimality. A JSON file has a list of numbers,
    or {"draft": [...], "target": [...]}; fractions are strings such as "1/3". In .npz and
    .safetensors files the arrays are named draft and target, or each distribution has a separate
    file. Code in a file is never executed.
    """
    if certificate is not None:
        check_writable(certificate)
    probs = read_distributions(files or [], draft, target, exact=exact)
    for distribution in probs:
        _check_exact_size(distribution, k)
    problem = Problem(*probs, k)
    if exact:
        problem = problem.to_exact()
        _check_exact_size(problem.draft, k)
    solution = solve_problem(problem.draft, problem.target, k, method=method)
    comparison = compare_pair(problem) if compared else None
    if certificate is not None:
        solution.certificate.check()
        solution.certificate.save(certificate)
    if json:
        print_json(_document(solution, comparison))
        return
    print_table(None, sorted(solution._lines(), key=lambda line: line[0] != "α"))
    if comparison is not None:
        print()
        heading, *rules = comparison._table
        print_table(heading, rules)
        for line in comparison._left_out_lines:
            print(line)


def _document(solution: Solution, comparison: Comparison | None) -> dict[str, Any]:
    problem, proof = solution.problem, solution.certificate
    document: dict[str, Any] = {
        "n": problem.n,
        "k": problem.k,
        "exact": problem.exact,
        "alpha": float(solution.alpha),
        "alpha_exact": exact_text(solution.alpha),
        "lower": float(proof.lower),
        "upper": float(proof.upper),
        "gap": float(proof.gap),
        "method": solution.method,
        "why": solution.why,
    }
    if comparison is not None:
        document["rules"] = [
            {
                "rule": rule.name,
                "drafts": str(rule.plan.drafts),
                "acceptance": as_json(rule.acceptance),
                "optimum": as_json(rule.optimum),
                "lossless": rule.distance is None,
            }
            for rule in comparison
        ]
        document["left_out"] = dict(comparison.left_out)
    return document


def read_distributions(
    files: Sequence[Path], draft: str | None, target: str | None, *, exact: bool
) -> tuple[Any, Any]:
    """Read the draft and target distributions from files, or from comma-separated numbers.

    A single file has both distributions; if two files are given, each has one distribution. If
    `exact` is true or a distribution has a fraction such as 1/3, decimals in text become fractions.
    """
    if files:
        if draft is not None or target is not None:
            raise InvalidInputError(f"distributions are given in files and in options; {HOW}")
        probs = _from_files(files)
    elif draft is None or target is None:
        inline = {"draft": draft, "target": target}
        missing = " and no ".join(name for name, text in inline.items() if text is None)
        raise InvalidInputError(f"no {missing} distribution is given; {HOW}")
    else:
        probs = {"draft": draft.split(","), "target": target.split(",")}
    lists = {name: entries for name, entries in probs.items() if isinstance(entries, list)}
    exact = exact or any("/" in str(entry) for entries in lists.values() for entry in entries)
    for name, entries in lists.items():
        probs[name] = [_number(entry, name, i, exact) for i, entry in enumerate(entries)]
    return probs["draft"], probs["target"]


def _check_exact_size(probs: Any, k: int) -> None:
    """Raise if k-th powers of a large denominator would take minutes."""
    unit = 1
    for denominator in {entry.denominator for entry in probs if isinstance(entry, Fraction)}:
        unit = math.lcm(unit, denominator)
        if k * unit.bit_length() > LARGEST_POWER_BITS:
            raise ProblemTooLargeError(
                f"exact numbers for k = {k} drafts would have more than {LARGEST_POWER_BITS:,} "
                "bits with these distributions; give decimals without --exact, or a smaller k"
            )


def _from_files(files: Sequence[Path]) -> dict[str, Any]:
    if len(files) > 2:
        raise InvalidInputError(f"{len(files)} files; {HOW}")
    contents = [_read(path) for path in files]
    if len(files) == 1:
        (content,) = contents
        if content.keys() != {"draft", "target"}:
            names = ", ".join(shown(name) for name in list(content)[:4] if name) or "without names"
            raise InvalidInputError(
                f"{file_label(files[0])} must have two distributions, 'draft' and 'target', but "
                f"has {len(content)}: {names}; {HOW}"
            )
        return content
    for path, content in zip(files, contents, strict=True):
        if len(content) != 1:
            raise InvalidInputError(f"{file_label(path)} has {len(content)} distributions; {HOW}")
    draft, target = (probs for content in contents for probs in content.values())
    return {"draft": draft, "target": target}


def _read(path: Path) -> dict[str, Any]:
    """Return the distributions of a file by name, as arrays, or as lists if the file is JSON."""
    if path.suffix.lower() != ".json":
        return {name: _array(rows) for name, rows in open_arrays(path).items()}
    content = read_json(path)
    named: dict[str, Any] = content if isinstance(content, dict) else {"": content}
    for name, entries in named.items():
        if not isinstance(entries, list):
            of = f" at {shown(name)}" if name else ""
            raise InvalidInputError(
                f"{file_label(path)} has {shown(entries)}{of}; a distribution is a list of "
                'numbers, or of fractions such as "1/3"'
            )
    return named


def _array(rows: StoredArray) -> npt.NDArray[Any]:
    if len(rows.shape) != 1 or not 0 < rows.shape[0] <= MAX_TOKENS:
        empty = ", so it has no tokens" if 0 in rows.shape else ""
        raise InvalidInputError(
            f"{rows.description} has the shape {shown(rows.shape)}{empty}; a distribution has one "
            f"axis, with 1 to {MAX_TOKENS:,} tokens"
        )
    return rows.read(0, rows.shape[0])


def _number(entry: Any, name: str, index: int, exact: bool) -> Any:
    """Convert a text to a number; return a number from JSON unchanged."""
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return entry
    text = entry.strip() if isinstance(entry, str) else ""
    if not _NUMBER.fullmatch(text):
        raise InvalidDistributionError(
            f"the {name} distribution has {shown(entry)} at index {index}; allowed are numbers "
            "such as 0.25, 1e-3 and 1/3, with at most 400 digits"
        )
    return Fraction(text) if exact else float(text)
