"""Correct verifiers in small steps; a known bug is such a verifier with one wrong step.

A test checks that every verifier is lossless if all its steps are the correct ones of this module.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Probs
from otm._core.probs.distribution import residual_weights
from otm.audit.adapters.base import Adapter, Instance, max_tokens
from otm.audit.adapters.processed import ProcessedModel, first_end, prepared
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.kernels.common.distributions.numpy import locate


class Steps(Adapter):
    """A verifier made of steps; a known bug replaces one of the steps."""

    as_bug = partialmethod(KnownBug)
    """Return a `KnownBug` with this verifier."""


class Uniforms(NamedTuple):
    """The uniforms of one run, by their use."""

    # Uniforms that draw the drafts [γ].
    drafts: Any
    # Uniforms that accept or reject the drafts [γ].
    coins: Any
    # Uniforms [γ]; entry i draws the token that replaces draft i.
    residual: Any
    # Uniform that draws the token after γ accepted drafts.
    bonus: Any
    # Source of further uniforms.
    source: Randomness


class Rows(NamedTuple):
    """The drafts of one chain, and the rows that its verifier receives."""

    # γ draft tokens.
    tokens: Path
    # γ stated distributions of the drafts [V].
    draft: list[Probs]
    # γ + 1 target distributions [V].
    target: list[Probs]

    def residual(self, i: int) -> Probs:
        """Return the weights of the token that replaces a rejected draft i."""
        return residual_weights(self.target[i], self.draft[i])


class TestedRows(Rows):
    """Rows that test the drafts, with other rows for the tokens that replace them."""

    replacing: list[Probs]

    @classmethod
    def of(cls, rows: Rows, tested: list[Probs]) -> TestedRows:
        """Return rows whose first γ target rows are `tested`, for the test of drafts alone."""
        result = cls(rows.tokens, rows.draft, [*tested, rows.target[-1]])
        result.replacing = rows.target
        return result

    def residual(self, i: int) -> Probs:
        """Return the weights of the token that replaces a rejected draft i."""
        return residual_weights(self.replacing[i], self.draft[i])


def normalised(weights: Probs) -> Probs:
    """Divide weights by their sum: [V], or each row of [m, V]."""
    probs: Probs = weights / weights.sum(axis=-1, keepdims=True)
    return probs


def sharpened(probs: Probs) -> Probs:
    """Halve the temperature: [V], or each row of [m, V]."""
    return normalised(probs**2)


def greedy_probs(probs: Probs) -> Probs:
    """Put all mass on the most probable token: [V], or each row of [m, V]."""
    certain = np.zeros_like(probs)
    np.put_along_axis(certain, probs.argmax(axis=-1, keepdims=True), 1, axis=-1)
    return certain


def top_half(probs: Probs) -> Probs:
    """Keep the more probable half of the tokens."""
    kept = np.argsort(-probs, kind="stable")[: (probs.size + 1) // 2]
    return normalised(np.where(np.isin(np.arange(probs.size), kept), probs, 0 * probs))


def unchanged(probs: Probs) -> Probs:
    """Return the distribution unchanged."""
    return probs


def accepts(coin: Any, draft: Probs, target: Probs, x: Any) -> Any:
    """Return whether draft x is accepted."""
    return coin * draft[x] < target[x]


def residual(rows: Rows, i: int) -> Probs:
    """Return the weights of the token that replaces a rejected draft i."""
    return rows.residual(i)


def bonus(rows: Rows) -> Probs:
    """Return the weights of the token after all drafts are accepted."""
    return rows.target[len(rows.tokens)]


@dataclass(frozen=True, eq=False)
class Chain(Steps):
    """Chain verification of γ drafts (Leviathan's Algorithm 1), in replaceable steps."""

    name: str = "chain verification"
    # Map from the uniforms of a run to the uniforms that the verifier uses.
    uniforms: Callable[[Uniforms], Uniforms] = lambda uniforms: uniforms
    # Map from the draft model's distribution to the distribution that drafts are sampled from.
    drawn: Callable[[Probs], Probs] = unchanged
    # Map from the draft model's distribution to the draft row of the verifier.
    stated: Callable[[Probs], Probs] = unchanged
    # Map from the target's distribution to the target row of the verifier.
    aim: Callable[[Probs], Probs] = unchanged
    # Map from all rows to the rows of the verifier.
    shown: Callable[[Instance, Rows], Rows] = lambda _, rows: rows
    accepts: Callable[[Any, Probs, Probs, Any], Any] = accepts
    residual: Callable[[Rows, int], Probs] = residual
    bonus: Callable[[Rows], Probs] = bonus
    draw_last: Callable[[Probs, Any], int] = locate

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft γ tokens and verify them."""
        drafts, coins, last = source(instance.gamma), source(instance.gamma), source(1)[0]
        uniforms = self.uniforms(Uniforms(drafts, coins, [last] * instance.gamma, last, source))
        tokens = self.drafts(instance, uniforms.drafts)
        contexts = [instance.prompt + tokens[:i] for i in range(len(tokens) + 1)]
        rows = Rows(
            tokens,
            [self.stated(instance.draft.probs(context)) for context in contexts[:-1]],
            [self.aim(instance.target.probs(context)) for context in contexts],
        )
        return self.verify(self.shown(instance, rows), uniforms)

    def drafts(self, instance: Instance, uniforms: Any) -> Path:
        """Draw the drafts, one by each uniform."""
        tokens: Path = ()
        for uniform in uniforms:
            probs = self.drawn(instance.draft.probs(instance.prompt + tokens))
            tokens = (*tokens, locate(probs, uniform))
        return tokens

    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        """Accept drafts up to the first rejection, and add one token."""
        for i, x in enumerate(rows.tokens):
            if not self.accepts(uniforms.coins[i], rows.draft[i], rows.target[i], x):
                token = self.draw_last(self.residual(rows, i), uniforms.residual[i])
                return (*rows.tokens[:i], token)
        return (*rows.tokens, self.draw_last(self.bonus(rows), uniforms.bonus))


def passes(rows: Rows, i: int, weight: Any) -> Any:
    """Return the probability h_i that the first i drafts of a block pass their test."""
    if i == len(rows.tokens):
        return weight
    rest = np.maximum(weight * rows.target[i] - rows.draft[i], 0).sum()
    # With a weight above 1, which is a mistake, the denominator may be 0.
    return rest / (rest + 1 - weight or rest) if rest else rest


def weighed(weight: Any, target: Any, draft: Any) -> Any:
    """Return the weight w_i of a prefix: w_{i-1}, and the probabilities of its last draft."""
    return min(weight * target / draft if draft else weight, 1)


@dataclass(frozen=True, eq=False)
class Block(Chain):
    """Block verification (Sun et al. 2024, Algorithm 2), in replaceable steps."""

    name: str = "block verification"
    weighed: Callable[[Any, Any, Any], Any] = weighed
    passes: Callable[[Rows, int, Any], Any] = passes
    # Weights of the token after i accepted drafts, if i < γ.
    left: Callable[[Rows, int, Any], Probs] = lambda rows, i, weight: residual_weights(
        weight * rows.target[i], rows.draft[i]
    )

    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        """Accept the longest prefix of the drafts that passes, and add one token."""
        weights: list[Any] = [1]
        for x, draft, target in zip(rows.tokens, rows.draft, rows.target, strict=False):
            weights.append(self.weighed(weights[-1], target[x], draft[x]))
        i = self.accepted(rows, uniforms, weights)
        if i == len(rows.tokens):
            return (*rows.tokens, self.draw_last(self.bonus(rows), uniforms.bonus))
        left = self.left(rows, i, weights[i])
        return (*rows.tokens[:i], self.draw_last(left, uniforms.residual[i]))

    def accepted(self, rows: Rows, uniforms: Uniforms, weights: list[Any]) -> int:
        """Return the number of drafts of the longest prefix that passes its test."""
        i = len(rows.tokens)
        while i > 0 and not uniforms.coins[i - 1] < self.passes(rows, i, weights[i]):
            i -= 1
        return i


@dataclass(frozen=True, eq=False)
class Loop(Chain):
    """A loop of chain verification, until the required number of tokens is reached."""

    name: str = "decoding loop"
    loops = True
    # Return the source of each step.
    streams: Callable[[Randomness, int], Iterable[Randomness]] = lambda source, _: itertools.repeat(
        source
    )
    # Whether the loop makes γ drafts near the limit of tokens too, and cuts the text.
    cut: bool = False

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode until the limit of tokens."""
        tokens: Path = ()
        limit = max_tokens(self, instance)
        for step, stream in enumerate(self.streams(source, instance.gamma)):
            gamma = instance.gamma_at_step(step)
            gamma = gamma if self.cut else min(gamma, limit - len(tokens) - 1)
            rest = dataclasses.replace(instance, prompt=instance.prompt + tokens, gamma=gamma)
            tokens += super().output(rest, stream)
            if len(tokens) >= limit:
                break
        return tokens[:limit]


def cut_at_end(tokens: Path, ends: tuple[Path, ...], limit: int) -> Path:
    """Cut a text at its first end, and at the limit of tokens."""
    found = first_end(tokens[:limit], ends)
    return tokens[: limit if found is None else found[0]]


@dataclass(frozen=True, eq=False)
class Repeated(Adapter):
    """A loop over a verifier of one step, which drafts less at the end or cuts the end."""

    step: Adapter
    cut: bool
    # Number of tokens of the loop.
    max_tokens: int | None = None
    end: int | None = None
    stop: tuple[Path, ...] = ()
    processor: Any = None
    # Whether the processor applies to drafts too.
    processes_drafts: bool = False
    finish: Callable[[Path, tuple[Path, ...], int], Path] = cut_at_end
    loops = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the verifier."""
        return self.step.name

    def supports(self, instance: Instance) -> bool:
        """Whether the verifier supports the instance."""
        return self.step.supports(instance) and super().supports(instance)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode a text: run the verifier step after step."""
        instance = prepared(self, instance)
        draft, target = instance.draft, instance.target
        if self.processes_drafts and isinstance(target, ProcessedModel):
            draft = target.of(draft)
        tokens: Path = ()
        for step in itertools.count():
            left = max_tokens(self, instance) - len(tokens)
            if left <= 0 or first_end(tokens, self.ends) is not None:
                break
            gamma = instance.gamma_at_step(step)
            gamma = gamma if self.cut else min(gamma, left - 1)
            prompt = instance.prompt + tokens
            rest = dataclasses.replace(instance, prompt=prompt, gamma=gamma, draft=draft)
            tokens += self.step.output(rest, source)
        return self.finish(tokens, self.ends, max_tokens(self, instance))


def both(a: Adapter, b: Adapter) -> Chain | None:
    """Combine the mistakes of two chain verifiers; return None if they are in the same step."""
    if not isinstance(a, Chain) or not isinstance(b, Chain):
        return None
    changed = [
        {f.name: getattr(bug, f.name) for f in dataclasses.fields(bug) if f.name != "name"
         and getattr(bug, f.name) is not f.default}
        for bug in (a, b)
    ]  # fmt: skip
    kinds = {type(a), type(b)}
    if len(kinds - {Chain}) > 1 or Loop in kinds or changed[0].keys() & changed[1].keys():
        return None
    first, steps = (b, changed[0]) if type(a) is Chain else (a, changed[1])
    return dataclasses.replace(first, **steps, name=f"{a.name} + {b.name}")


def draw_siblings(draft: Probs, uniforms: Any) -> list[int]:
    """Draw the drafts of a node."""
    return [locate(draft, uniform) for uniform in uniforms]


@dataclass(frozen=True, eq=False)
class Siblings(Steps):
    """Recursive rejection of k drafts of a token, with a bonus token; each step can be replaced."""

    name: str = "recursive rejection"
    max_tokens = 2
    drafts: Callable[[Probs, Any], list[int]] = draw_siblings
    coins: Callable[[Randomness, int], Any] = lambda source, k: source(k)
    # Return whether draft i is accepted.
    accepts: Callable[[int, Any, Probs, Probs, int], Any] = lambda _, *draft: accepts(*draft)
    # Return the new target after a draft is rejected.
    left: Callable[[Probs, Probs], Probs] = lambda target, draft: normalised(
        residual_weights(target, draft)
    )
    # Number of rejected drafts that update the target.
    updates: float = math.inf
    # Number of rejected drafts that the last token's residual includes; −1 for all.
    residuals: int = -1

    def supports(self, instance: Instance) -> bool:
        """Whether there are several drafts."""
        return instance.k > 1

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw k drafts and verify them."""
        draft, target = (
            model.probs(instance.prompt) for model in (instance.draft, instance.target)
        )
        drafts = self.drafts(draft, source(instance.k))
        coins, last = self.coins(source, instance.k), source(1)[0]
        targets = [target]
        for i, (x, coin) in enumerate(zip(drafts, coins, strict=True)):
            if self.accepts(i, coin, draft, targets[-1], x):
                return (x, locate(instance.target.probs((*instance.prompt, x)), last))
            targets.append(self.left(targets[-1], draft) if i < self.updates else targets[-1])
        return (locate(targets[self.residuals], last),)
