"""Measurements of one chain for every γ: seconds, moved bytes, and peak memory."""

import itertools
import random
import statistics
import time
from collections import defaultdict
from typing import Any

import torch

from benchmarks.chain.clocks import Traffic, wait
from benchmarks.chain.contestants import Entry
from benchmarks.chain.inputs import Inputs
from benchmarks.verification.memory import peak_bytes
from benchmarks.verification.methods import BASELINE, Model, bytes_needed, window

__all__ = ["chains", "seconds_of"]


def chains(
    model: Model,
    pool: Inputs,
    methods: dict[str, Entry],
    device: torch.device,
    *,
    gammas: range,
    rounds: int,
) -> list[dict[str, Any]]:
    """Measure every method at every γ, in turns, on chains from different parts of the pool."""
    places = random.Random(0)
    seconds = defaultdict[tuple[int, str], list[float]](list)
    needed = defaultdict[tuple[int, str], list[int]](list)
    # Each round has every γ, so that a short disturbance of the machine changes no median.
    for turn, gamma in itertools.product(range(rounds + 1), gammas):
        chain = window(pool, places.randrange(pool.tokens.shape[1] - gamma + 1), gamma)
        for name, entry in methods.items():
            accepted, taken = seconds_of(entry, chain, device)
            if turn:  # skip the first round, which compiles and allocates
                seconds[gamma, name].append(taken)
                needed[gamma, name].append(bytes_needed(name, chain, accepted))
    rows = []
    for gamma in gammas:
        chain = window(pool, 0, gamma)
        for name, entry in methods.items():
            given = entry.prepare(chain)
            low, median, high = statistics.quantiles(seconds[gamma, name], n=4)
            row = {
                "model": model.name,
                "V": model.vocabulary,
                "gamma": gamma,
                "method": name,
                "s": median,
                "quartiles s": [low, high],
                "needed bytes": statistics.mean(needed[gamma, name]),
                "moved bytes": None,
                "input bytes": chain.bytes,
                "peak bytes": peak_bytes(lambda e=entry, g=given: e.verify(g), device),
            }
            # The count of moved bytes does not include Triton's kernels.
            if device.type != "cuda" or name == BASELINE:
                with Traffic() as traffic:
                    entry.verify(given)
                row["moved bytes"] = traffic.bytes
            rows.append(row)
    return rows


def seconds_of(entry: Entry, chain: Inputs, device: torch.device) -> tuple[torch.Tensor, float]:
    """Verify a chain; return the number of accepted drafts and the seconds."""
    given = entry.prepare(chain)
    wait(device)
    begun = time.perf_counter()
    accepted = entry.verify(given)[1]
    wait(device)
    return accepted, time.perf_counter() - begun
