"""Measure the acceptance of the selection rules on real pairs of distributions, and their cost.

    python -m benchmarks.rules [--quick] [--save]

Acceptance is exact, averaged over evenly spaced positions of the held-out part of the shipped text.
A bigram model drafts for a trigram model.  If the exact number would take too long, it is estimated
from sampled drafts and their exact acceptance probabilities.  Cost is measured on one pair of
distributions with a language model's vocabulary: building the rule and its selection tables, one
selection at a time, and many selections at once.  With --save the results go to
benchmarks/results/rules.json.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from benchmarks.solve import pair_of_laws, settle_allocator
from figures.language_models import next_token_probs
from figures.progress import progress
from otm import Problem
from otm.coupling import PLANS, RecursiveRejectionWithoutReplacement, TransportPlan

RESULTS = Path(__file__).parent / "results" / "rules.json"
DRAFTS = (1, 2, 4, 8)
SEED = 0
WITHOUT_REPLACEMENT = "recursive rejection without replacement"
DRAWS = 50  # draws for each position if acceptance is estimated
LARGEST_EXACT = 2  # maximum number of drafts without replacement for an exact sum


def acceptance(contexts: int) -> dict[str, dict[int, float]]:
    """Return the mean acceptance probability by rule and by number of drafts."""
    values: dict[str, dict[int, list[float]]] = {name: {k: [] for k in DRAFTS} for name in PLANS}
    rng = np.random.default_rng(SEED)
    for draft, target, _ in progress(next_token_probs(contexts, SEED), contexts, "rules"):
        for k in DRAFTS:
            problem = Problem(draft, target, k)
            for name, rule in PLANS.items():
                plan = rule(problem)
                if plan.drafts.k != k:
                    continue
                if isinstance(plan, RecursiveRejectionWithoutReplacement) and k > LARGEST_EXACT:
                    uniforms = rng.random((DRAWS, plan.drafts.uniforms_per_draw))
                    chances = plan.acceptance_given(plan.drafts.draw(uniforms))
                    values[name][k].append(float(chances.mean()))
                else:
                    values[name][k].append(float(plan.acceptance))
    return {
        name: {k: statistics.mean(found) for k, found in by_k.items() if found}
        for name, by_k in values.items()
    }


def cost(n: int, k: int, rounds: int, sets: int) -> dict[str, dict[str, float]]:
    """Measure each rule: ms to build it, µs of one selection, and µs of one among many."""
    problem = Problem(*pair_of_laws("language model", n), k)
    found = {}
    for name, rule in PLANS.items():
        plan = rule(problem)
        rng = np.random.default_rng(SEED)
        drafts = plan.drafts.draw(rng.random((sets, plan.drafts.uniforms_per_draw)))
        uniforms = rng.random((sets, plan.uniforms_per_selection))
        found[name] = {
            "build ms": 1e3 * build_time(problem, name, drafts[0], uniforms[0], rounds),
            "one select µs": 1e6 * select_time(plan, drafts, uniforms, rounds),
            "many, µs each": 1e6 * many_time(plan, drafts, uniforms, rounds) / sets,
        }
    return found


def build_time(problem: Problem, name: str, drafts: Any, uniforms: Any, n: int) -> float:
    """Return the median seconds from two distributions to the first selection."""
    times = []
    for _ in range(n):
        fresh = Problem(problem.draft, problem.target, problem.k)
        start = time.perf_counter()
        PLANS[name](fresh).select(drafts, uniforms)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def select_time(plan: TransportPlan, drafts: Any, uniforms: Any, rounds: int) -> float:
    """Return the median seconds of one selection in a loop."""
    times = []
    for i in range(10 * rounds):
        start = time.perf_counter()
        plan.select(drafts[i % len(drafts)], uniforms[i % len(drafts)])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def many_time(plan: TransportPlan, drafts: Any, uniforms: Any, rounds: int) -> float:
    """Return the median seconds of all selections in one call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        plan.select(drafts, uniforms)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def show(record: dict[str, Any]) -> None:
    print(f"\n{'mean acceptance':<42}" + "".join(f"{f'k = {k}':>9}" for k in DRAFTS))
    for name, by_k in record["acceptance"].items():
        cells = (f"{by_k[k]:9.4f}" if k in by_k else f"{'':>9}" for k in DRAFTS)
        print(f"{name:<42}" + "".join(cells))
    columns = next(iter(record["cost"].values()))
    print(f"\n{'cost':<42}" + "".join(f"{column:>16}" for column in columns))
    for name, row in record["cost"].items():
        print(f"{name:<42}" + "".join(f"{value:16.3g}" for value in row.values()))


def main() -> None:
    arguments = options_of(command(__doc__))
    contexts, n, rounds, sets = (5, 500, 3, 20) if arguments.quick else (200, 32_000, 15, 200)
    settle_allocator()
    record = {
        "contexts": contexts,
        "n": n,
        "k": 4,
        "estimated": {WITHOUT_REPLACEMENT: [k for k in DRAFTS if k > LARGEST_EXACT]},
        "acceptance": acceptance(contexts),
        "cost": cost(n, 4, rounds, sets),
        **machine("numpy"),
    }
    show(record)
    if arguments.save:
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
