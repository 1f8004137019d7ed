"""Find small mistakes in the core that no test would detect.

    python -m benchmarks.mutation [--modules NAME ...] [--sample N] [--seconds S] [--save]

Each function of the modules is changed in many small ways, one at a time.  A comparison or operator
is replaced, a constant changes by one, a condition is negated, a call is removed or gets swapped
arguments, a statement is removed.  pytest collects the tests once, and measures the time of each
test and the functions that it runs once.  Then each mutant is a fork in which the function runs the
changed code.  The fork runs the tests of this function until one fails: first the tests that have
killed other mutants, then the fastest ones.  A test that takes ten times as long as usual also
kills the mutant.

The order of the mutants is random, so that the mutants tried within the time limit are a sample of
all.  With --save the result goes to benchmarks/results/mutation.json; docs/reliability.md shows it.
"""

import argparse
import json
import os
import random
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from benchmarks.machine import machine
from benchmarks.mutation.equivalent import EQUIVALENT
from benchmarks.mutation.mutants import Mutant, mutants_of
from benchmarks.mutation.session import Session, interval

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"

MODULES = """
_core.ratios.bins _core.ratios.keys solve certificate optimum.cut optimum.division_factor
optimum.bounds coupling.plan coupling.optimal.plan coupling.optimal.slots coupling.optimal.swaps
coupling.k_seq coupling.recursive_rejection coupling.maximal coupling.residual
""".split()

TESTS = """
tests/test_certificate.py tests/test_certificate_builder.py tests/test_solve.py
tests/test_sparse_problems.py tests/test_bad_input.py tests/test_solution_rows.py
tests/test_concurrency.py tests/core/ratios/test_bins.py tests/core/probs/test_sparse.py
tests/core/test_tensors.py tests/optimum/test_cut.py tests/optimum/test_bounds.py
tests/optimum/test_torch.py tests/coupling/test_k_seq.py tests/coupling/test_maximal.py
tests/coupling/test_mutants.py tests/coupling/test_one_set.py
tests/coupling/lossy/test_lenient.py tests/coupling/lossy/test_typical_acceptance.py
tests/coupling/optimal/test_agreeing.py tests/coupling/optimal/test_plan.py
tests/coupling/test_plan_input.py tests/coupling/test_plan_protocol.py
tests/coupling/test_recursive_rejection.py tests/coupling/test_transport.py
""".split()


QUIET = """
-W ignore::pytest.PytestAssertRewriteWarning -p no:cacheprovider -p no:terminal -p no:xdist
""".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", nargs="+", default=MODULES, choices=MODULES, metavar="NAME")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="FILE")
    parser.add_argument("--sample", type=int, default=sys.maxsize, help="most mutants")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="most time for them")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of the mutants")
    parser.add_argument("--again", action="store_true", help="only mutants that survived last time")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    modules = [import_module(f"otm.{name}") for name in options.modules]
    mutants = [mutant for module in modules for mutant in mutants_of(module)]
    random.Random(options.seed).shuffle(mutants)
    last = json.loads(RESULTS.read_text(encoding="utf-8")) if options.again else None
    count = len(mutants)
    if last is not None:
        mutants = [mutant for mutant in mutants if mutant.key in last["survivors"]]
    found: dict[str, Any] = {}
    files = [f"otm/{name.replace('.', '/')}.py" for name in options.modules]
    session = Session(modules, lambda run: found.update(try_all(run, mutants, options)))
    pytest.main([*QUIET, *options.tests, *files], plugins=[session])
    if last is not None:
        for number in ("tried", "seconds"):
            found[number] = last[number]
        found["equivalent"] += last["equivalent"]
        found["killed by time"] += last["killed by time"]
    judged = found["tried"] - found["equivalent"]
    found["killed"] = killed = judged - len(found["survivors"])
    low, high = interval(killed, judged)
    print(
        f"{killed} of {judged} killed, {killed / judged:.1%} ({low:.1%} to {high:.1%} of all "
        f"{count}); {found['equivalent']} are equivalent"
    )
    if options.save:
        record = {
            "machine": machine("numpy", "pytest", "hypothesis"), "modules": options.modules,
            "mutants": count, "score": killed / judged, "interval": [low, high], **found,
        }  # fmt: skip
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        RESULTS.write_text(text, encoding="utf-8")


def try_all(session: Session, mutants: list[Mutant], options: argparse.Namespace) -> dict[str, Any]:
    """Try mutants within the time limit, and return the survivors."""
    start, tried, equivalent = time.monotonic(), 0, 0
    survivors = []
    for mutant in mutants[: options.sample]:
        if time.monotonic() - start > options.seconds:
            break
        try:
            killed = mutant.key in EQUIVALENT or session.kills(mutant)
        except KeyboardInterrupt:  # the tried mutants are still a random sample
            break
        tried += 1
        equivalent += mutant.key in EQUIVALENT
        if not killed:
            survivors.append(mutant.key)
            print(
                f"{mutant.name}, line {mutant.line}\n  {mutant.before}\n  {mutant.after}",
                flush=True,
            )
        if tried % 50 == 0:
            print(f"-- {tried} of {len(mutants)}, {time.monotonic() - start:.0f} s", flush=True)
    print(*session.timeouts, sep="\n")
    return {
        "tried": tried, "equivalent": equivalent, "killed by time": len(session.timeouts),
        "seconds": round(time.monotonic() - start), "seed": options.seed,
        "survivors": sorted(survivors),
    }  # fmt: skip


if __name__ == "__main__":
    main()
