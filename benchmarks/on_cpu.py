"""Compare the time to verify one chain on a CPU with transformers and with plain torch code.

    python -m benchmarks.on_cpu [--quick] [--save]

The cases are chain and block verification, from logits and from probabilities, for one sequence and
for eight, with four drafts each.  `benchmarks.plain` has the plain version of each rule.
transformers has only chain verification of one sequence from logits; it gets logarithms where the
other contestants get probabilities.  Each output distribution is checked before the timing.

All contestants verify the same inputs in turns; each draws its own random numbers from the same
seed.  The time is the mean over inputs of the fastest of a few calls.  So a busy machine disturbs
it little, and lucky drafts have their correct weight.  torch has one thread and then two; NumPy has
one.  With --save the record goes to benchmarks/results/on_cpu.json.
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
    """Vocabulary sizes, inputs per case, calls per input, and draws of the check."""

    sizes: tuple[int, ...]
    inputs: int
    calls: int
    draws: int


FULL = Plan((32_000, 128_256), 5, 11, 2**13)
QUICK = Plan((1_024,), 1, 1, 2**10)


def ours(rule: str, library: str, *, validate: bool) -> Entry:
    """Return OTM's verification of NumPy arrays or torch tensors."""

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
    """Return verification by transformers; it converts probabilities to logarithms."""

    def prepare(inputs: Inputs) -> Inputs:
        if inputs.logits:
            return inputs
        return replace(inputs, target=inputs.target.log(), draft=inputs.draft.log(), logits=True)

    return of_transformers(CPU)._replace(prepare=prepare)


def contestants(rule: str) -> dict[str, Entry]:
    """Return the contestants of a rule, OTM's first."""
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
    """Check that each contestant's output has the target's distribution.

    The check has few tokens, so it forces OTM's code for large vocabularies on the host.
    """
    checks = []
    least, host.LEAST_VOCABULARY = host.LEAST_VOCABULARY, 0
    for rule, logits in product(plain.RULES, (True, False)):
        for name, entry in contestants(rule).items():
            if name == TRANSFORMERS:
                continue  # `benchmarks.kernels` checks it, one sequence at a time
            verdict = gate.check(
                entry, logits=logits, one_by_one=False, draws=draws, device=CPU, rule=rule
            )
            if not verdict.passed:
                raise SystemExit(f"{name} with rule {rule} does not follow the target: {verdict}")
            checks.append({"contestant": name, "rule": rule, "logits": logits})
    host.LEAST_VOCABULARY = least
    return checks


def time_of_each(entries: dict[str, Entry], sets: list[Inputs], calls: int) -> dict[str, float]:
    """Return each contestant's mean over inputs of the fastest call.

    The contestants take turns in random order, so that no one has the same caches every time.
    """
    ready = {name: [entry.prepare(each) for each in sets] for name, entry in entries.items()}
    fastest = {name: [float("inf")] * len(sets) for name in entries}
    order, rng = list(entries), random.Random(0)
    for _ in range(calls + 1):  # the extra first call loads and allocates
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
    """Measure every case, and yield one row for each."""
    types = (torch.float32, torch.bfloat16)
    for size, batch, dtype, logits in product(plan.sizes, (1, 8), types, (True, False)):
        inputs = make_inputs((batch, GAMMA, size), dtype, "typical", logits=logits, device=CPU)
        sets = [inputs.copy() for _ in range(plan.inputs)]
        for rule, threads in product(plain.RULES, THREADS):
            entries = contestants(rule)
            if batch > 1:
                entries.pop(TRANSFORMERS, None)
            if dtype == torch.bfloat16:  # NumPy has no bfloat16
                entries = {x: entry for x, entry in entries.items() if "numpy" not in x}
            torch.set_num_threads(threads)
            case = {"rule": rule, "from": "logits" if logits else "probabilities"}
            case |= {"dtype": str(dtype).removeprefix("torch."), "V": size, "B": batch}
            times = time_of_each(entries, sets, plan.calls)
            row = {**case, "threads": threads, "s": times}
            print(*case.values(), f"{threads} thread{'s' * (threads > 1)}:", in_short(row))
            yield row


def in_short(row: dict[str, Any]) -> str:
    """Format OTM's time, and its ratios to the other times."""
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
