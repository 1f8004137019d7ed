"""Decode a million tokens, compare their law with the target's, and watch the memory.

    python -m benchmarks.soak [--quick] [--save]

Each way of decoding goes on and on, in batches and with an end token, on tables of the laws after
each token.  What follows token 0, up to three tokens, is read from the sequences without overlap;
since the target is a Markov chain these readings are independent, and have a law that is known in
fractions.  They are judged under the budget of false alarms of `otm.testing`: a distance of δ would
be seen, and the same loop with target and draft swapped is.  Memory is what the process has after
each tenth of each way.  With --save the numbers are written to benchmarks/results/soak.json.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from otm.decoding import autoregressive, spectr, speculative
from otm.models import TableModel
from otm.testing import BUDGET, Control
from otm.testing.sequences import sequence_distribution

__all__ = ["WAYS", "Readings", "judge"]

RESULTS = Path(__file__).parent / "results" / "soak.json"

END = 3
LENGTH = 200
BATCH = 8
READ = 3

WAYS: dict[str, Callable[..., Any]] = {
    "autoregressive": lambda target, draft, *given, **options: autoregressive(
        target, *given, **options
    ),
    "chain": partial(speculative, gamma=4),
    "chain, γ by step": partial(speculative, gamma=lambda steps: (3 * len(steps)) % 5),
    "block": partial(speculative, gamma=4, rule="block"),
    "k-Seq": partial(spectr, k=3, gamma=3, rule="k-Seq"),
    "optimal": partial(spectr, k=3, gamma=3, rule="optimal"),
    "optimal, prefix tree": partial(spectr, k=(2, 2, 1), gamma=3, rule="optimal"),
    "traversal": partial(spectr, k=(2, 2, 1), gamma=3, rule="traversal"),
}


def laws(seed: int) -> dict[tuple[int, ...], list[Fraction]]:
    """Laws after each of four tokens, all of them with mass on every token."""
    weights = np.random.default_rng(seed).integers(1, 6, (4, 4))
    weights[:, END] = 1
    rows = {(token,): row for token, row in enumerate(weights.tolist())}
    rows[()] = rows[0,]
    return {after: [Fraction(weight, sum(row)) for weight in row] for after, row in rows.items()}


def in_floats(model: dict[tuple[int, ...], list[Fraction]]) -> TableModel:
    return TableModel({after: [float(x) for x in law] for after, law in model.items()})


EXACT = laws(1), laws(2)
TARGET, DRAFT = map(in_floats, EXACT)
OUTCOMES = sorted(sequence_distribution(TableModel(EXACT[0]), (0,), READ, END))
INDEX = {outcome: place for place, outcome in enumerate(OUTCOMES)}
TARGET_LAW, DRAFT_LAW = (
    [float(law[outcome]) for outcome in OUTCOMES]
    for law in (sequence_distribution(TableModel(model), (0,), READ, END) for model in EXACT)
)


class Readings:
    """A sampler of what follows token 0, and what it took.

    Parameters
    ----------
    decode : callable
        A way of decoding.
    target, draft : TableModel
        The models.
    watch : callable, optional
        Called with the share of the readings that are made.
    """

    def __init__(
        self,
        decode: Callable[..., Any],
        target: TableModel = TARGET,
        draft: TableModel = DRAFT,
        watch: Callable[[float], None] = lambda share: None,
    ) -> None:
        self._decode = decode
        self._models = target, draft
        self._watch = watch
        self.tokens = 0
        self.steps = 0

    def __call__(self, rng: np.random.Generator, draws: int) -> npt.NDArray[np.int64]:
        found: list[int] = []
        while len(found) < draws:
            seed = int(rng.integers(2**62))
            options = {"max_tokens": LENGTH, "eos_token_id": END, "seed": seed}
            generation = self._decode(*self._models, [[0]] * BATCH, **options)
            self.steps += len(generation.steps)
            for sequence in generation.sequences:
                self.tokens += len(sequence)
                found += read(sequence)
            self._watch(min(len(found) / draws, 1))
        return np.array(found[:draws])


def read(sequence: tuple[int, ...]) -> Iterator[int]:
    """Read what follows token 0, wherever it comes up, as far as the limit of the length leaves."""
    after, place = 0, 0
    while place < len(sequence) and place <= LENGTH - READ:
        if after == 0:
            outcome = sequence[place : place + READ]
            yield INDEX[outcome]
            place += len(outcome)
        else:
            place += 1
        after = sequence[place - 1]


def judge(name: str, delta: float, watch: Callable[[float], None] = lambda share: None) -> Any:
    """Check one way of decoding; its readings, those of its control, and the verdict."""
    right = Readings(WAYS[name], watch=watch)
    wrong = Readings(WAYS[name], DRAFT, TARGET)
    verdict = BUDGET.check_distribution(
        f"soak: {name}", right, TARGET_LAW, delta=delta, control=Control(wrong, DRAFT_LAW)
    )
    return right, wrong, verdict


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = options_of(command(__doc__))
    delta = 0.1 if options.quick else 0.048
    rows = []
    for name in WAYS:
        memory: list[int] = []

        def watch(share: float, memory: list[int] = memory) -> None:
            if share * 10 >= len(memory) + 1:
                gc.collect()
                memory.append(resident())

        start = time.perf_counter()
        right, wrong, verdict = judge(name, delta, watch)
        rows.append({
            "way": name, "tokens": right.tokens, "tokens of the control": wrong.tokens,
            "steps": right.steps, "readings": verdict.draws, "G": verdict.statistic,
            "limit": verdict.limit, "memory": memory, "seconds": time.perf_counter() - start,
        })  # fmt: skip
        growth = (memory[-1] - memory[0]) / 2**10
        print(
            f"{name:22} {right.tokens:9,} tokens  G {verdict.statistic:6.1f} < {verdict.limit:.1f}"
            f"  memory {growth:+.0f} KiB  {rows[-1]['seconds']:.0f} s",
            flush=True,
        )
    total = sum(row["tokens"] for row in rows)
    print(f"{total:,} tokens, TV {delta} would be seen; {len(OUTCOMES)} outcomes")
    if options.save:
        record = {
            "machine": machine("numpy"), "delta": delta, "outcomes": len(OUTCOMES),
            "tokens": total, "ways": rows,
        }  # fmt: skip
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
