"""Measure the time of solving OTM-k in multiples of `np.argsort`, and the exactness of the results.

    python -m benchmarks.solve

All measurements run on one core; the contestants take turns, with the default memory allocator.  A
time is the least processor time of several rounds; other programs on the machine raise it by a
tenth or so.  With --save the record also goes to benchmarks/results/solve.json.
"""

import os
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

import otm
from benchmarks.command import command, keep, options_of
from benchmarks.fastest_sort import FastestSort
from benchmarks.machine import machine
from otm.coupling import OptimalPlan
from otm.optimum.cut import minimum_cut

RESULTS = Path(__file__).parent / "results" / "solve.json"
TIMED = ("random", "peaked", "language model", "lognormal", "near")
LAWS = (*TIMED, "flat", "sparse", "disjoint", "equal")


def pair_of_laws(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a draft and a target distribution of a named kind, with a fixed seed."""
    rng = np.random.default_rng(7)

    def zipf(exponent: float) -> np.ndarray:
        return rng.permutation(1 / np.arange(1, n + 1) ** exponent)

    if kind == "random":
        p, q = rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(n))
    elif kind == "peaked":
        p, q = zipf(2), zipf(2)
    elif kind == "language model":
        p = zipf(1.2)
        q = p * np.exp(rng.normal(size=n))
    elif kind == "lognormal":
        p, q = (np.exp(4 * rng.normal(size=n)) for _ in range(2))
    elif kind == "near":  # each target probability is within 1e-4 of the draft probability
        p = zipf(1.2)
        q = p * rng.uniform(1 - 1e-4, 1 + 1e-4, n)
    elif kind == "flat":
        p, q = np.ones(n), rng.uniform(0.9, 1.1, n)
    elif kind == "sparse":
        p, q = rng.dirichlet(np.full(n, 0.01)), rng.dirichlet(np.full(n, 0.01))
    elif kind == "disjoint":
        p, q = zipf(1.2), zipf(1.2)
        p[::2], q[1::2] = 0, 0
    else:  # draft and target are equal
        p = zipf(1.2)
        q = p.copy()
    return p / p.sum(), q / q.sum()


def solve_with_plan(p: np.ndarray, q: np.ndarray, k: int) -> otm.Solution:
    """Solve, and build the plan with the tables that a selection reads."""
    solution = otm.solve(p, q, k)
    plan = solution.plan
    drafts = p.argmax().repeat(k)
    plan.select(drafts, np.full(plan.uniforms_per_selection, 0.5))
    return solution


def solve_with_certificate(p: np.ndarray, q: np.ndarray, k: int) -> otm.Solution:
    """Solve, build the plan, and check the certificate."""
    solution = solve_with_plan(p, q, k)
    solution.certificate.check()
    return solution


def processor_seconds() -> float:
    """Return the processor seconds of this process and of its ended children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def in_turns(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least processor seconds of each contestant; each runs once per round."""
    times = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, contestant in contestants.items():
            start = processor_seconds()
            contestant()
            times[name] = min(times[name], processor_seconds() - start)
    return times


def settle_allocator() -> None:
    """Free one large array, as any process with logits has done.

    Afterwards glibc keeps freed memory for the next array.  Before, it returns memory to the system
    and gets it back page by page, which takes up to a third of the time of a solve.
    """
    np.ones(4_000_000)


def speed(n: int, rounds: int) -> Iterator[dict[str, object]]:
    """Measure times as multiples of the time to sort n random numbers."""
    with FastestSort(n) as sort_once:
        for kind in TIMED:
            p, q = pair_of_laws(kind, n)
            for k in (2, 8, 64):
                sorts: list[float] = []
                times = in_turns(
                    {
                        "argsort": lambda sorts=sorts: sorts.append(sort_once()),
                        "alpha": lambda p=p, q=q, k=k: otm.alpha(p, q, k),
                        "plan": lambda p=p, q=q, k=k: solve_with_plan(p, q, k),
                        "certificate": lambda p=p, q=q, k=k: solve_with_certificate(p, q, k),
                    },
                    rounds,
                )
                sort = min(sorts)
                yield {
                    "laws": kind,
                    "k": k,
                    "argsort ms": sort * 1e3,
                    "alpha": times["alpha"] / sort,
                    "plan": times["plan"] / sort,
                    "certificate": times["certificate"] / sort,
                }


def accuracy(n: int) -> Iterator[dict[str, object]]:
    """Measure the errors of the plan's output distribution, and the certificate's gap."""
    for kind in LAWS:
        p, q = pair_of_laws(kind, n)
        for k in (2, 8, 64):
            solution = otm.solve(p, q, k)
            law = solution.plan.output_distribution()
            solution.certificate.check()
            yield {
                "laws": kind,
                "k": k,
                "alpha": solution.alpha,
                "acceptance": abs(solution.plan.acceptance - solution.alpha),
                "output distribution": float(np.abs(law - solution.problem.target).max()),
                "TV": float(np.abs(law - solution.problem.target).sum() / 2),
                "gap": solution.certificate.gap,
            }


def selections(n: int, rounds: int) -> dict[str, float]:
    """Measure the milliseconds to build small plans, and to select with a large plan."""
    found = {}
    for support, k in ((10, 5), (1_000, 5)):
        p, q = pair_of_laws("language model", support)
        seconds = in_turns({"plan": lambda p=p, q=q, k=k: solve_with_plan(p, q, k)}, 20 * rounds)
        found[f"plan, support {support:,}, k = {k}, ms"] = 1e3 * seconds["plan"]
    p, q = pair_of_laws("language model", n)
    plan = otm.solve(p, q, 8).plan
    rng = np.random.default_rng(2)
    drafts = plan.drafts.draw(rng.random((10_000, 8)))
    uniforms = rng.random((10_000, plan.uniforms_per_selection))
    plan.select(drafts, uniforms)
    pairs = iter(zip(drafts, uniforms, strict=True))
    one = in_turns({"select": lambda: plan.select(*next(pairs))}, 100 * rounds)
    many = in_turns({"select": lambda: plan.select(drafts, uniforms)}, rounds)
    found[f"one select, n = {n:,}, k = 8, ms"] = 1e3 * one["select"]
    found[f"10,000 selects at once, n = {n:,}, k = 8, ms"] = 1e3 * many["select"]
    return found


def memory(n: int) -> float:
    """Return the peak bytes that `otm.alpha` allocates per byte of its two distributions."""
    p, q = pair_of_laws("random", n)
    tracemalloc.start()
    otm.alpha(p, q, 8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / (p.nbytes + q.nbytes)


def stand_alone_checker(n: int, k: int) -> float:
    """Return the seconds of the standard-library checker on a large instance's certificate."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        otm.solve(*pair_of_laws("language model", n), k).certificate.save(path)
        checker = Path(otm.__file__).parent / "certificate.py"
        start = processor_seconds()
        subprocess.run([sys.executable, "-I", "-S", checker, path], check=True, capture_output=True)
        return processor_seconds() - start


def exact_mode(n: int, k: int) -> dict[str, float]:
    """Measure the seconds for value, plan and checked certificate in fractions."""
    rng = np.random.default_rng(3)
    weights = [rng.integers(0, 2**30, n).tolist() for _ in range(2)]
    p, q = ([Fraction(w, sum(law)) for w in law] for law in weights)
    start = processor_seconds()
    solution = otm.solve(p, q, k)
    value = processor_seconds() - start
    exact = solution.plan.acceptance == solution.alpha == minimum_cut(solution.problem).value
    plan = processor_seconds() - start
    solution.certificate.check()
    total = processor_seconds() - start
    if not (exact and solution.certificate.gap == 0 and isinstance(solution.plan, OptimalPlan)):
        raise SystemExit("exact mode was not exact")
    return {"value s": value, "with plan s": plan, "with certificate s": total}


def import_time(rounds: int = 15) -> float:
    """Return the time of `import otm` over `import numpy`, without the interpreter's start."""

    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    times = in_turns(
        {"none": run("pass"), "numpy": run("import numpy"), "otm": run("import otm")}, rounds
    )
    return (times["otm"] - times["none"]) / (times["numpy"] - times["none"])


def table(title: str, rows: list[dict[str, object]]) -> None:
    """Print rows in columns, under their common keys."""
    print(f"\n{title}")
    print("  ".join(f"{name:>14}" for name in rows[0]))
    for row in rows:
        cells = (f"{v:14.3g}" if isinstance(v, float) else f"{v!s:>14}" for v in row.values())
        print("  ".join(cells))


def main() -> None:
    arguments = options_of(command(__doc__))
    quick = arguments.quick
    n = 5_000 if quick else 150_000
    rounds = 3 if quick else 15

    # The sort runs in a separate process, but on the same core.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    times = list(speed(n, rounds))
    table(f"Time at n = {n:,}, as multiples of np.argsort of n random numbers", times)
    errors = list(accuracy(n))
    table(f"Distance from exact at n = {n:,}", errors)
    single: dict[str, object] = {
        **selections(n, rounds),
        "alpha, bytes per byte": memory(n),
        "stand-alone checker, k = 8, s": stand_alone_checker(n, 8),
        "stand-alone checker, k = 64, s": stand_alone_checker(n, 64),
        "import otm / import numpy": import_time(3 if quick else 15),
        **{f"exact mode, {name}": t for name, t in exact_mode(n // 15, 8).items()},
    }
    print()
    for name, value in single.items():
        print(f"{name:<48}{value:.3g}")
    if arguments.save:
        record = {"n": n, "times": times, "accuracy": errors, "single": single, **machine("numpy")}
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
