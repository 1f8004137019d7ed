"""Compute the distribution of a token under a known mistake, from the steps of its verifier.

A chain runs its steps on the rows of one position and on one coin.  This module runs the same steps
on the rows of all positions.  A comparison with a `Coin` returns the probability that it is true.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from otm._core.arithmetic import Probs
from otm.audit.diagnose.known_bugs.steps import Chain, Rows, Uniforms, accepts, residual


def normalised_or(weights: Probs, otherwise: Probs) -> Probs:
    """Divide each row by its sum; replace rows without weights by the rows of `otherwise`."""
    sums = weights.sum(axis=-1, keepdims=True)
    return np.where(sums > 0, weights / np.where(sums > 0, sums, 1), otherwise)


def replace_rejected(accepted: Probs, last: Probs) -> Probs:
    """Accept tokens with probabilities `accepted`; with the remaining one, draw from `last`."""
    rejected = np.maximum(1 - accepted.sum(axis=-1, keepdims=True), 0)
    return np.asarray(accepted + rejected * last)


class AllRows(Rows):
    """The rows [m, U] of m positions at once, in entry 0 of `draft` and `target`."""

    @classmethod
    def of(cls, target: Probs, draft: Probs) -> AllRows:
        """Build from the rows of both models."""
        return cls((), [draft], [target])

    @cached_property
    def accepted(self) -> Probs:
        """Probability that each token is accepted if it is the draft."""
        return np.asarray(accepts(Coin(), self.draft[0], self.target[0], ...))

    @cached_property
    def _residual(self) -> Probs:
        draft, target = self.draft[0], self.target[0]
        return normalised_or(target - np.minimum(target, draft), target)

    def residual(self, i: int) -> Probs:
        """Return the distribution of the token in place of a rejected draft."""
        return self._residual


class Coin:
    """A uniform coin; `factor * coin < bound` returns the probability of this event."""

    def __init__(self, factor: Any = 1.0) -> None:
        self._factor = factor

    def __mul__(self, factor: Any) -> Coin:
        return Coin(factor)

    def __lt__(self, bound: Probs) -> Probs:
        is_above = self._factor > bound
        return np.asarray(np.divide(bound, self._factor, out=np.ones_like(bound), where=is_above))


def from_steps(chain: Chain, rows: AllRows) -> Probs:
    """Return the distribution of the token in a draft's position, from a chain's steps: [m, U]."""
    draft, target = rows.draft[0], rows.target[0]
    stated, aim = chain.stated(draft), chain.aim(target)
    seen = rows if stated is draft and aim is target else AllRows.of(aim, stated)
    fair = Coin()
    coin = chain.uniforms(Uniforms([], [fair], [], None, np.zeros)).coins[0]
    if coin is fair and chain.accepts is accepts:
        accepted = seen.accepted
    else:
        coin = coin if coin is fair else float(coin)
        accepted = chain.accepts(coin, stated, aim, ...)
    last = seen.residual(0)
    if chain.residual is not residual:
        last = normalised_or(chain.residual(seen, 0), aim)
    return replace_rejected(chain.drawn(draft) * accepted, last)


def from_aim(chain: Chain, rows: AllRows) -> Probs:
    """Return the target that the verifier sees; correct verification has this distribution."""
    return chain.aim(rows.target[0])
