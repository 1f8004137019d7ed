"""The optimum of blocks on trees of 11,110 nodes: seconds, and how far apart the bounds are.

    python -m benchmarks.block [--quick] [--save]

Ten tokens by four levels and four i.i.d. paths, with distributions that are the same after every
path, that depend on the last token, or on the whole path.  The draft's are from a symmetric
Dirichlet distribution, the target's are these times exp of a normal number.  Seconds are of the
process.  Every certificate is checked in fractions, and its gap must be at most 1e-8.
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
"""How many of the last tokens distributions depend on."""

ROUNDS = 100
"""Most linear programs, where the bounds do not meet before."""

LARGEST_GAP = 1e-8

Path_ = tuple[int, ...]
Law = Callable[[Path_], np.ndarray]


def laws(vocabulary: int, last: int | None) -> tuple[Law, Law]:
    """Draft and target after each path, by its last tokens; reproducible."""
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
    """Solve and check an instance of each kind."""
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
