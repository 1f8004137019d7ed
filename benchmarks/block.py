"""Measure seconds and the gap of the bounds for optimal blocks on trees of 11,110 nodes.

    python -m benchmarks.block [--quick] [--save]

The vocabulary has ten tokens; the drafts are four i.i.d. paths of four levels.  The distributions
are the same after every path, or depend on the last token, or depend on the whole path.  The draft
distributions come from a symmetric Dirichlet distribution.  Each target distribution is the draft
distribution times exp of normal numbers, normalised.  Seconds are processor time.  Every
certificate is checked in fractions, and its gap must be at most 1e-8.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import otm
from benchmarks.command import command, keep, options_of
from benchmarks.layout import RESULTS
from benchmarks.machine import machine

K = 4
KINDS = {"constant": 0, "by the last token": 1, "by the whole path": None}
"""Number of last tokens on which the distributions depend; None for the whole path."""

ROUNDS = 100
"""Maximum number of linear programs if the bounds do not meet earlier."""

LARGEST_GAP = 1e-8

Path_ = tuple[int, ...]
Law = Callable[[Path_], np.ndarray]


def laws(vocabulary: int, last: int | None) -> tuple[Law, Law]:
    """Return draft and target as functions of the path; the same seed every time."""
    rng = np.random.default_rng(0)
    rows: dict[Path_, tuple[np.ndarray, np.ndarray]] = {}

    def row(path: Path_) -> tuple[np.ndarray, np.ndarray]:
        key = path if last is None else path[len(path) - min(last, len(path)) :]
        if key not in rows:
            draft = rng.dirichlet(np.ones(vocabulary))
            target = draft * np.exp(rng.normal(size=vocabulary))
            rows[key] = draft, target / target.sum()
        return rows[key]

    return lambda path: row(path)[0], lambda path: row(path)[1]


def measure(vocabulary: int, length: int) -> Iterator[dict[str, Any]]:
    """Solve and check an instance of each kind, and yield a row of results."""
    for kind, last in KINDS.items():
        start = time.process_time()
        solution = otm.solve_block(*laws(vocabulary, last), K, length, rounds=ROUNDS)
        solved = time.process_time()
        solution.certificate.check()
        certificate = solution.certificate
        row = {
            "distributions": kind,
            "nodes": len(certificate.document["nodes"]),
            "antichains": len(certificate.document["multipliers"]),
            "lower": float(certificate.lower),
            "gap": float(certificate.gap),
            "bound": float(solution.bound),
            "solve s": solved - start,
            "check s": time.process_time() - solved,
        }
        print(
            ", ".join(f"{key} {x:.6g}" if key != "distributions" else x for key, x in row.items())
        )
        if row["gap"] > LARGEST_GAP:
            raise SystemExit("the bounds did not meet")
        yield row


def main() -> None:
    arguments = options_of(command(__doc__))
    rows = list(measure(*((3, 3) if arguments.quick else (10, 4))))
    if arguments.save:
        keep(
            {"k": K, "rounds": ROUNDS, "rows": rows, **machine("numpy", "highspy")},
            RESULTS / "block.json",
        )


if __name__ == "__main__":
    main()
