"""Measure how many random bugs an audit finds, and whether its first diagnosis is correct.

    python -m benchmarks.audit [--quick] [--save] [--seed NAME]

Each mutant is a known bug of `otm.audit.diagnose.known_bugs` with a random size or position, drawn
from the seed.  Most of these sizes are not in the audit's own list.  Each mutant is audited with
all defaults, as `otm audit` does.  Correct verifiers come last: they must pass, and their times
show how long an audit without any finding takes.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from otm.audit import LOSSLESS, Adapter, lossless
from otm.audit.diagnose.known_bugs import KnownBug
from otm.audit.diagnose.known_bugs.size_and_place import (
    lenient,
    passes_at,
    passing,
    previous_row_from,
    residual_cut_to,
    target_floor_at,
    temperature_lost_at,
    tile_sums_of,
)
from otm.audit.diagnose.known_bugs.steps import Block, Chain, Loop, Siblings

RESULTS = Path(__file__).parent / "results" / "audit.json"
SEED = "sizes and places"

Draw = Callable[[Random], KnownBug]

MUTANTS: tuple[tuple[int, Draw], ...] = (
    (10, lambda random: passes_at(random.randint(1, 12))),
    (7, lambda random: temperature_lost_at(random.randint(2, 12))),
    (4, lambda random: previous_row_from(random.randint(3, 11))),
    (9, lambda random: residual_cut_to(random.randint(2, 40))),
    (6, lambda random: tile_sums_of(8 * random.randint(1, 17))),
    (6, lambda random: target_floor_at(Fraction(1, random.randint(10, 1000)))),
    (4, lambda random: lenient(Fraction(random.randint(11, 40), 20))),
    (2, lambda random: passing(random.randint(1, 4))),
)
"""Number of mutants of each kind, and a function that draws one; all mutants differ."""

RIGHT: tuple[Adapter, ...] = (Chain(), Block(), Siblings(), Loop())


def drawn(seed: str, *, each: int | None = None) -> list[KnownBug]:
    """Draw all mutants, or only `each` mutants of each kind."""
    random = Random(seed)
    mutants: dict[str, KnownBug] = {}
    for count, draw in MUTANTS:
        wanted = len(mutants) + (each or count)
        while len(mutants) < wanted:
            bug = draw(random)
            mutants[bug.name] = bug
    return list(mutants.values())


def audited(verifier: Adapter) -> dict[str, Any]:
    """Audit a verifier with all defaults, and return a row of results."""
    start = time.perf_counter()
    report = lossless(verifier)
    names = [diagnosis.name for diagnosis in report.diagnoses]
    return {
        "verifier": verifier.name,
        "found": report.verdict != LOSSLESS,
        "tv": float(report.tv_distance),
        "named": names,
        "first": names[:1] == [verifier.name],
        "seconds": time.perf_counter() - start,
    }


def shown(row: dict[str, Any]) -> str:
    found = f"found, TV {row['tv']:.2g}" if row["found"] else "lossless"
    first = "named" if row["first"] else ", ".join(row["named"]) or "-"
    return f"{row['verifier']:<48} {found:<18} {first:<18} {row['seconds']:5.1f} s"


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--seed", default=SEED, metavar="NAME", help="seed of the random sizes")
    options = options_of(parser)
    mutants = drawn(options.seed, each=1 if options.quick else None)
    mutants, right = (mutants[:1], RIGHT[:1]) if options.quick else (mutants, RIGHT)
    audited(Chain())  # the first audit loads modules and is not timed
    rows = []
    for mutant in mutants:
        rows.append(audited(mutant.verifier))
        print(shown(rows[-1]))
    controls = [audited(verifier) for verifier in right]
    print(*map(shown, controls), sep="\n")
    found, first = (sum(row[key] for row in rows) for key in ("found", "first"))
    alarms = sum(row["found"] for row in controls)
    seconds = sum(row["seconds"] for row in rows)
    print(
        f"{len(rows)} mutants: {found} found, {first} named first, {seconds:.0f} s; "
        f"{len(controls)} correct verifiers: {alarms} false alarms"
    )
    if options.save:
        record = {"seed": options.seed, "mutants": rows, "right": controls, **machine("numpy")}
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
