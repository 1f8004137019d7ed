"""Check the exactness of every rule on thousands of extreme instances, in fractions and in floats.

    python -m benchmarks.exactness [--quick] [--save] [--seed N]

In fractions, all drafts are enumerated for each rule.  The output distribution must equal the
target.  The acceptance must equal that of the enumeration, and be at most the optimum for the
drafts.  In floats, the output distribution must equal the target within the tolerance, and the
acceptance may exceed the optimum by at most the tolerance.  Every number must be finite, and no
selection may return a token of target probability zero.  In both cases the acceptances must obey
the theorems: maximal coupling and recursive rejection accept at most as much as k-Seq, and all
rules for i.i.d. drafts at most the optimum.  The rules for greedy drafts and for SpecHub's pairs
are optimal for these drafts.
"""

import itertools
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import otm
from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.progress import progress
from otm import Problem
from otm.coupling import PLANS, TransportPlan
from otm.testing import exact_acceptance, exact_output_distribution

RESULTS = Path(__file__).parent / "results" / "exactness.json"
TOLERANCE = 1e-12
KINDS = ("dense", "zeros", "ties", "one ulp apart", "subnormal", "skewed", "one token")
PAIRS = ("independent", "equal", "disjoint", "near")
NEVER_ABOVE = (
    ("recursive rejection", "k-Seq"),
    ("k-Seq", "optimal"),
    ("importance selection", "optimal"),
    ("naive target sampling", "optimal"),
    ("list coupling", "optimal"),
    ("non-iterative rejection", "optimal"),
    ("maximal coupling", "k-Seq"),
)


def weights(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one distribution of a kind, in floats."""
    probs = rng.integers(1, 1000, n).astype(np.float64)
    some = rng.permutation(n)[: rng.integers(1, n)] if n > 1 else np.empty(0, np.int64)
    if kind == "zeros":
        probs[some] = 0
    elif kind == "ties":
        probs = rng.integers(1, 3, n).astype(np.float64)
    elif kind == "one ulp apart" and n > 1:
        probs /= probs.sum()
        probs[some] = np.nextafter(probs[some[0]], 1)
    elif kind == "subnormal":
        probs /= probs.sum()
        probs[some] = rng.integers(1, 9, some.size) * 2.0**-1074
    elif kind == "skewed":
        probs = 2.0 ** -rng.integers(0, 60, n)
    elif kind == "one token":
        probs = np.eye(n)[rng.integers(n)]
    return probs / probs.sum()


def pair(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a draft and a target distribution of random kinds."""
    draft, target = (weights(KINDS[rng.integers(len(KINDS))], n, rng) for _ in range(2))
    how = PAIRS[rng.integers(len(PAIRS))]
    if how == "equal":
        target = draft
    elif how == "near":
        target = draft.copy()
        token = rng.integers(n)
        target[token] = np.nextafter(target[token], 1)
    elif how == "disjoint" and n > 1:
        half = rng.integers(1, n)
        draft[half:], target[:half] = 0, 0
        draft[0] += draft.sum() == 0
        target[-1] += target.sum() == 0
        draft, target = draft / draft.sum(), target / target.sum()
    return draft, target


def problems(
    count: int, max_tokens: int, most_drafts: int, exact: bool, seed: int
) -> Iterator[Problem]:
    rng = np.random.default_rng(seed)
    for _ in progress(range(count), count, "exactness"):
        draft, target = pair(int(rng.integers(1, max_tokens + 1)), rng)
        k = int(rng.integers(1, most_drafts + 1))
        if exact and rng.random() < 0.5:  # small integers, with many ties and zeros
            draft, target = (_small(draft.size, rng) for _ in range(2))
            yield Problem(draft, target, k)
        else:
            problem = Problem(draft, target, k)
            yield problem.to_exact() if exact else problem


def _small(n: int, rng: np.random.Generator) -> list[Fraction]:
    whole = rng.integers(0, 5, n).tolist()
    whole[rng.integers(n)] += 1
    return [Fraction(x, sum(whole)) for x in whole]


def check(name: str, plan: TransportPlan, rng: np.random.Generator) -> dict[str, float]:
    """Return the errors of one plan; raise AssertionError if an exact plan has errors."""
    problem = plan.problem
    probs = plan.output_distribution()
    optimum = otm.alpha(plan.drafts, problem.target)
    if problem.exact:
        enumerated = exact_output_distribution(plan)
        require(probs.tolist() == enumerated.tolist() == problem.target.tolist(), name, problem)
        require(plan.acceptance == exact_acceptance(plan) <= optimum, name, problem)
        if name in {"optimal", "greedy", "SpecHub", "maximal coupling"}:
            require(plan.acceptance == optimum, name, problem)
        return {"distribution": 0.0, "acceptance": 0.0}
    drafts = plan.drafts.draw(rng.random((16, plan.drafts.uniforms_per_draw)))
    uniforms = rng.random((16, plan.uniforms_per_selection))
    uniforms[0] = 0
    token, _ = plan.select(drafts, uniforms)
    conditional = plan.conditional(drafts)
    require((problem.target[token] > 0).all(), name, problem)
    require(bool(np.isfinite(conditional).all() and np.isfinite(probs).all()), name, problem)
    require(abs(conditional.sum(axis=1) - 1).max() <= TOLERANCE, name, problem)
    return {
        "distribution": float(abs(probs - problem.target).max()),
        "acceptance": max(0.0, plan.acceptance - optimum),
    }


def orders(acceptance: dict[str, Any], tolerance: float) -> None:
    for lower, upper in NEVER_ABOVE:
        ordered = acceptance[lower] <= acceptance[upper] + tolerance
        require(ordered, f"{lower} ≤ {upper}", acceptance)


def require(condition: bool, name: str, where: Any) -> None:
    if not condition:
        inputs = (where.draft, where.target, where.k) if isinstance(where, Problem) else ""
        raise AssertionError(f"{name}: {where!r} {inputs}")


def run(title: str, instances: Iterator[Problem]) -> dict[str, Any]:
    """Check all rules on all instances, and return the largest errors."""
    rng = np.random.default_rng(0)
    worst = {name: {"distribution": 0.0, "acceptance": 0.0} for name in PLANS}
    start, count = time.perf_counter(), 0
    for count, problem in zip(itertools.count(1), instances, strict=False):  # noqa: B007
        acceptance = {}
        for name, rule in PLANS.items():
            plan = rule(problem)
            errors = check(name, plan, rng)
            acceptance[name] = plan.acceptance
            worst[name] = {key: max(worst[name][key], errors[key]) for key in errors}
        # Fractions need the tolerance too: k-Seq's ρ* is irrational, and rounded up.
        orders(acceptance, TOLERANCE)
    print(f"\n{title}: {count:,} instances, {time.perf_counter() - start:.0f} s")
    for name, errors in worst.items():
        error, excess = errors["distribution"], errors["acceptance"]
        print(f"{name:<42} distribution {error:.1e}  above the optimum {excess:.1e}")
    largest = max(max(errors.values()) for errors in worst.values())
    require(largest <= TOLERANCE, "tolerance", largest)
    return {"instances": count, "worst": worst}


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    arguments = options_of(parser)
    exact, floats = (5, 20) if arguments.quick else (500, 10_000)
    record = {
        "seed": arguments.seed,
        "fractions": run("fractions, n, k ≤ 4", problems(exact, 4, 4, True, arguments.seed)),
        "floats": run("floats, n ≤ 8, k ≤ 6", problems(floats, 8, 6, False, arguments.seed)),
        **machine("numpy"),
    }
    if arguments.save:
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
