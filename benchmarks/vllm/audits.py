"""Audits of servers by `otm.audit.streams.server`, and acceptance from the servers' counters."""

import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.vllm.engine import (
    NGRAM,
    counters,
    draft_model,
    post,
    transformers_server,
    vllm_server,
)
from benchmarks.vllm.models import PROMPTS
from otm.audit import audit_server
from otm.decoding import SamplingParameters
from otm.models import HuggingFaceModel

SAMPLING = (
    SamplingParameters(),
    SamplingParameters(temperature=0.7),
    SamplingParameters(top_k=8),
)
LISTED = 64
"""Number of requested log-probabilities: the whole vocabulary."""

TOKENS = 8
REQUESTS = 2_000
TV = 0.05
BLOCKS, PER_BLOCK = 8, 100
"""Number of blocks of requests for the interval of the acceptance, and requests per block."""


class Served(NamedTuple):
    """A server: its kind of drafts, and the plug-in's rule, or None for vLLM's verification."""

    drafts: str
    rule: str | None

    def __str__(self) -> str:
        if self.drafts == "none":
            return "no speculation"
        return f"{self.drafts}, {f'OTM {self.rule}' if self.rule else 'vLLM itself'}"

    @property
    def should_be_lossless(self) -> bool:
        """Whether the audit should find no deviation; vLLM's own verification deviates on CPUs."""
        return self.drafts == "none" or self.rule is not None


SERVERS = (
    Served("none", None),
    Served("n-grams", None),
    Served("draft model", None),
    *(Served(drafts, rule) for drafts in ("n-grams", "draft model") for rule in ("chain", "block")),
)


def audit_all(models: tuple[Path, Path], requests: int = REQUESTS) -> list[dict[str, Any]]:
    """Start each server, audit it, measure its acceptance, and stop it."""
    target, draft = models
    speculation = {"none": None, "n-grams": NGRAM, "draft model": draft_model(draft)}
    records = []
    for server in SERVERS:
        start = time.monotonic()
        with vllm_server(target, speculation[server.drafts], server.rule) as address:
            up = time.monotonic()
            report = audit_server(
                address,
                prompts=PROMPTS,
                sampling=SAMPLING,
                logprobs=LISTED,
                max_tokens=TOKENS,
                requests=requests,
                # Single requests are slow, so only servers with quick verdicts get them.
                concurrency=(8,) if server.should_be_lossless else (1, 8),
                tv=TV,
            )
            record = {
                "server": str(server),
                "right": report.lossless == server.should_be_lossless,
                "seconds": {"start": up - start, "audit": time.monotonic() - up},
                "report": report.to_dict(),
            }
            if server.drafts == "draft model" and server.rule:
                record["accepted"] = accepted_per_step(address)
        records.append(record)
        print(f"\n{server} ({time.monotonic() - start:.0f} s)\n{report}", flush=True)
    return records


def audit_transformers(models: tuple[Path, Path], requests: int = REQUESTS) -> dict[str, Any]:
    """Audit the server of transformers, which returns only texts, against the model in files."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start = time.monotonic()
    target = models[0]
    model = AutoModelForCausalLM.from_pretrained(target).eval()
    with transformers_server() as address:
        up = time.monotonic()
        report = audit_server(
            address,
            model=HuggingFaceModel(model),
            tokenizer=AutoTokenizer.from_pretrained(target),
            name=str(target),
            prompts=PROMPTS,
            sampling=SAMPLING[:2],  # this server has no top-k
            max_tokens=TOKENS,
            requests=requests,
            concurrency=(1,),
            tv=TV,
        )
    seconds = {"start": up - start, "audit": time.monotonic() - up}
    print(f"\ntransformers ({time.monotonic() - start:.0f} s)\n{report}", flush=True)
    record = {"server": "transformers", "right": report.lossless, "seconds": seconds}
    return {**record, "report": report.to_dict()}


def accepted_per_step(
    address: str, blocks: int = BLOCKS, requests: int = PER_BLOCK
) -> dict[str, float]:
    """Measure accepted drafts per step, with a 95 % interval over blocks of requests."""
    body = {"model": "target", "max_tokens": 24, "temperature": 1.0, "ignore_eos": True}
    bodies = [{**body, "prompt": PROMPTS[i % len(PROMPTS)]} for i in range(requests)]
    rates = []
    for _ in range(blocks):
        before = counters(address)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda body: post(address, "/v1/completions", body), bodies))
        after = counters(address)
        steps, accepted = (after[name] - before.get(name, 0) for name in ("steps", "accepted"))
        rates.append(accepted / steps)
    return {"mean": statistics.fmean(rates), "plus_minus": half_width(rates)}


def half_width(values: Sequence[float]) -> float:
    """Return half the width of a 95 % interval of the mean, by Student's t for eight values."""
    return 2.37 * statistics.stdev(values) / math.sqrt(len(values))
