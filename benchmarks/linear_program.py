"""Compare general solvers on OTM-k: errors, and the largest instance that each solves in a minute.

    python -m benchmarks.linear_program [--quick]

The same instances go to six methods: the closed form; SpecTr's linear program by HiGHS; POT's
network simplex (its `emd`), dense and sparse, with rows merged by draft multisets; the maximum flow
of OR-Tools in 64-bit integers; and the exact maximum flow.  Errors are relative to the closed form
in fractions.  Every solve runs in a separate process, which is killed at the time limit.  Seconds
are processor time of the solve, without imports; runs are not parallel.  Draft and target are
softmaxes of correlated Gaussian logits.  Times, errors and the largest instance within the limit go
to benchmarks/results/linear_program.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix

import otm
from benchmarks.machine import machine
from otm.errors import MissingDependencyError, ProblemTooLargeError
from otm.optimum.cut import minimum_cut
from otm.optimum.solvers import packing_form, size_of
from otm.optimum.solvers.highs import solve_highs
from otm.optimum.solvers.max_flow import alpha_by_max_flow

RESULTS = Path(__file__).parent / "results" / "linear_program.json"
TIME_LIMIT = 60  # seconds
MEMORY_LIMIT = 8 * 2**30  # estimated bytes
SIZES = {  # a method stops at the first size that it does not solve
    2: [50, 100, 200, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 50_000, 150_000],
    3: [20, 40, 60, 80, 100, 120, 160, 200, 240, 320, 400, 480, 50_000, 150_000],
}
QUICK_SIZES = {2: [10, 20], 3: [6, 10]}


def closed_form(problem: otm.Problem) -> float:
    return float(otm.alpha(problem.draft, problem.target, problem.k))


def highs(problem: otm.Problem) -> float:
    return solve_highs(packing_form(problem, MEMORY_LIMIT)).value


def pot_dense(problem: otm.Problem) -> float:
    """Solve by POT on the full cost matrix 1{y ∉ S}, the usual input of `emd`."""
    size = size_of(problem)
    require(6 * 8 * (size.rows - problem.n) * problem.n)  # it needs about six such matrices
    emd, program = import_pot(), packing_form(problem, MEMORY_LIMIT)
    costs = np.ones((len(program.sets), program.tokens.size))
    costs[program.set_of, program.token_of] = 0
    plan, log = emd(program.set_capacity, program.token_capacity, costs, numItermax=10**9, log=True)
    raise_if(log["warning"])
    return float(plan[program.set_of, program.token_of].sum())


def pot_sparse(problem: otm.Problem) -> float:
    """Solve by POT on the pairs y ∈ S; an extra row and column take the mass not accepted."""
    require(400 * size_of(problem).variables)
    emd, program = import_pot(), packing_form(problem, MEMORY_LIMIT)
    sets, tokens = len(program.sets), program.tokens.size
    rows = [program.set_of, np.arange(sets), np.full(tokens, sets), [sets]]
    columns = [program.token_of, np.full(sets, tokens), np.arange(tokens), [tokens]]
    costs = [np.zeros(program.set_of.size), np.full(sets, 0.5), np.full(tokens, 0.5), [0.0]]
    matrix = coo_matrix(
        (np.concatenate(costs), (np.concatenate(rows), np.concatenate(columns))),
        shape=(sets + 1, tokens + 1),
    )
    marginals = [np.append(law, 1.0) for law in (program.set_capacity, program.token_capacity)]
    plan, log = emd(*marginals, matrix, numItermax=10**9, log=True)
    raise_if(log["warning"])
    return float(plan.tocsr()[:sets, :tokens].sum())


def or_tools(problem: otm.Problem) -> float:
    """Solve by push-relabel of OR-Tools, with masses as integer multiples of 2^−52."""
    require(200 * size_of(problem).variables)
    try:
        from ortools.graph.python import max_flow
    except ImportError as error:
        raise MissingDependencyError(
            'OR-Tools is not installed: pip install "otm[benchmarks]"'
        ) from error
    program = packing_form(problem, MEMORY_LIMIT)
    sets, tokens = len(program.sets), program.tokens.size
    source, sink = sets + tokens, sets + tokens + 1
    unit = 2.0**52
    arcs = [
        (np.full(sets, source), np.arange(sets), program.set_capacity * unit),
        (program.set_of, sets + program.token_of, np.full(program.set_of.size, unit)),
        (sets + np.arange(tokens), np.full(tokens, sink), program.token_capacity * unit),
    ]
    tails, heads, capacities = (np.concatenate(parts) for parts in zip(*arcs, strict=True))
    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(tails, heads, np.floor(capacities).astype(np.int64))
    raise_if(None if flow.solve(source, sink) == flow.OPTIMAL else "no optimal flow")
    return float(flow.optimal_flow() / unit)


def max_flow(problem: otm.Problem) -> Fraction:
    return alpha_by_max_flow(problem)


METHODS: dict[str, Callable[[otm.Problem], float | Fraction]] = {
    "closed form": closed_form,
    "HiGHS": highs,
    "POT dense": pot_dense,
    "POT sparse": pot_sparse,
    "OR-Tools": or_tools,
    "max flow": max_flow,
}


def import_pot() -> Callable[..., Any]:
    try:
        import ot
    except ImportError as error:
        raise MissingDependencyError(
            'POT is not installed: pip install "otm[benchmarks]"'
        ) from error
    return ot.emd


def require(estimate: int) -> None:
    if estimate > MEMORY_LIMIT:
        raise ProblemTooLargeError(f"needs about {estimate:.3g} bytes, above the limit")


def raise_if(warning: str | None) -> None:
    if warning:
        raise RuntimeError(warning)


def problem_of(n: int, k: int) -> otm.Problem:
    rng = np.random.default_rng([n, k])
    logits = rng.normal(size=n)
    draft = np.exp(2 * logits)
    target = np.exp(2 * (0.8 * logits + 0.6 * rng.normal(size=n)))
    return otm.Problem(draft / draft.sum(), target / target.sum(), k)


def solve_one(method: str, n: int, k: int) -> dict[str, Any]:
    """Time one solve in this process, and repeat quick solves."""
    problem = problem_of(n, k)
    times: list[float] = []
    try:
        METHODS[method](problem_of(3, 2))  # the first call imports packages
        memory = peak_memory()
        while not times or (len(times) < 7 and sum(times) < 1):
            start = time.process_time()
            value = METHODS[method](problem)
            times.append(time.process_time() - start)
    except ProblemTooLargeError as error:
        return {"outcome": "too large", "why": str(error)}
    except MissingDependencyError as error:
        return {"outcome": "not installed", "why": str(error)}
    result: dict[str, Any] = {"outcome": "solved", "seconds": statistics.median(times)}
    if memory:
        result["megabytes"] = round((peak_memory() - memory) / 1e6, 1)
    exact = minimum_cut(problem.to_exact()).value
    result["error"] = float(abs(Fraction(value) - exact))
    return result


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; 0 if the system does not report it."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def solve_apart(method: str, n: int, k: int, limit: float) -> dict[str, Any]:
    """Solve in a separate process, which is killed at the time limit."""
    command = [sys.executable, "-m", __spec__.name, "--one", method, str(n), str(k)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "out of time"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"outcome": "failed", "why": last[0]}
    result: dict[str, Any] = json.loads(done.stdout)
    if result.get("seconds", 0) > limit:
        result["outcome"] = "out of time"
    return result


def measure(sizes: dict[int, list[int]], limit: float) -> Iterator[dict[str, Any]]:
    for k, ladder in sizes.items():
        for method in METHODS:
            for n in ladder:
                result = {"method": method, "k": k, "n": n, **solve_apart(method, n, k, limit)}
                say(result)
                yield result
                if result["outcome"] != "solved":
                    break


def say(result: dict[str, Any]) -> None:
    numbers = [
        f"{result[name]:.3g} {unit}"
        for name, unit in (("seconds", "s"), ("megabytes", "MB"))
        if name in result
    ]
    if "error" in result:
        numbers.append(f"error {result['error']:.1e}")
    details = ", ".join([result["outcome"], *numbers, *filter(None, [result.get("why")])])
    print(f"k = {result['k']}  n = {result['n']:<9,} {result['method']:<11} {details}", flush=True)


def largest(results: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the largest n solved in time, by k and method."""
    found: dict[str, dict[str, int]] = {}
    for result in results:
        if result["outcome"] == "solved":
            by_method = found.setdefault(str(result["k"]), {})
            by_method[result["method"]] = max(result["n"], by_method.get(result["method"], 0))
    return found


def show(results: list[dict[str, Any]], limit: float) -> None:
    for k, best in largest(results).items():
        of_k = [result for result in results if str(result["k"]) == k]
        print(f"\nk = {k}: seconds (error against fractions)")
        print(f"{'n':>9}" + "".join(f"{method:>21}" for method in METHODS))
        for n in sorted({result["n"] for result in of_k}):
            cells = {result["method"]: cell(result) for result in of_k if result["n"] == n}
            print(f"{n:>9,}" + "".join(f"{cells.get(method, ''):>21}" for method in METHODS))
        print(f"largest solved in {limit:g} s: ", end="")
        print(", ".join(f"{method} n = {best.get(method, 0):,}" for method in METHODS))


def cell(result: dict[str, Any]) -> str:
    if result["outcome"] != "solved":
        return str(result["outcome"])
    error = f" ({result['error']:.0e})" if "error" in result else ""
    return f"{result['seconds']:.2g}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes no file")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "N", "K"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        method, n, k = arguments.one
        print(json.dumps(solve_one(method, int(n), int(k))))
        return
    sizes, limit = (QUICK_SIZES, 10) if arguments.quick else (SIZES, TIME_LIMIT)
    results = list(measure(sizes, limit))
    show(results, limit)
    if not arguments.quick:
        document = {
            "time limit": limit,
            "largest solved in time": largest(results),
            "results": results,
            **machine("numpy", "scipy", "highspy", "POT", "ortools", "networkx"),
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"written: {RESULTS.name}")


if __name__ == "__main__":
    main()
