"""A simulated server that decodes simultaneous requests together, with drafts and perhaps a fault.

It answers `echo`, so that the lists of a prompt can be compared with those of an answer.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from otm._core.listed_tokens import token_name
from otm._core.numbers import check_name
from otm._core.optional import require
from otm._core.probs.sampling import locate
from otm.audit.streams.e_process import Floats
from otm.decoding import SamplingParameters

MEMORY = 4
"""Number of tokens that determine the logits of the next token."""

GATHERING = 1e-3
"""Seconds without a new request after which the waiting requests become a batch."""

FAULTS = (
    "shifted lists",
    "stale lists",
    "draft lists",
    "lists after temperature",
    "no bonus list",
    "another row",
    "another row's token",
    "one temperature",
    "seed ignored",
    "shared seed",
    "greedy drafts",
)
"""Faults that the server can have."""


@lru_cache(maxsize=2**15)
def _normal(text: str, vocabulary: int) -> Floats:
    """Return fixed normal numbers [V] for a text."""
    digest = hashlib.sha256(text.encode()).digest()
    scores = np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(size=vocabulary)
    scores.flags.writeable = False
    return scores


@dataclass(eq=False)
class _Row:
    """A request that is being answered."""

    body: dict[str, Any]
    prompt: tuple[int, ...]
    parameters: SamplingParameters
    tokens: tuple[int, ...] = ()
    lists: list[dict[str, float]] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    @property
    def text(self) -> tuple[int, ...]:
        return self.prompt + self.tokens

    @property
    def left(self) -> int:
        return int(self.body["max_tokens"]) - len(self.tokens)


@dataclass(eq=False)
class BatchingEngine:
    """The model, and the decoding of a batch by chains of drafts."""

    fault: str | None
    share: float
    vocabulary: int
    drafts: int
    noise: float
    grid: float
    rng: np.random.Generator

    def logits(self, text: tuple[int, ...]) -> Floats:
        """Return the target's logits after a text [V], rounded to the grid, with noise."""
        scores = 2 * _normal(repr(text[-MEMORY:]), self.vocabulary)
        if self.grid:
            scores = np.round(scores / self.grid) * self.grid
        return scores + self.noise * self.rng.normal(size=self.vocabulary) if self.noise else scores

    def draft_logits(self, text: tuple[int, ...]) -> Floats:
        """Return the draft's logits after a text [V]: the target's, disturbed."""
        last = repr(text[-MEMORY:])
        return 2 * _normal(last, self.vocabulary) + _normal("draft" + last, self.vocabulary)

    def listed(self, logits: Floats, token: int, size: int) -> dict[str, float]:
        """List the sampled token first, like vLLM, then the most probable tokens."""
        logs = logits - np.logaddexp.reduce(logits)
        top = np.argsort(-logs, kind="stable")[:size]
        return {token_name(i): float(logs[i]) for i in (token, *top)}

    def decode(self, batch: list[_Row]) -> None:
        """Answer all requests of a batch, one step of drafts for each row at a time."""
        for row in batch:
            ignored = self.fault == "seed ignored" and self.strikes()
            seeded = "seed" in row.body and not ignored
            row.rng = np.random.default_rng(row.body["seed"]) if seeded else self.rng.spawn(1)[0]
        seeds = [row.body["seed"] for row in batch if "seed" in row.body]
        if self.fault == "shared seed" and seeds and self.strikes():
            for row in batch:
                row.rng = np.random.default_rng(seeds[0])
        if self.fault == "one temperature" and self.strikes():
            for row in batch:
                row.parameters = batch[0].parameters
        while any(row.left > 0 for row in batch):
            for number, row in enumerate(batch):
                if row.left > 0:
                    self._step(row, batch[(number + 1) % len(batch)])

    def strikes(self) -> bool:
        """Whether the fault occurs this time."""
        return self.rng.random() < self.share

    def _step(self, row: _Row, other: _Row) -> None:
        """Add the accepted drafts and the recovered or bonus token of one step."""
        start, size = row.text, row.body["logprobs"]
        drafted = self._draft(row)
        rows = [self.logits(start + drafted[:i]) for i in range(len(drafted) + 1)]
        listed, greedy = list(rows), row.parameters.temperature == 0
        if self.fault in ("another row", "another row's token") and other is not row:
            place = int(self.rng.integers(len(rows)))
            if self.strikes():
                rows[place] = self.logits(other.text)
                listed[place] = rows[place] if self.fault == "another row" else listed[place]
        tokens: list[int] = []
        for place, draft in enumerate(drafted):
            target = row.parameters(rows[place])
            probs = row.parameters(self.draft_logits(start + drafted[:place]))
            lenient = self.fault == "greedy drafts" and greedy and self.strikes()
            if lenient or row.rng.random() * probs[draft] < target[draft]:
                tokens.append(draft)
                continue
            residual = np.maximum(target - probs, 0)
            tokens.append(locate(np.arange(target.size), residual, row.rng.random()))
            break
        accepted = tuple(tokens) == drafted
        if accepted:
            target = row.parameters(rows[-1])
            tokens.append(locate(np.arange(target.size), target, row.rng.random()))
        listed = self._faulty(listed, row, start, drafted, len(tokens))
        entries = [self.listed(*pair, size) for pair in zip(listed, tokens, strict=False)]
        if self.fault == "no bonus list" and accepted and self.strikes():
            entries[-1] = {}
        row.lists += entries[: row.left]
        row.tokens += tuple(tokens[: row.left])

    def _draft(self, row: _Row) -> tuple[int, ...]:
        """Draft a chain of tokens from the draft model."""
        drafted: tuple[int, ...] = ()
        for _ in range(self.drafts if row.tokens else 0):
            probs = row.parameters(self.draft_logits(row.text + drafted))
            drafted += (locate(np.arange(probs.size), probs, row.rng.random()),)
        return drafted

    def _faulty(
        self,
        logits: list[Floats],
        row: _Row,
        start: tuple[int, ...],
        drafted: tuple[int, ...],
        count: int,
    ) -> list[Floats]:
        """Return the logits of the lists that are sent, in some steps with the server's fault."""
        logits = logits[:count]
        if self.fault is None or not self.strikes():
            return logits
        if self.fault == "shifted lists":
            return [*logits[1:], logits[0]]
        if self.fault == "stale lists" and row.tokens:
            return [self.logits(start[:-1]), *logits[:-1]]
        if self.fault == "draft lists":
            accepted = count - 1
            return [self.draft_logits(start + drafted[:i]) for i in range(accepted)] + logits[-1:]
        if self.fault == "lists after temperature" and row.parameters.temperature:
            return [each / row.parameters.temperature for each in logits]
        return logits


def batching_server(
    *,
    fault: str | None = None,
    share: float = 0.5,
    vocabulary: int = 50,
    drafts: int = 3,
    noise: float = 0.0,
    grid: float = 0.0,
    seed: int = 0,
) -> Any:
    """Make an httpx2 transport that answers simultaneous requests in one batch.

    A wrong server has one of the `FAULTS`, in a share of its steps, rows or batches.  Each pass of
    the model adds normal `noise` to its logits.  If `grid` is positive, the logits are multiples of
    it, as in low precision, so that tokens may tie.
    """
    httpx = require("httpx2")
    if fault is not None:
        check_name("fault", fault, FAULTS)
    rng, lock = np.random.default_rng(seed), threading.Lock()
    engine = BatchingEngine(fault, share, vocabulary, drafts, noise, grid, rng)
    waiting: list[_Row] = []

    def ids(prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(int(each) for each in _normal(prompt, 8).argsort())
        return tuple(prompt)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        names = ("temperature", "top_k", "top_p")
        values = {name: body[name] for name in names if (name, body[name]) != ("top_k", 0)}
        row = _Row(body, ids(body["prompt"]), SamplingParameters(**values))
        waiting.append(row)
        # The batch begins when no further request arrives.
        size = 0
        while size < len(waiting) and row in waiting:
            size = len(waiting)
            time.sleep(GATHERING)
        with lock:
            if row in waiting:
                batch, waiting[:] = list(waiting), []
                # The threads of a client start in any order.
                batch.sort(key=lambda row: json.dumps(row.body, sort_keys=True))
                engine.decode(batch)
            return {"choices": [{"logprobs": written(row)}]}

    def written(row: _Row) -> dict[str, Any]:
        names, lists = [token_name(token) for token in row.tokens], row.lists
        if row.body.get("echo"):
            texts = [row.prompt[:i] for i in range(1, len(row.prompt))]
            tokens = [token_name(token) for token in row.prompt]
            pairs = zip(texts, row.prompt[1:], strict=True)
            size = row.body["logprobs"]
            before = [engine.listed(engine.logits(text), x, size) for text, x in pairs]
            names, lists = tokens + names, [{}, *before, *lists]
        own = [entries.get(name) for name, entries in zip(names, lists, strict=True)]
        tops = [entries or None for entries in lists]
        return {"tokens": names, "top_logprobs": tops, "token_logprobs": own}

    def handle(request: Any) -> Any:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "simulated"}]})
        if request.url.path != "/v1/completions":
            return httpx.Response(404, text="unknown path")
        return httpx.Response(200, json=answer(json.loads(request.content)))

    return httpx.MockTransport(handle)
