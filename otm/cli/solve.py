"""``otm solve``: the optimal acceptance probability of a pair of distributions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from otm._core.arithmetic import Number
from otm._core.files.paths import check_place
from otm._core.interval import Interval
from otm.cli.distributions import check_exact_size, read_distributions
from otm.cli.output import as_json, exact_text, print_facts, print_json, print_table
from otm.coupling.comparison import Comparison, compare
from otm.problem import Problem
from otm.solution import Solution
from otm.solve import solve as solve_problem


def solve(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A file of both distributions, or one of the draft distribution and one of the "
            "target distribution: .json, .npy, .npz or .safetensors.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    *,
    draft: Annotated[
        str | None, typer.Option(help="The draft distribution, such as 0.5,0.5 or 1/3,2/3.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The target distribution, in the same way.")
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Number of i.i.d. drafts.")] = 1,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Compute in fractions; so it is if a distribution has any."),
    ] = False,
    method: Annotated[str, typer.Option(help="auto, closed-form, lp-highs or lp-cvxpy.")] = "auto",
    compared: Annotated[
        bool, typer.Option("--compare", help="Also compare the rules of the literature.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="Write a proof of optimality to this file.", metavar="FILE")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the optimal acceptance probability α for k drafts, and prove it.

    A JSON file is a list of numbers, or {"draft": [...], "target": [...]}; fractions are written as
    strings, "1/3".  In .npz and .safetensors files the distributions are called draft and target,
    or there is one file for each.  Nothing in a file is executed.
    """
    if certificate is not None:
        check_place(certificate)
    laws = read_distributions(files or [], draft, target, exact=exact)
    for law in laws:
        check_exact_size(law, k)
    problem = Problem(*laws, k)
    if exact:
        problem = problem.to_exact()
        check_exact_size(problem.draft, k)
    solution = solve_problem(problem.draft, problem.target, k, method=method)
    comparison = compare(problem.draft, problem.target, k) if compared else None
    if certificate is not None:
        solution.certificate.check()
        solution.certificate.save(certificate)
    if json:
        print_json(_document(solution, comparison))
        return
    print_facts(_facts(solution))
    if comparison is not None:
        print()
        print_table(
            ("rule", "drafts", "acceptance", "optimum", "output distribution"),
            [_cells(rule) for rule in comparison],
        )


def _facts(solution: Solution) -> list[tuple[str, str]]:
    problem, proof = solution.problem, solution.certificate
    rounded, exactly = f"{float(solution.alpha):.12g}", exact_text(solution.alpha)
    return [
        ("problem", f"n = {problem.n:,} tokens, k = {problem.k} drafts"),
        ("numbers", "exact fractions" if problem.exact else "float64"),
        ("α", rounded if exactly in (None, rounded) else f"{rounded} = {exactly}"),
        ("gap", f"{float(proof.gap):.0g} (certificate)"),
        ("method", f"{solution.method}: {solution.why}"),
    ]


def _cells(rule: Any) -> tuple[str, ...]:
    lost = rule.distance
    law = "exact" if lost is None else f"TV {float(lost.total_variation):.2g}"
    numbers = (_short(rule.acceptance), _short(rule.optimum))
    return (rule.name, str(rule.plan.drafts), *numbers, law)


def _short(value: Number | Interval) -> str:
    return f"{value:.4f}" if isinstance(value, Interval) else f"{float(value):.4f}"


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
    return document
