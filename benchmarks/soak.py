"""Decode a million tokens, compare their distribution with the target's, and watch the memory.

    python -m benchmarks.soak [--quick] [--save]

Each decoding method decodes batches with an end token, by models that are tables of the
distributions after each token.  An observation is the next tokens after a token 0, up to three
tokens.  Observations are read from the sequences without overlap.  They are independent, since the
target is a Markov chain, and their exact distribution is known in fractions.  They are tested
within the budget of false alarms of `otm.testing`.  The test would detect a distance of δ, and it
detects the same loop with target and draft swapped.  Memory of the process is read after each tenth
of each method.  With --save the numbers go to benchmarks/results/soak.json.
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

__all__ = ["METHODS", "Observations", "check"]

RESULTS = Path(__file__).parent / "results" / "soak.json"

END = 3
LENGTH = 200
BATCH = 8
READ = 3

METHODS: dict[str, Callable[..., Any]] = {
    "autoregressive": lambda target, draft, *prompts, **options: autoregressive(
        target, *prompts, **options
    ),
    "chain": partial(speculative, gamma=4),
    "chain, γ by step": partial(speculative, gamma=lambda steps: (3 * len(steps)) % 5),
    "block": partial(speculative, gamma=4, rule="block"),
    "k-Seq": partial(spectr, k=3, gamma=3, rule="k-Seq"),
    "optimal": partial(spectr, k=3, gamma=3, rule="optimal"),
    "optimal, prefix tree": partial(spectr, k=(2, 2, 1), gamma=3, rule="optimal"),
    "traversal": partial(spectr, k=(2, 2, 1), gamma=3, rule="traversal"),
}


def table(seed: int) -> dict[tuple[int, ...], list[Fraction]]:
    """Draw the distributions after each of four tokens, with mass on every token."""
    weights = np.random.default_rng(seed).integers(1, 6, (4, 4))
    weights[:, END] = 1
    rows = {(token,): row for token, row in enumerate(weights.tolist())}
    rows[()] = rows[0,]
    return {after: [Fraction(weight, sum(row)) for weight in row] for after, row in rows.items()}


def in_floats(model: dict[tuple[int, ...], list[Fraction]]) -> TableModel:
    return TableModel({after: [float(x) for x in probs] for after, probs in model.items()})


EXACT = table(1), table(2)
TARGET, DRAFT = map(in_floats, EXACT)
OUTCOMES = sorted(sequence_distribution(TableModel(EXACT[0]), (0,), READ, END))
INDEX = {outcome: place for place, outcome in enumerate(OUTCOMES)}
TARGET_PROBS, DRAFT_PROBS = (
    [float(probs[outcome]) for outcome in OUTCOMES]
    for probs in (sequence_distribution(TableModel(model), (0,), READ, END) for model in EXACT)
)


class Observations:
    """A sampler of the tokens after token 0, which counts tokens and steps.

    Parameters
    ----------
    decode : callable
        A decoding method.
    target, draft : TableModel
        The models.
    watch : callable, optional
        Called with the share of the observations made so far.
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
    """Yield the outcome after each token 0 if the length limit does not cut it off."""
    after, place = 0, 0
    while place < len(sequence) and place <= LENGTH - READ:
        if after == 0:
            outcome = sequence[place : place + READ]
            yield INDEX[outcome]
            place += len(outcome)
        else:
            place += 1
        after = sequence[place - 1]


def check(name: str, delta: float, watch: Callable[[float], None] = lambda share: None) -> Any:
    """Check one decoding method; return its sampler, the control's sampler, and the verdict."""
    right = Observations(METHODS[name], watch=watch)
    wrong = Observations(METHODS[name], DRAFT, TARGET)
    verdict = BUDGET.check_distribution(
        f"soak: {name}", right, TARGET_PROBS, delta=delta, control=Control(wrong, DRAFT_PROBS)
    )
    return right, wrong, verdict


def resident() -> int:
    """Return the resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = options_of(command(__doc__))
    delta = 0.1 if options.quick else 0.048
    rows = []
    for name in METHODS:
        memory: list[int] = []

        def watch(share: float, memory: list[int] = memory) -> None:
            if share * 10 >= len(memory) + 1:
                gc.collect()
                memory.append(resident())

        start = time.perf_counter()
        right, wrong, verdict = check(name, delta, watch)
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
    print(f"{total:,} tokens, TV {delta} would be detected; {len(OUTCOMES)} outcomes")
    if options.save:
        record = {
            "machine": machine("numpy"), "delta": delta, "outcomes": len(OUTCOMES),
            "tokens": total, "ways": rows,
        }  # fmt: skip
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
