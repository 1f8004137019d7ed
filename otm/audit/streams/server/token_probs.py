"""The known part of the distribution of a sampled token, and its classes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from otm.audit.streams.e_process import Floats
from otm.audit.streams.server.group_evidence import CLASS_COUNT, FAMILY_COUNT

TINY = 1e-300
"""Smallest probability whose logarithm is taken."""


@dataclass(frozen=True, eq=False)
class TokenProbs:
    """Probabilities of single tokens, likeliest first, and of all others together."""

    tokens: tuple[str, ...]
    probs: Floats  # [n]; they and the rest sum to 1
    rest: float  # of all other tokens together
    rest_counts: bool  # False: given that it is none of the others
    unseen: frozenset[str]  # tokens that do not count if they come

    @cached_property
    def places(self) -> dict[str, int]:
        """Rank of each token."""
        return {token: place for place, token in enumerate(self.tokens)}

    @cached_property
    def classes(self) -> tuple[list[int], list[int]]:
        """Class of each token in both families."""
        return merged_classes(self.tokens)

    @cached_property
    def merged_probs(self) -> Floats:
        """Probabilities of the classes [F, C]: `merge_other(self)`, but faster."""
        merged = np.zeros((FAMILY_COUNT, CLASS_COUNT))
        ranked = self.probs[: CLASS_COUNT - 1]
        merged[0, : ranked.size] = ranked
        merged[0, -1] = self.probs[CLASS_COUNT - 1 :].sum()
        merged[1] = np.bincount(self.classes[1], self.probs, CLASS_COUNT)
        merged[:, -1] += self.rest
        return merged

    @cached_property
    def entropy(self) -> float:
        """Entropy in bits, where all other tokens are one."""
        bits = -float(self.probs @ np.log2(np.maximum(self.probs, TINY)))
        return max(bits - self.rest * math.log2(max(self.rest, TINY)), 0.0)

    @cached_property
    def greedy_distance(self) -> float:
        """TV to greedy decoding, which always takes the likeliest token."""
        return 1.0 - float(self.probs.max(initial=0.0))

    def of(self, token: str) -> float | None:
        """Probability of a token, 0 for the rest; None if it does not count."""
        place = self.places.get(token)
        if place is not None:
            return float(self.probs[place])
        return 0.0 if self.rest_counts and token not in self.unseen else None

    def deviation(self, token: str) -> Floats:
        """Subtract the probabilities of the classes from the indicator of a token's: [F, C]."""
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
        """Lower bound on the TV to another distribution, for any tokens in the rests of both."""
        if other is self:
            return 0.0
        pairs = [(place, other.places.get(token, -1)) for token, place in self.places.items()]
        own, theirs = np.array([pair for pair in pairs if pair[1] >= 0], dtype=int).reshape(-1, 2).T
        one, two = self.probs[own], other.probs[theirs]
        # the rest of one distribution may have the tokens that only the other one lists
        apart = (1 - float(one.sum()), 1 - float(two.sum()), self.rest + other.rest)
        return max(1 - float(np.minimum(one, two).sum()) - min(apart), 0.0)

    def without_rest(self) -> TokenProbs:
        """Condition on the tokens that have a probability each."""
        total = float(self.probs.sum())
        return replace(self, probs=self.probs / (total or 1.0), rest=0.0, rest_counts=False)

    def without(self, dropped: Collection[str]) -> TokenProbs:
        """Leave out tokens that do not count."""
        stays = np.array([token not in dropped for token in self.tokens], dtype=bool)
        total = float(self.probs[stays].sum()) + self.rest
        return TokenProbs(
            tuple(token for token, stay in zip(self.tokens, stays, strict=True) if stay),
            self.probs[stays] / (total or 1.0),
            self.rest / (total or 1.0),
            self.rest_counts and total > 0,
            self.unseen | frozenset(dropped),
        )


def merged_classes(tokens: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Classes of listed tokens, by rank and by what they are; the last class has the rest."""
    last = CLASS_COUNT - 1
    return [min(rank, last) for rank in range(len(tokens))], [bucket(token) for token in tokens]


@lru_cache(maxsize=2**18)
def bucket(token: str) -> int:
    """Bucket of a token, fixed for ever: one of all but the last class."""
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") % (CLASS_COUNT - 1)
