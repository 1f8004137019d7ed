"""Right verifiers in small steps, of which each known bug gets one wrong.

With all steps as they are here, every verifier is lossless, which is tested: a bug is what its few
lines change, and nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from otm._core.arithmetic import Law, zeros
from otm._core.sampling import InverseCdf
from otm.audit.adapter import Adapter, Instance
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path


class Uniforms(NamedTuple):
    """Where the randomness of one run is used.

    Attributes
    ----------
    drafts : array [γ]
        Draw the drafts.
    coins : array [γ]
        Accept or reject them.
    last : list of γ + 1 uniforms
        Entry i draws the token that follows i accepted drafts.
    """

    drafts: Any
    coins: Any
    last: list[Any]


class Rows(NamedTuple):
    """What a verifier of one chain is given.

    Attributes
    ----------
    drafts : tuple of γ int
        The drafts.
    offered : list of γ arrays [V]
        The laws that they are said to be drawn from.
    wanted : list of γ + 1 arrays [V]
        The target's laws.
    """

    drafts: Path
    offered: list[Law]
    wanted: list[Law]


class Chain(Adapter):
    """Chain verification of γ drafts (Leviathan's Algorithm 1), in steps.

    Parameters
    ----------
    name : str, optional
        What reports call it.
    """

    def __init__(self, name: str = "chain verification") -> None:
        self.name = name

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft γ tokens and verify them."""
        uniforms = self.uniforms(source, instance.gamma)
        drafts: Path = ()
        for uniform in uniforms.drafts:
            law = self.proposal(instance.draft.probs(instance.prompt + drafts))
            drafts = (*drafts, self.draw(law, uniform))
        return self.verify(self.rows(instance, drafts), uniforms)

    def uniforms(self, source: Randomness, gamma: int) -> Uniforms:
        """Take all uniforms: one for each draft, one for each coin, one for the last token."""
        drafts, coins, last = source(gamma), source(gamma), source(1)[0]
        return Uniforms(drafts, coins, [last] * (gamma + 1))

    def proposal(self, law: Law) -> Law:
        """Law that a draft is drawn from, where the draft model has this law."""
        return law

    def stated(self, law: Law) -> Law:
        """Law that the verifier is told instead: the same."""
        return self.proposal(law)

    def aim(self, law: Law) -> Law:
        """Law that the verifier aims at, where the target model has this law."""
        return law

    def rows(self, instance: Instance, drafts: Path) -> Rows:
        """Read both models along the drafts."""
        contexts = [instance.prompt + drafts[:i] for i in range(len(drafts) + 1)]
        return Rows(
            drafts,
            [self.stated(instance.draft.probs(context)) for context in contexts[:-1]],
            [self.aim(instance.target.probs(context)) for context in contexts],
        )

    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        """Accept drafts up to the first that is rejected, and add one token."""
        for i, x in enumerate(rows.drafts):
            if not self.accepts(uniforms.coins[i], rows.offered[i], rows.wanted[i], x):
                token = self.draw_last(self.residual(rows, i), uniforms.last[i])
                return (*rows.drafts[:i], token)
        return (*rows.drafts, self.draw_last(self.bonus(rows), uniforms.last[-1]))

    def accepts(self, coin: Any, offered: Law, wanted: Law, x: int) -> bool:
        """Whether draft x is accepted."""
        return bool(coin * offered[x] < wanted[x])

    def residual(self, rows: Rows, i: int) -> Law:
        """Weights of the token that replaces draft i; none are left after wrong steps alone."""
        rest = excess(rows.wanted[i], rows.offered[i])
        return rest if rest.any() else rows.wanted[i]

    def bonus(self, rows: Rows) -> Law:
        """Weights of the token that follows when all drafts are accepted."""
        return rows.wanted[len(rows.drafts)]

    def draw(self, weights: Law, uniform: Any) -> int:
        """Draw a token from weights, by inverse cumulative distribution."""
        return draw(weights, uniform)

    def draw_last(self, weights: Law, uniform: Any) -> int:
        """Draw the token behind the accepted drafts."""
        return self.draw(weights, uniform)


class Block(Chain):
    """Block verification (Sun et al. 2024, Algorithm 2), in steps.

    Parameters
    ----------
    name : str, optional
        What reports call it.
    """

    def __init__(self, name: str = "block verification") -> None:
        super().__init__(name)

    def verify(self, rows: Rows, uniforms: Uniforms) -> Path:
        """Accept the longest part of the drafts that passes, and add one token."""
        weights = [1 + 0 * rows.wanted[0][0]]
        for x, offered, wanted in zip(rows.drafts, rows.offered, rows.wanted, strict=False):
            ratio = weights[-1] * wanted[x] / offered[x] if offered[x] else weights[-1]
            weights.append(min(ratio, 1 + 0 * ratio))
        gamma = len(rows.drafts)
        for i in range(gamma, 0, -1):
            if uniforms.coins[i - 1] < self.passes(rows, i, weights[i]):
                left = self.bonus(rows) if i == gamma else self.left(rows, i, weights[i])
                return (*rows.drafts[:i], self.draw_last(left, uniforms.last[i]))
        left = self.left(rows, 0, weights[0]) if gamma else self.bonus(rows)
        return (self.draw_last(left, uniforms.last[0]),)

    def passes(self, rows: Rows, i: int, weight: Any) -> Any:
        """Probability h_i that the first i drafts pass their test."""
        if i == len(rows.drafts):
            return weight
        rest = excess(weight * rows.wanted[i], rows.offered[i]).sum()
        return rest / (rest + 1 - weight) if rest else rest

    def left(self, rows: Rows, i: int, weight: Any) -> Law:
        """Weights of the token that follows i accepted drafts, of more."""
        rest = excess(weight * rows.wanted[i], rows.offered[i])
        return rest if rest.any() else rows.wanted[i]


class Loop(Chain):
    """Chain verification again and again, until there are γ + 1 tokens.

    Parameters
    ----------
    name : str, optional
        What reports call it.
    """

    def __init__(self, name: str = "decoding loop") -> None:
        super().__init__(name)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode γ + 1 tokens, with as many drafts in each step as can be used."""
        tokens: Path = ()
        for stream in self.streams(source, instance.gamma):
            rest = dataclasses.replace(
                instance, prompt=instance.prompt + tokens, gamma=instance.gamma - len(tokens)
            )
            tokens += super().output(rest, stream)
            if len(tokens) > instance.gamma:
                break
        return tokens

    def streams(self, source: Randomness, gamma: int) -> Iterator[Randomness]:
        """Give the source of each step."""
        return itertools.repeat(source)


class Siblings(Adapter):
    """Recursive rejection of k drafts of the next token, in steps; a bonus follows an accepted one.

    Parameters
    ----------
    name : str, optional
        What reports call it.
    """

    max_tokens = 2

    def __init__(self, name: str = "recursive rejection") -> None:
        self.name = name

    def supports(self, instance: Instance) -> bool:
        """Whether there are several drafts."""
        return instance.k > 1

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw k drafts and verify them."""
        k = instance.k
        law, wanted = instance.draft.probs(instance.prompt), instance.target.probs(instance.prompt)
        drafts, offered = self.drafts(law, source(k))
        coins, last = self.coins(source, k), source(1)[0]
        for x, coin, seen in zip(drafts, coins, offered, strict=True):
            if coin * seen[x] < wanted[x]:
                return (x, draw(instance.target.probs((*instance.prompt, x)), last))
            wanted = self.left(wanted, seen)
        return (draw(wanted, last),)

    def drafts(self, law: Law, uniforms: Any) -> tuple[list[int], list[Law]]:
        """Draw the drafts, and state the law of each given those before it."""
        return [draw(law, uniform) for uniform in uniforms], [law] * len(uniforms)

    def coins(self, source: Randomness, k: int) -> Any:
        """Take a coin for each draft."""
        return source(k)

    def left(self, wanted: Law, offered: Law) -> Law:
        """Law that is left to aim at when a draft is rejected."""
        rest = excess(wanted, offered)
        return normalised(rest) if rest.any() else wanted


def draw(law: Law, uniform: Any) -> int:
    """Draw a token from a law."""
    return int(InverseCdf.from_weights(law).locate(np.array([uniform]))[0])


def excess(wanted: Law, offered: Law) -> Law:
    """Return what a law has more than another: max(wanted − offered, 0)."""
    weights: Law = np.maximum(wanted - offered, 0 * wanted)
    return weights


def normalised(weights: Law) -> Law:
    """Divide weights by their sum."""
    law: Law = weights / weights.sum()
    return law


def one_hot(x: int, like: Law) -> Law:
    """Law of a token that is certain."""
    law = zeros(like.size, like)
    law[x] = law[x] + 1
    return law
