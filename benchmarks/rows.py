"""Compare the time of α_k for many rows, in NumPy and torch, with one `otm.alpha` call per row.

    python -m benchmarks.rows

"Checked" rows are also checked and normalised, as `otm.alpha` does; "kept" rows also keep the
normalised distributions.  All measurements use one thread, and the contestants take turns.  With
--save the record also goes to benchmarks/results/rows.json.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import otm
from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from benchmarks.solve import in_turns, settle_allocator, table
from otm.optimum import many_rows as rows
from otm.optimum import torch as on_torch

RESULTS = Path(__file__).parent / "results" / "rows.json"


def laws(kind: str, batch: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Make draft and target distributions `[batch, n]` of a named kind, with a fixed seed."""
    rng = np.random.default_rng(7)
    if kind == "random":
        p, q = rng.exponential(size=(2, batch, n))
    else:  # like a language model: Zipfian, in different orders; "top 1,000" truncates the draft
        p = rng.permuted(np.tile(1 / np.arange(1, n + 1) ** 1.2, (batch, 1)), axis=1)
        q = p * np.exp(rng.normal(size=(batch, n)))
        if kind == "top 1,000":
            p *= p >= np.partition(p, max(n - 1_000, 0), axis=1)[:, [max(n - 1_000, 0)]]
    return tuple(law / law.sum(axis=1, keepdims=True) for law in (p, q))


def training_step(p: torch.Tensor, q: torch.Tensor, k: int) -> torch.Tensor:
    """Compute α_k and its gradient with respect to the draft distribution."""
    draft = p.detach().requires_grad_()
    on_torch.optimal_values(draft, q, k)[0].sum().backward()
    return draft.grad


def speed(batch: int, n: int, rounds: int) -> Iterator[dict[str, object]]:
    """Measure the time of a row as a multiple of a single call."""
    for kind in ("random", "language model", "top 1,000"):
        p, q = laws(kind, batch, n)
        tensors = torch.from_numpy(p), torch.from_numpy(q)
        for k in (2, 64):
            contestants: dict[str, Callable[[], object]] = {
                "single": lambda p=p, q=q, k=k: [
                    otm.alpha(*pair, k) for pair in zip(p, q, strict=True)
                ],
                "rows": lambda p=p, q=q, k=k: rows.optimal_values(p, q, k),
                "rows, checked": lambda p=p, q=q, k=k: rows.alpha_rows(p, q, k),
                "rows, kept": lambda p=p, q=q, k=k: otm.solve(p, q, k),
                "torch": lambda pair=tensors, k=k: on_torch.optimal_values(*pair, k),
                "torch, gradient": lambda pair=tensors, k=k: training_step(*pair, k),
            }
            times = in_turns(contestants, rounds)
            yield {
                "laws": kind,
                "batch": batch,
                "n": n,
                "k": k,
                "single µs": times["single"] / batch * 1e6,
                **{name: times[name] / times["single"] for name in list(times)[1:]},
                "torch / rows": times["torch"] / times["rows"],
            }


def several_counts(n: int, rounds: int) -> dict[str, float]:
    """Measure the time of several values of k for one pair, as a multiple of one value."""
    p, q = (law[0] for law in laws("random", 1, n))
    contestants = {
        str(count): lambda count=count: rows.optimal_values(p, q, np.arange(1, count + 1))
        for count in (1, 8, 64)
    }
    times = in_turns(contestants, rounds)
    return {f"{count} values of k, times one": times[count] / times["1"] for count in ("8", "64")}


def memory(batch: int, n: int) -> float:
    """Measure the peak bytes that NumPy allocates for all rows, without the distributions."""
    p, q = laws("random", batch, n)
    tracemalloc.start()
    rows.optimal_values(p, q, 8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    arguments = options_of(command(__doc__))
    quick = arguments.quick
    sizes = [(8, 500)] if quick else [(256, 32_000), (4_096, 64)]
    rounds = 2 if quick else 3

    settle_allocator()
    torch.set_num_threads(1)  # like NumPy
    times = [row for size in sizes for row in speed(*size, rounds)]
    table("Time of a row, as multiples of a single otm.alpha", times)
    batch, n = sizes[0]
    single: dict[str, object] = {
        **several_counts(n, rounds * 3),
        "peak of the memory beyond the distributions, MB": memory(batch, n),
    }
    print()
    for name, value in single.items():
        print(f"{name:<40}{value:.3g}")
    if arguments.save:
        record = {"times": times, **single, **machine("numpy", "torch")}
        keep(record, RESULTS)


if __name__ == "__main__":
    main()
