"""The time to verify one chain on a CPU, beside transformers and a plain version in torch.

    python -m benchmarks.on_cpu [--quick] [--save]

Chain and block verification, from logits and from probabilities, of one sequence and of eight with
four drafts each.  The plain version (`benchmarks.plain`) is that of the same rule; transformers has
chain verification of one sequence, from logits, and gets logarithms where the others get
probabilities.  The output distribution of each is checked before it is timed.

Every contestant verifies the same inputs, with random numbers of its own from the same seed, in
turns.  The time is the mean over the inputs of the fastest of a few calls, so that a busy machine
disturbs it little, and that a lucky draft counts no more than it should.  torch has one thread and
then two; NumPy has one.  With --save the record goes to benchmarks/results/on_cpu.json.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import plain
from benchmarks.chain import gate
from benchmarks.chain.contestants import Entry, of_transformers
from benchmarks.chain.inputs import Inputs, make_inputs
from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from benchmarks.solve import settle_allocator
from otm.kernels import verify_logits, verify_probs
from otm.kernels.common import host

RESULTS = Path(__file__).parent / "results" / "on_cpu.json"
CPU = torch.device("cpu")
GAMMA = 4
THREADS = (1, 2)
TRANSFORMERS = "transformers"


class Plan(NamedTuple):
    """What is measured: vocabularies, inputs of each kind, calls with each, draws of the check."""

    sizes: tuple[int, ...]
    inputs: int
    calls: int
    draws: int


FULL = Plan((32_000, 128_256), 5, 11, 2**13)
QUICK = Plan((1_024,), 1, 1, 2**10)


def ours(rule: str, library: str, *, validate: bool) -> Entry:
    """Return OTM's verification of arrays or tensors."""

    def prepare(inputs: Inputs) -> Any:
        rows = [inputs.target, inputs.draft, inputs.tokens]
        return [x.numpy() for x in rows] if library == "numpy" else rows, inputs.logits

    def verify(ready: Any) -> Any:
        rows, logits = ready
        batch, gamma = rows[2].shape
        uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64)
        last = uniforms.numpy() if library == "numpy" else uniforms
        function = verify_logits if logits else verify_probs
        found = function(*rows, last, rule=rule, validate=validate)[:2]
        return tuple(map(torch.from_numpy, found)) if library == "numpy" else found

    return Entry(verify, prepare)


def plainly(rule: str) -> Entry:
    """Return the plain version of a rule."""
    verify = getattr(plain, rule)
    return Entry(lambda x: verify(x.target, x.draft, x.tokens, logits=x.logits))


def transformers() -> Entry:
    """Return that of transformers, which takes logits: of probabilities their logarithms."""

    def prepare(inputs: Inputs) -> Inputs:
        if inputs.logits:
            return inputs
        return replace(inputs, target=inputs.target.log(), draft=inputs.draft.log(), logits=True)

    return of_transformers(CPU)._replace(prepare=prepare)


def contestants(rule: str) -> dict[str, Entry]:
    """Return the contestants of a rule, ours first."""
    found = {
        "torch": ours(rule, "torch", validate=False),
        "torch, checked": ours(rule, "torch", validate=True),
        "numpy": ours(rule, "numpy", validate=False),
        "numpy, checked": ours(rule, "numpy", validate=True),
        "plain": plainly(rule),
    }
    try:
        found[TRANSFORMERS] = transformers()
    except ImportError:
        print("transformers is not installed")
    return found


def check_distributions(draws: int) -> list[dict[str, Any]]:
    """Check that each contestant's output has the target's distribution; ours row by row."""
    checks = []
    least, host.LEAST_VOCABULARY = host.LEAST_VOCABULARY, 0
    for rule, logits in product(plain.RULES, (True, False)):
        for name, entry in contestants(rule).items():
            if name == TRANSFORMERS:
                continue  # one by one: `benchmarks.kernels` checks it
            verdict = gate.check(
                entry, logits=logits, one_by_one=False, draws=draws, device=CPU, rule=rule
            )
            if not verdict.passed:
                raise SystemExit(f"{name} by {rule} has another distribution: {verdict}")
            checks.append({"contestant": name, "rule": rule, "logits": logits})
    host.LEAST_VOCABULARY = least
    return checks


def time_of_each(entries: dict[str, Entry], sets: list[Inputs], calls: int) -> dict[str, float]:
    """Mean over the inputs of the fastest of some calls, by contestant.

    They take turns in random order: each finds the caches as the one before it left them.
    """
    ready = {name: [entry.prepare(each) for each in sets] for name, entry in entries.items()}
    fastest = {name: [float("inf")] * len(sets) for name in entries}
    order, rng = list(entries), random.Random(0)
    for _ in range(calls + 1):  # the first call loads and allocates
        for seed in range(len(sets)):
            rng.shuffle(order)
            for name in order:
                torch.manual_seed(seed)
                start = time.perf_counter()
                entries[name].verify(ready[name][seed])
                seconds = time.perf_counter() - start
                fastest[name][seed] = min(fastest[name][seed], seconds)
    return {name: sum(times) / len(times) for name, times in fastest.items()}


def speed(plan: Plan) -> Iterator[dict[str, Any]]:
    """Measure every case, and return one row for each."""
    types = (torch.float32, torch.bfloat16)
    for size, batch, dtype, logits in product(plan.sizes, (1, 8), types, (True, False)):
        inputs = make_inputs((batch, GAMMA, size), dtype, "typical", logits=logits, device=CPU)
        sets = [inputs.copy() for _ in range(plan.inputs)]
        for rule, threads in product(plain.RULES, THREADS):
            entries = contestants(rule)
            if batch > 1:
                entries.pop(TRANSFORMERS, None)
            if dtype == torch.bfloat16:  # which NumPy lacks
                entries = {x: entry for x, entry in entries.items() if "numpy" not in x}
            torch.set_num_threads(threads)
            case = {"rule": rule, "from": "logits" if logits else "probabilities"}
            case |= {"dtype": str(dtype).removeprefix("torch."), "V": size, "B": batch}
            times = time_of_each(entries, sets, plan.calls)
            row = {**case, "threads": threads, "s": times}
            print(*case.values(), f"{threads} thread{'s' * (threads > 1)}:", in_short(row))
            yield row


def in_short(row: dict[str, Any]) -> str:
    """Write our time, and its ratios to the others."""
    own = row["s"]["torch"]
    ratios = (f"{own / s:.2f} of {name}" for name, s in row["s"].items() if name != "torch")
    return ", ".join([f"{own * 1e6:.0f} µs", *ratios])


def main() -> None:
    options = options_of(command(__doc__))
    plan = QUICK if options.quick else FULL
    settle_allocator()
    torch.manual_seed(0)
    checks = check_distributions(plan.draws)
    rows = list(speed(plan))
    if options.save:
        record = {"times": rows, "gamma": GAMMA, "checks": checks}
        keep({**record, **machine("numpy", "torch", "transformers")}, RESULTS)


if __name__ == "__main__":
    main()
