"""Tokens per second of vLLM's server by the number of requests in flight, from its own metrics."""

import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.engines.audits import Served
from benchmarks.engines.engine import NGRAM, metrics, post, vllm_server
from benchmarks.engines.real import PROMPTS, SIZE

__all__ = ["rates_of_servers"]

SERVERS = (Served("none", None), Served("n-grams", None), Served("n-grams", "block"))
IN_FLIGHT = (1, 4, 16)
TOKENS = 32
RUNS = 3
"""Number of measurements; the table has their median."""


def rates_of_servers(folder: Path) -> list[dict[str, Any]]:
    """Measure servers of one model without drafts, and with drafts of n-grams."""
    rows = []
    for server in SERVERS:
        drafts = None if server.drafts == "none" else NGRAM
        with vllm_server(folder, drafts, server.rule, SIZE) as address:
            send(address, 1, 2)  # the first requests are slow
            for requests in IN_FLIGHT:
                found = [measured(address, requests) for _ in range(RUNS)]
                row = {name: statistics.median(each[name] for each in found) for name in found[0]}
                rows.append({"server": str(server), "requests": requests, **row})
                cells = ", ".join(f"{name} {value:.2f}" for name, value in row.items())
                print(f"  {server}, {requests} in flight: {cells}", flush=True)
    return rows


def measured(address: str, requests: int) -> dict[str, float]:
    """Send requests, and return what the counters of the server gained by them."""
    before, start = metrics(address), time.perf_counter()
    send(address, requests, max(requests, 4))
    seconds = time.perf_counter() - start
    gain = gained(before, metrics(address))
    steps = gain.get("spec_decode_num_drafts_total", 0)
    accepted = gain.get("spec_decode_num_accepted_tokens_total", 0)
    waits = gain["request_time_per_output_token_seconds_sum"]
    return {
        "tokens/s": gain["generation_tokens_total"] / seconds,
        "of a request": gain["request_time_per_output_token_seconds_count"] / waits,
        "accepted a step with drafts": accepted / steps if steps else 0.0,
    }


def gained(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each metric rose."""
    return {name: value - before.get(name, 0) for name, value in after.items()}


def send(address: str, in_flight: int, count: int) -> None:
    """Send requests of equal length, some of them at a time."""
    common = {"model": "target", "max_tokens": TOKENS, "temperature": 1.0, "ignore_eos": True}
    bodies = [{**common, "prompt": PROMPTS[i % len(PROMPTS)]} for i in range(count)]
    with ThreadPoolExecutor(in_flight) as pool:
        list(pool.map(lambda body: post(address, "/v1/completions", body), bodies))
