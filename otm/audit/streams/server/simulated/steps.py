"""A simulated server with speculative decoding, correct or with one known mistake.

Each step drafts γ tokens, verifies them by rejection sampling, and adds a token.  The server obeys
all parameters of `RequestParameters` and `SamplingParameters` in the order of vLLM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from otm._core.numbers import check_name
from otm._core.probs.distribution import residual_weights
from otm._core.probs.sampling import locate
from otm.audit.adapters.base import AFTER_END, AFTER_STOP, TOO_SHORT
from otm.audit.streams.e_process import Bools, Floats
from otm.audit.streams.server.evidence.endings import AT_CAP, WRONG_REASON
from otm.audit.streams.server.request_parameters import NO_PARAMETERS, RequestParameters
from otm.audit.streams.server.simulated.server import list_of, logprobs_of, transport_of
from otm.decoding import SamplingParameters

ONCE_A_STEP = "penalties once a step"
BONUS_ALONE = "parameters on the bonus token alone"
GREEDY_IF_UNSET = "greedy if the temperature is not set"
IGNORED_DEFAULTS = "default values ignored"
HALVED_BIAS = "half of the bias"
WINDOW_ONCE = "truncation once a step"
DROPPED = "dropped "
"""Prefix of a parameter's name: the server ignores this parameter."""

PROCESSING = (
    *(ONCE_A_STEP, BONUS_ALONE, GREEDY_IF_UNSET, IGNORED_DEFAULTS),
    *(HALVED_BIAS, WINDOW_ONCE),
)
"""Mistakes that change the distribution of tokens."""

ENDINGS = (AFTER_END, AFTER_STOP, AT_CAP, TOO_SHORT, WRONG_REASON)
"""Mistakes that change where texts end, or the stated reason."""

SAMPLING = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("frequency_penalty", "presence_penalty", "repetition_penalty")


@lru_cache(maxsize=2**16)
def _noise(text: str, vocabulary: int) -> Floats:
    digest = hashlib.sha256(text.encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return rng.normal(size=vocabulary)


def simulated_logits(prompt: Any, tokens: tuple[int, ...], vocabulary: int) -> Floats:
    """Return the logits of the simulated target [V], a function of prompt and last token.

    The same tokens are probable after all texts with one prompt, so that they often occur again.
    """
    shared, own = _noise(repr(prompt), vocabulary), _noise(repr((prompt, tokens[-1:])), vocabulary)
    return 1.5 * shared + 1.2 * own


@dataclass
class StepServer:
    """The state of the simulated server."""

    mistake: str | None = None
    vocabulary: int = 50
    gamma: int = 3
    # End token, which has no text.
    end: int = 0
    # Values of parameters that a request leaves out.
    defaults: Mapping[str, float] = field(default_factory=dict)
    # Whether answers list the end token, and whether the text contains the stop string.
    lists_end: bool = True
    keeps_stop: bool = False
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the choice for a request."""
        rng = np.random.default_rng(body["seed"]) if "seed" in body else self.rng
        run = _Request(self, body)
        while run.reason is None:
            run.append(run.step(rng))
        tokens, lists = run.tokens, run.lists
        if not self.lists_end and tokens and tokens[-1] == self.end and run.reason == "stop":
            tokens, lists = tokens[:-1], lists[:-1]
        named: Any = {"stop_reason": run.stopped_at} if run.stopped_at is not None else {}
        return {
            "text": run.text,
            "finish_reason": run.reason,
            "logprobs": logprobs_of(tokens, lists, body),
            "usage": {"completion_tokens": len(run.tokens)},
            **named,
        }


class _Request:
    """One text of the simulated server."""

    def __init__(self, server: StepServer, body: dict[str, Any]) -> None:
        self.server, self.body = server, body
        self.prompt = body.get("prompt", body.get("messages"))
        # Token ids of the prompt, which only the repetition penalty uses.
        self.prefix = self.prompt if isinstance(self.prompt, list) and "prompt" in body else []
        values = self._values()
        self.sampling = SamplingParameters(
            temperature=values.get("temperature", 1.0),
            **{name: values[name] for name in SAMPLING[1:] if values.get(name)},
        )
        self.end = None if body.get("ignore_eos") else server.end
        names = (*PENALTIES, "min_tokens")
        given: dict[str, Any] = {name: values[name] for name in names if name in values}
        share = 0.5 if server.mistake == HALVED_BIAS else 1.0
        bias = {int(token): share * x for token, x in values.get("logit_bias", {}).items()}
        ends = () if self.end is None else (self.end,)
        self.request = RequestParameters(logit_bias=bias, end_tokens=ends, **given)
        self.stop = list(body.get("stop", ()))
        self.tokens: list[int] = []
        # Tokens that top-k and top-p keep at the first position of the step.
        self.window: Bools = np.ones(server.vocabulary, dtype=np.bool_)
        self.lists: list[dict[str, float]] = []
        self.reason: str | None = None
        self.stopped_at: str | None = None
        self.text = ""

    def _values(self) -> dict[str, Any]:
        """Return the parameters that the server uses, with its mistakes."""
        mistake = self.server.mistake or ""
        known = {} if mistake == IGNORED_DEFAULTS else dict(self.server.defaults)
        if mistake == GREEDY_IF_UNSET:
            known["temperature"] = 0.0
        values = known | self.body
        values.pop(mistake.removeprefix(DROPPED), None)
        return values

    def probs(self, tokens: list[int], position: int) -> Floats:
        """Return the target distribution at a position of a step; the last one is the bonus."""
        request, sampling = self.request, self.sampling
        mistake = self.server.mistake
        raw = simulated_logits(self.prompt, tuple(tokens), self.server.vocabulary)
        if mistake == BONUS_ALONE and position < self.server.gamma:
            request = NO_PARAMETERS
            sampling = SamplingParameters(sampling.temperature, sampling.top_k, sampling.top_p)
        seen = tokens[: len(tokens) - position] if mistake == ONCE_A_STEP else tokens
        logits = request.processor([*self.prefix, *seen], raw, len(self.prefix))
        first = SamplingParameters(sampling.temperature, min_p=sampling.min_p)(logits)
        with np.errstate(divide="ignore"):
            kept = SamplingParameters(top_k=sampling.top_k, top_p=sampling.top_p)(np.log(first))
        if mistake == WINDOW_ONCE and position and len(tokens) > position:
            kept = first * self.window / first[self.window].sum()
        else:
            self.window = np.asarray(kept) > 0
        return np.asarray(kept)

    def step(self, rng: np.random.Generator) -> list[int]:
        """Draft, verify, and return the new tokens of a step; the first step has no drafts."""
        gamma, vocabulary = self.server.gamma, self.server.vocabulary
        ids, new = np.arange(vocabulary), list[int]()
        for position in range(gamma if self.tokens else 0):
            text = [*self.tokens, *new]
            target = self.probs(text, position)
            other = simulated_logits(("draft", self.prompt), tuple(text), vocabulary)
            draft = np.asarray(SamplingParameters()(np.log(np.maximum(target, 1e-3)) + 0.5 * other))
            token = locate(ids, draft, rng.random())
            if rng.random() * draft[token] < target[token]:
                new.append(token)
                continue
            return [*new, locate(ids, residual_weights(target, draft), rng.random())]
        bonus = self.probs([*self.tokens, *new], gamma)
        return [*new, locate(ids, bonus, rng.random())]

    def append(self, new: list[int]) -> None:
        """Append the tokens of a step up to the first ending."""
        mistake, most = self.server.mistake, self.body["max_tokens"]
        whole = len(self.tokens) + len(new)
        if mistake == TOO_SHORT and whole > most:
            self.reason = "length"
            return
        checks_stop = mistake != AT_CAP or whole < most
        for place, token in enumerate(new):
            logits = simulated_logits(self.prompt, tuple(self.tokens), self.server.vocabulary)
            self.lists.append(list_of(logits, token, self.body))
            self.tokens.append(token)
            self.text += "" if token == self.server.end else f"w{token} "
            last = place == len(new) - 1 or len(self.tokens) == most
            if token == self.end and (last or mistake != AFTER_END):
                self.reason = "length" if mistake == WRONG_REASON and len(new) > 1 else "stop"
            elif len(self.tokens) == most:
                self.reason = "length"
            if checks_stop and (last or mistake != AFTER_STOP):
                self._stop()
            if self.reason:
                return

    def _stop(self) -> None:
        """Stop at a stop string of the text, and cut the text there."""
        found = next((stop for stop in self.stop if stop in self.text), None)
        if found is None:
            return
        self.reason, self.stopped_at = "stop", found
        start = self.text.index(found)
        until = start + (len(found) if self.server.keeps_stop else 0)
        overrun = self.server.mistake == AFTER_STOP and start + len(found) < len(self.text)
        self.text = self.text if overrun else self.text[:until]


def step_server(mistake: str | None = None, *, seed: int = 0, **options: Any) -> Any:
    """Make an httpx2 transport of a server that decodes speculatively, perhaps with a mistake.

    A mistake is one of `PROCESSING` and `ENDINGS`, or "dropped " with the name of a parameter; the
    options are fields of `StepServer`.
    """
    if mistake is not None and not mistake.startswith(DROPPED):
        check_name("mistake", mistake, (*PROCESSING, *ENDINGS))
    server = StepServer(mistake, rng=np.random.default_rng(seed), **options)
    return transport_of(server.complete)
