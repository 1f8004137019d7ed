"""Check that OTM is not slower than another revision, measured in the same run.

    python -m benchmarks.guard [GROUP ...] [--against REVISION]

Without --against, the revision is the last commit if files of `otm` have changed since, and
otherwise the commit before it.  The code of the revision is copied from Git, and both versions of
`otm` are measured in turns, by the benchmarks of this checkout.  So machine and measurement are
the same for both.

Each number is a ratio of two times in one process, such as the time of `otm.alpha` over that of
`np.argsort`: load on the machine changes such a ratio less than a time.  A ratio more than
TOLERANCE times that of the revision is measured again, and counts as slow only if the smallest of
TRIES measurements is still above this limit.

The exit code is 1 if a ratio is slow, or was measured for one version only.  The program takes a
few minutes.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import otm
from benchmarks import report, rows, rules, solve
from benchmarks.layout import record
from otm.gain import Settings
from otm.optimum.many_rows import alpha_rows

__all__ = ["GROUPS", "Group", "best_of", "slower"]

ROOT = Path(__file__).resolve().parents[1]

TOLERANCE = 1.3
"""Largest allowed quotient of a ratio and that of the other revision."""

TRIES = 5
ROUNDS = 5

Ratios = Mapping[str, float]


@dataclass(frozen=True)
class Group:
    """A function that measures ratios, and the unit of these ratios."""

    unit: str
    measure: Callable[[], Ratios]


def slower(then: Ratios, now: Ratios, tolerance: float = TOLERANCE) -> dict[str, float]:
    """Return the ratios above tolerance, each as a multiple of that of the other revision.

    A ratio that was measured for one version only counts as infinite, so that the guard reports a
    lost measurement.
    """
    names = [*then, *(name for name in now if name not in then)]
    times = {name: now.get(name, np.inf) / then.get(name, np.nan) for name in names}
    return {
        name: np.inf if np.isnan(factor) else factor
        for name, factor in times.items()
        if not factor <= tolerance
    }


def best_of(
    measure_then: Callable[[], Ratios],
    measure_now: Callable[[], Ratios],
    tries: int = TRIES,
    tolerance: float = TOLERANCE,
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure both versions in turns until none is slow, at most `tries` times.

    Return the minimum of each ratio: of the other revision, and of this checkout.
    """
    then: dict[str, float] = {}
    now: dict[str, float] = {}
    for _ in range(tries):
        for best, measure in ((then, measure_then), (now, measure_now)):
            for name, ratio in measure().items():
                best[name] = min(ratio, best.get(name, np.inf))
        if not slower(then, now, tolerance):
            break
    return then, now


def measured_in(tree: Path, group: str) -> Ratios:
    """Measure a group in a process that imports `otm` from a folder."""
    command = [sys.executable, "-m", "benchmarks.guard", "--measure", group]
    done = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True)
    ratios: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return ratios


def copy_revision(revision: str, tree: Path) -> None:
    """Write `otm` of a revision to a folder, beside the benchmarks of this checkout."""
    packed = git("archive", "--format=tar", revision, "otm")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")
    for name in ("benchmarks", "figures"):
        (tree / name).symlink_to(ROOT / name)


def revision_before() -> str:
    """Return the last commit if `otm` has changed since, and otherwise the commit before it."""
    return "HEAD" if git("status", "--porcelain", "otm").strip() else "HEAD^"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


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


def measured_report() -> dict[str, float]:
    """Measure the time of a position over that of a sort, on few positions."""
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
    """Measure the time outside of the models over a target call, on short texts."""
    import torch

    from benchmarks.loops.overhead import overhead_of_shipped_pair

    torch.set_num_threads(1)
    return of_steps(overhead_of_shipped_pair(150))


GROUPS = {
    "solve": Group(
        "a call of np.argsort on as many numbers",
        lambda: solved(
            solve.speed(record("solve")["n"], ROUNDS),
            solve.selections(record("solve")["n"], ROUNDS),
        ),
    ),
    "import": Group(
        "an import of numpy",
        lambda: {"import otm": solve.import_time(ROUNDS)},
    ),
    "memory": Group(
        "the bytes of both distributions",
        lambda: {"peak of otm.alpha": solve.memory(record("solve")["n"])},
    ),
    "rows": Group("a call of otm.alpha for each row", measured_rows),
    "rules": Group(
        "the same step of the optimal plan",
        lambda: of_rules(rules.cost(record("rules")["n"], record("rules")["k"], ROUNDS, 200)),
    ),
    "report": Group("a call of np.argsort on one position", measured_report),
    "decode": Group("a call of the target model", measured_steps),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="GROUP", help=f"some of {', '.join(GROUPS)}")
    parser.add_argument("--against", metavar="REVISION", help="the other revision")
    parser.add_argument("--measure", choices=GROUPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    solve.settle_allocator()
    if options.measure:
        print(json.dumps(dict(GROUPS[options.measure].measure())))
        return 0
    names = options.names or list(GROUPS)
    if unknown := set(names) - set(GROUPS):
        parser.error(f"unknown group {min(unknown)!r}; choose from {', '.join(GROUPS)}")
    revision = options.against or revision_before()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        copy_revision(revision, tree)
        for group in names:
            then, now = best_of(*(partial(measured_in, each, group) for each in (tree, ROOT)))
            slow = slower(then, now)
            failed |= bool(slow)
            print(f"\n{group}, in units of {GROUPS[group].unit}")
            print(f"{'':<52}{revision:>14}{'now':>14}")
            for ratio in then | now:
                cells = "".join(f"{times.get(ratio, np.nan):14.3g}" for times in (then, now))
                print(f"{ratio:<52}{cells}{'  SLOWER' if ratio in slow else ''}", flush=True)
    print(f"\nslower than {revision}" if failed else f"\nno ratio is slower than at {revision}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
