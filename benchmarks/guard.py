"""Check that OTM is not slower than recorded in benchmarks/results/.

    python -m benchmarks.guard [NAME ...]

Times are compared as ratios to another time of the same run, never in seconds: to `np.argsort`, to
one call of `otm.alpha` per row, to the optimal plan, to `import numpy`, to a call of the target
model.  A slower machine passes; a slower OTM does not.  Other load on the machine also changes
ratios.  So a ratio above TOLERANCE times its record is measured again, and counts as slow only if
it is slow in each of TRIES measurements.

The exit code is 1 if a ratio is slow.  The sizes are those of the records; the program takes a
minute or two.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import otm
from benchmarks import report, rows, rules, solve
from benchmarks.layout import record
from otm.gain import Settings
from otm.optimum.many_rows import alpha_rows

__all__ = ["GROUPS", "Group", "best_of", "slower"]

TOLERANCE = 1.5
"""Largest allowed quotient of a measured ratio and its record."""

TRIES = 5
ROUNDS = 5

Ratios = Mapping[str, float]


@dataclass(frozen=True)
class Group:
    """Functions that return the recorded ratios of a group, and that measure them now."""

    recorded: Callable[[], Ratios]
    measure: Callable[[], Ratios]


def slower(recorded: Ratios, measured: Ratios, tolerance: float = TOLERANCE) -> dict[str, float]:
    """Return the ratios above tolerance, each as a multiple of its record.

    A recorded ratio without a measurement counts as infinite, so that the guard reports a lost
    measurement.
    """
    times = {name: measured.get(name, np.inf) / then for name, then in recorded.items()}
    return {name: factor for name, factor in times.items() if not factor <= tolerance}


def best_of(group: Group, tries: int = TRIES, tolerance: float = TOLERANCE) -> dict[str, float]:
    """Measure until no ratio is slow, at most `tries` times; return the minimum of each ratio."""
    recorded = group.recorded()
    best: dict[str, float] = {}
    for _ in range(tries):
        for name, ratio in group.measure().items():
            best[name] = min(ratio, best.get(name, np.inf))
        if not slower(recorded, best, tolerance):
            break
    return best


def solved(times: Iterable[Mapping[str, object]], single: Mapping[str, float]) -> dict[str, float]:
    """Return the ratios of solving and of selections to np.argsort, from `benchmarks.solve`."""
    ratios, sorts = {}, []
    for row in times:
        sorts.append(float(str(row["argsort ms"])))
        for job in ("alpha", "plan", "certificate"):
            ratios[f"{job}, {row['laws']}, k = {row['k']}"] = float(str(row[job]))
    sort = min(sorts)  # a disturbed, slow sort would make all ratios small
    return ratios | {
        name.removesuffix(", ms"): milliseconds / sort
        for name, milliseconds in single.items()
        if name.endswith(", ms")
    }


def of_rows(times: Iterable[Mapping[str, object]]) -> dict[str, float]:
    """Return the ratios of many rows to one call per row, from `benchmarks.rows`."""
    return {
        f"{row['laws']}, [{row['batch']} × {row['n']}], k = {row['k']}": float(
            str(row["rows, checked"])
        )
        for row in times
    }


def measured_rows() -> dict[str, float]:
    """Measure the ratios as `benchmarks.rows` does, without torch."""
    found = []
    for row in record("rows")["times"]:
        kind, batch, n, k = (row[name] for name in ("laws", "batch", "n", "k"))
        p, q = rows.laws(kind, batch, n)
        contestants: dict[str, Callable[[], object]] = {
            "single": lambda p=p, q=q, k=k: [
                otm.alpha(*pair, k) for pair in zip(p, q, strict=True)
            ],
            "rows": lambda p=p, q=q, k=k: alpha_rows(p, q, k),
        }
        times = solve.in_turns(contestants, 3)
        found.append({**row, "rows, checked": times["rows"] / times["single"]})
    return of_rows(found)


def of_rules(cost: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the costs of the rules over those of the optimal plan, from `benchmarks.rules`."""
    optimal = cost["optimal"]
    return {
        f"{name}: {job.partition(' ms')[0].partition(',')[0].removesuffix(' µs')}": spent
        / optimal[job]
        for name, jobs in cost.items()
        if name != "optimal"
        for job, spent in jobs.items()
    }


def recorded_report() -> dict[str, float]:
    """Return the time of a position over that of a sort, from `benchmarks.report`."""
    found = record("report")
    (alone,) = (row for row in found["results"] if row["workers"] == 1)
    return {"position": alone["processor ms per position"] / found["argsort ms"]}


def measured_report() -> dict[str, float]:
    """Measure that ratio on fewer positions than `benchmarks.report` does."""
    vocabulary = record("report")["vocabulary"]
    with tempfile.TemporaryDirectory() as name:
        paths = report.write_logits(Path(name), 400, vocabulary)
        found = report.run(paths, Path(name) / "run", Settings(), workers=1)
    sort = report.argsort_milliseconds(vocabulary)
    return {"position": found["processor ms per position"] / sort}


def of_steps(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the time outside of the models over a target call, from `benchmarks.decoding`."""
    return {f"{row['rule']}, K = {row['k']}": row["other_ms"] / row["target_ms"] for row in rows}


def measured_steps() -> dict[str, float]:
    """Measure that ratio on shorter texts than `benchmarks.decoding` does."""
    import torch

    from benchmarks.loops.overhead import overhead_of_shipped_pair

    torch.set_num_threads(1)
    return of_steps(overhead_of_shipped_pair(150))


GROUPS = {
    "solve": Group(
        lambda: solved(record("solve")["times"], record("solve")["single"]),
        lambda: solved(
            solve.speed(record("solve")["n"], ROUNDS),
            solve.selections(record("solve")["n"], ROUNDS),
        ),
    ),
    "import": Group(
        lambda: {"otm / numpy": record("solve")["single"]["import otm / import numpy"]},
        lambda: {"otm / numpy": solve.import_time(ROUNDS)},
    ),
    "memory": Group(
        lambda: {"alpha, bytes per byte": record("solve")["single"]["alpha, bytes per byte"]},
        lambda: {"alpha, bytes per byte": solve.memory(record("solve")["n"])},
    ),
    "rows": Group(lambda: of_rows(record("rows")["times"]), measured_rows),
    "rules": Group(
        lambda: of_rules(record("rules")["cost"]),
        lambda: of_rules(rules.cost(record("rules")["n"], record("rules")["k"], ROUNDS, 200)),
    ),
    "report": Group(recorded_report, measured_report),
    "decode": Group(lambda: of_steps(record("decoding")["overhead_shipped"]), measured_steps),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(GROUPS)}")
    names = parser.parse_args().names or list(GROUPS)
    if unknown := set(names) - set(GROUPS):
        parser.error(f"unknown group {min(unknown)!r}; choose from {', '.join(GROUPS)}")
    solve.settle_allocator()
    failed = False
    for group in names:
        recorded, measured = GROUPS[group].recorded(), best_of(GROUPS[group])
        slow = slower(recorded, measured)
        failed |= bool(slow)
        print(f"\n{group:<52}{'recorded':>10}{'now':>10}")
        for name, then in recorded.items():
            now = measured.get(name, np.inf)
            print(f"{name:<52}{then:10.3g}{now:10.3g}{'  SLOWER' if name in slow else ''}")
    print("\nslower than recorded" if failed else "\nno ratio is slower than recorded")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
