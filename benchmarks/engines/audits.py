"""Audits of servers by `otm.audit.streams.server`, and acceptance from the servers' counters."""

import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.engines.engine import (
    NGRAM,
    TINY,
    Size,
    counters,
    draft_model,
    post,
    transformers_server,
    vllm_server,
)
from otm.audit import LOSSLESS, NOT_LOSSLESS, audit_server
from otm.decoding import SamplingParameters
from otm.errors import EndpointError

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


class Subject(NamedTuple):
    """A model to serve, and the requests of its audits.

    Attributes
    ----------
    target : Path
        Folder of the model.
    draft : Path or None
        Folder of a draft model; without one, drafts are n-grams.
    prompts : tuple of str
        Texts with repetitions, in which n-grams find drafts.
    sampling : tuple of SamplingParameters
        Sampling parameters; the server of transformers has no top-k.
    size : Size
        Limits of the servers.
    """

    target: Path
    draft: Path | None
    prompts: tuple[str, ...]
    sampling: tuple[SamplingParameters, ...]
    size: Size = TINY

    @property
    def servers(self) -> tuple[Served, ...]:
        """The servers of vLLM."""
        kinds = ("n-grams",) if self.draft is None else ("n-grams", "draft model")
        rules = tuple(Served(kind, rule) for kind in kinds for rule in ("chain", "block"))
        return (Served("none", None), *(Served(kind, None) for kind in kinds), *rules)


def audit_all(subject: Subject, requests: int = REQUESTS) -> list[dict[str, Any]]:
    """Start each server of vLLM, audit it, measure its acceptance, and stop it."""
    speculation: dict[str, dict[str, Any] | None] = {"none": None, "n-grams": NGRAM}
    if subject.draft is not None:
        speculation["draft model"] = draft_model(subject.draft)
    records = []
    for server in subject.servers:
        start = time.monotonic()
        drafts = speculation[server.drafts]
        with vllm_server(subject.target, drafts, server.rule, subject.size) as address:
            up = time.monotonic()
            record = audited(
                str(server),
                address,
                lossless=server.should_be_lossless,
                prompts=subject.prompts,
                sampling=subject.sampling,
                logprobs=subject.size.listed,
                requests=requests,
                # Single requests are slow, so only servers with quick verdicts get them.
                concurrency=(8,) if server.should_be_lossless else (1, 8),
            )
            record["seconds"]["start"] = up - start
            if server.drafts == "draft model" and server.rule:
                record["accepted"] = accepted_per_step(address, subject.prompts)
        records.append(record)
    return records


def audit_transformers(
    subject: Subject,
    requests: int = REQUESTS,
    name: str = "transformers",
    *,
    lossless: bool = True,
    tv: float = TV,
) -> dict[str, Any]:
    """Audit the server of transformers, which returns only texts, against the model in files."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from otm.models import HuggingFaceModel

    start = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(subject.target, dtype="float32").eval()
    with transformers_server(subject.size) as address:
        up = time.monotonic()
        record = audited(
            name,
            address,
            lossless=lossless,
            tv=tv,
            model=HuggingFaceModel(model),
            tokenizer=AutoTokenizer.from_pretrained(subject.target),
            name=str(subject.target),
            prompts=subject.prompts,
            sampling=[each for each in subject.sampling if each.top_k is None],
            requests=requests,
            concurrency=(1,),
        )
    record["seconds"]["start"] = up - start
    return record


def audited(
    server: str, address: str, *, lossless: bool, tv: float = TV, **options: Any
) -> dict[str, Any]:
    """Audit a server, print the report, and return the record with its time in seconds.

    If the server stops answering, the record has the error, so that other servers keep theirs.
    """
    start = time.monotonic()
    record: dict[str, Any] = {"server": server, "right": False}
    try:
        report = audit_server(address, max_tokens=TOKENS, tv=tv, **options)
    except EndpointError as error:
        record["error"] = shows = str(error)
    else:
        record["right"] = report.verdict == (LOSSLESS if lossless else NOT_LOSSLESS)
        record["report"], shows = report.to_dict(), str(report)
    record["seconds"] = {"audit": time.monotonic() - start}
    print(f"\n{server} ({record['seconds']['audit']:.0f} s)\n{shows}", flush=True)
    return record


def accepted_per_step(
    address: str, prompts: Sequence[str], blocks: int = BLOCKS, requests: int = PER_BLOCK
) -> dict[str, float]:
    """Measure accepted drafts per step, with a 95 % interval over blocks of requests."""
    body = {"model": "target", "max_tokens": 24, "temperature": 1.0, "ignore_eos": True}
    bodies = [{**body, "prompt": prompts[i % len(prompts)]} for i in range(requests)]
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
