"""Which small mistakes in the core no test would notice.

    python -m benchmarks.mutation [--modules NAME ...] [--sample N] [--seconds S] [--save]

Each function of the modules is changed in many small ways, one at a time: a comparison or an
operator by another, a constant by one, a condition by its contrary, a call left out or made with
swapped arguments, a statement dropped.  The tests are collected once; what each takes, and which
functions it runs, is measured once.  Then every mutant is a fork in which the function runs the
changed code, and the tests that run the function are run until one fails: those that found others
first, then the fastest.  A test that takes ten times as long as usual has found the mutant too.

Mutants are tried in random order, so that those tried before time is up are a sample of all.  With
--save the result is written to benchmarks/results/mutation.json; docs/reliability.md shows it.
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
solve certificate membership.cut membership.division_factor membership.bounds coupling.plan
coupling.optimal coupling.slots coupling.swaps coupling.k_seq coupling.recursive_rejection
coupling.maximal coupling.residual
""".split()

TESTS = """
tests/test_certificate.py tests/test_proof.py tests/test_solve.py tests/test_on_tokens.py
tests/test_bad_input.py tests/test_concurrency.py tests/membership/test_cut.py
tests/membership/test_bounds.py tests/coupling/test_k_seq.py
tests/coupling/test_maximal.py tests/coupling/test_mutants.py tests/coupling/test_optimal.py
tests/coupling/test_plan_input.py tests/coupling/test_plan_protocol.py
tests/coupling/test_recursive_rejection.py
""".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--modules", nargs="+", default=MODULES, choices=MODULES, metavar="NAME")
    parser.add_argument("--sample", type=int, default=sys.maxsize, help="most mutants")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="most time for them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    modules = [import_module(f"otm.{name}") for name in options.modules]
    mutants = [mutant for module in modules for mutant in mutants_of(module)]
    random.Random(options.seed).shuffle(mutants)
    files = [f"otm/{name.replace('.', '/')}.py" for name in options.modules]
    session = Session(modules, lambda run: try_all(run, mutants, options))
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:xdist"]
    pytest.main([*quiet, *TESTS, *files], plugins=[session])


def try_all(session: Session, mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Try mutants until time is up, and show the result."""
    start, tried, killed = time.monotonic(), 0, 0
    open_, known = [], []
    for mutant in mutants[: options.sample]:
        if time.monotonic() - start > options.seconds:
            break
        tried += 1
        if mutant.key in EQUIVALENT:
            known.append(mutant)
        elif session.kills(mutant):
            killed += 1
        else:
            open_.append(mutant)
            print(f"{mutant.module}:{mutant.line} {mutant.name}\n  {mutant.before}\n  {mutant.after}", flush=True)
        if tried % 50 == 0:
            print(f"-- {tried} of {len(mutants)}, {time.monotonic() - start:.0f} s", flush=True)
    judged = killed + len(open_)
    low, high = interval(killed, judged) if tried < len(mutants) else (killed / judged,) * 2
    print(f"{killed} of {judged} killed: {killed / judged:.1%}; {len(known)} change nothing")
    by_module: dict[str, Any] = {}
    for mutant in mutants[:tried]:
        row = by_module.setdefault(mutant.module, {"tried": 0, "equivalent": 0, "survived": 0})
        row["tried"] += 1
        row["equivalent"] += mutant in known
        row["survived"] += mutant in open_
    if options.save:
        record = {
            "machine": machine("numpy", "pytest", "hypothesis"),
            "mutants": len(mutants), "tried": tried, "seed": options.seed, "killed": killed,
            "killed by time": session.timeouts, "equivalent": len(known), "survived": len(open_),
            "score": killed / judged, "interval": [low, high],
            "seconds": round(time.monotonic() - start),
            "modules": dict(sorted(by_module.items())),
            "survivors": sorted(mutant.key for mutant in open_),
        }  # fmt: skip
        RESULTS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
