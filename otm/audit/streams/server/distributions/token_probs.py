"""The known part of the distribution that a token was sampled from, and classes of tokens."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from otm.audit.streams.e_process import Floats
from otm.audit.streams.server.evidence.group_evidence import CLASS_COUNT, FAMILY_COUNT

TINY = 1e-300
"""Lower limit of a probability before its logarithm is computed."""


@dataclass(frozen=True, eq=False)
class TokenProbs:
    """Probabilities of single tokens, most probable first, and of all other tokens together."""

    tokens: tuple[str, ...]
    # Probabilities [n]; they and the residual mass sum to 1.
    probs: Floats
    # Total probability of all other tokens.
    rest: float
    # False if the probabilities are conditional on the listed tokens.
    rest_counts: bool
    # Tokens that do not count if they are sampled.
    unseen: frozenset[str]
    # Tokens whose logits a penalty or a bias changed; they have classes of their own.
    changed: frozenset[str] = frozenset()

    @cached_property
    def places(self) -> dict[str, int]:
        """Rank of each token."""
        return {token: place for place, token in enumerate(self.tokens)}

    @cached_property
    def classes(self) -> tuple[list[int], list[int]]:
        """Class of each token in both families."""
        return merged_classes(self.tokens, self.changed)

    @cached_property
    def merged_probs(self) -> Floats:
        """Probabilities of the classes [F, C], as from `merge_other(self)`, but faster."""
        merged = np.zeros((FAMILY_COUNT, CLASS_COUNT))
        ranked = self.probs[: CLASS_COUNT - 1]
        if self.changed:
            merged[0] = np.bincount(self.classes[0], self.probs, CLASS_COUNT)
        else:
            merged[0, : ranked.size] = ranked
            merged[0, -1] = self.probs[CLASS_COUNT - 1 :].sum()
        merged[1] = np.bincount(self.classes[1], self.probs, CLASS_COUNT)
        merged[:, -1] += self.rest
        return merged

    @cached_property
    def entropy(self) -> float:
        """Entropy in bits, with all other tokens merged into one."""
        bits = -float(self.probs @ np.log2(np.maximum(self.probs, TINY)))
        return max(bits - self.rest * math.log2(max(self.rest, TINY)), 0.0)

    @cached_property
    def greedy_distance(self) -> float:
        """TV to greedy decoding, which always returns the most probable token."""
        return 1.0 - float(self.probs.max(initial=0.0))

    def of(self, token: str) -> float | None:
        """Return the probability of a token, 0 for an unlisted one; None if it does not count."""
        place = self.places.get(token)
        if place is not None:
            return float(self.probs[place])
        return 0.0 if self.rest_counts and token not in self.unseen else None

    def deviation(self, token: str) -> Floats:
        """Return the indicator of a token's classes minus the class probabilities: [F, C]."""
        deviations = -self.merged_probs
        place = self.places.get(token)
        for family, classes in enumerate(self.classes):
            deviations[family, -1 if place is None else classes[place]] += 1
        return deviations

    def merge_other(self, other: TokenProbs) -> Floats:
        """Merge another distribution into the classes of this one: [F, C]."""
        merged = np.zeros((FAMILY_COUNT, CLASS_COUNT))
        places = [self.places.get(token, -1) for token in other.tokens]
        for family, classes in enumerate(self.classes):
            into = [classes[place] if place >= 0 else CLASS_COUNT - 1 for place in places]
            merged[family] = np.bincount(into, other.probs, CLASS_COUNT)
            merged[family, -1] += other.rest
        return merged

    def distance(self, other: TokenProbs) -> float:
        """Return a lower bound on the TV to another distribution, valid for any unlisted tokens."""
        if other is self:
            return 0.0
        pairs = [(place, other.places.get(token, -1)) for token, place in self.places.items()]
        own, theirs = np.array([pair for pair in pairs if pair[1] >= 0], dtype=int).reshape(-1, 2).T
        one, two = self.probs[own], other.probs[theirs]
        # The unlisted tokens of one distribution may include tokens that only the other
        # distribution lists.
        apart = (1 - float(one.sum()), 1 - float(two.sum()), self.rest + other.rest)
        return max(1 - float(np.minimum(one, two).sum()) - min(apart), 0.0)

    def without_rest(self) -> TokenProbs:
        """Restrict the distribution to the listed tokens, and renormalize."""
        total = float(self.probs.sum())
        return replace(self, probs=self.probs / (total or 1.0), rest=0.0, rest_counts=False)

    def without(self, dropped: Collection[str]) -> TokenProbs:
        """Remove tokens that do not count, and renormalize."""
        stays = np.array([token not in dropped for token in self.tokens], dtype=bool)
        total = float(self.probs[stays].sum()) + self.rest
        return TokenProbs(
            tuple(token for token, stay in zip(self.tokens, stays, strict=True) if stay),
            self.probs[stays] / (total or 1.0),
            self.rest / (total or 1.0),
            self.rest_counts and total > 0,
            self.unseen | frozenset(dropped),
            self.changed,
        )


def merged_classes(
    tokens: tuple[str, ...], changed: Collection[str] = ()
) -> tuple[list[int], list[int]]:
    """Return the classes of listed tokens, by rank and by hash; the last class has the others.

    If penalties or biases changed some tokens, these share the last half of the ranks.
    """
    last = CLASS_COUNT - 1
    ranks, again = iter(range(len(tokens))), iter(range(len(tokens)))
    first = last if not changed else last // 2 + 1
    by_rank = [
        min(first + next(again), last - 1) if token in changed else min(next(ranks), first)
        for token in tokens
    ]
    return by_rank, [bucket(token) for token in tokens]


@lru_cache(maxsize=2**18)
def bucket(token: str) -> int:
    """Return a token's class by a fixed hash; it is never the last class."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % (CLASS_COUNT - 1)
