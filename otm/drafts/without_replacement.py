"""Drafts without replacement: successive sampling, as tree methods draw siblings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, Number, read_only, running_sum
from otm._core.checks import Drafts, Uniforms, as_draft_count
from otm.drafts.base import SingleDistribution
from otm.drafts.joint import Joint
from otm.drafts.successive_sampling import missed_by_first_rings
from otm.errors import ProblemTooLargeError

LARGEST_ENUMERATION = 50_000
"""Most additions of fractions for the distribution of the set of drafts: about a second of work."""


@dataclass(frozen=True, eq=False)
class WithoutReplacement(SingleDistribution):
    """k different drafts: each from p, restricted to the tokens not drawn before.

    Parameters
    ----------
    probs : array-like [n]
        The distribution p of the first draft; held normalised and read-only.
    k : int
        The number of drafts, at least 1.  If fewer tokens have p > 0, all of them are drafted and
        the attribute `k` is their number.
    tokens : int array [n], optional
        Token ids of the entries of p, ascending; 0 to n − 1 if left out.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If p or k is not valid.

    Notes
    -----
    Let each token x have a clock that rings after an exponential time of rate p(x).  The drafts are
    the tokens whose clocks ring first, in that order.  Tree methods draw siblings so ([chen2024]_,
    [jeon2024]_).

    References
    ----------
    .. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative
       Decoding", NeurIPS 2024.
    .. [jeon2024] Jeon et al., "Recursive Speculative Decoding: Accelerating LLM Inference via
       Sampling Without Replacement", 2024.

    Examples
    --------
    >>> drafts = WithoutReplacement([0.5, 0.25, 0.25], k=2)
    >>> dict(drafts.tuples())[0, 1]  # 1/2 · (1/4) / (1/2)
    0.25
    >>> drafts.draw([0.75, 0.25])
    array([0, 1])
    """

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = int(np.count_nonzero(self.probs))
        object.__setattr__(self, "k", min(as_draft_count(self.k), tokens))

    @property
    def tuple_count(self) -> int:
        """Number of ordered choices of k of the m tokens with p > 0: m! / (m − k)!."""
        return math.perm(int(np.count_nonzero(self.draftable)), self.k)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """All tuples of drafts that can be drawn, in every order, with their probabilities."""
        one = 1 + 0 * self.probs.item(0)
        return self._extensions((), one, np.flatnonzero(self.draftable).tolist())

    def missed(self, order: npt.NDArray[np.int64]) -> Law:
        """Probability that the first tokens of an order do not hold all drafts, for each prefix.

        Floats cost O(n k) for each of some hundred points of a quadrature (0.3 s at n = 32,000 and
        k = 8); their relative error is below 1e-12.

        Raises
        ------
        ProblemTooLargeError
            If p is in fractions and has too many sets of drafts to list.
        """
        if self.exact:
            return self._sets.missed(order)
        drafted = self.draftable[order]
        outside = self.draftable.copy()
        outside[order] = False
        missed = missed_by_first_rings(self.probs[order[drafted]], self.probs[outside], self.k)
        return np.asarray(missed[np.append(0, np.cumsum(drafted))])

    def __str__(self) -> str:
        return f"{self.k} without replacement"

    def _together(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        ordered = np.sort(drafts, axis=-1)
        different = (ordered[..., 1:] > ordered[..., :-1]).all(axis=-1)
        return np.asarray(different, dtype=np.bool_)

    def _draw(self, uniforms: Uniforms) -> Drafts:
        """Draw by inverse CDF on what is left, which the tokens drawn cut into at most k segments.

        The tokens stand in ascending order of p.  So a token has at least 1/m of all mass before
        it, and masses of segments, differences of prefix sums, keep their digits whatever is drawn.
        """
        tokens, below = self._ascending
        rows = np.arange(len(uniforms))
        places = np.empty((len(uniforms), 0), dtype=np.int64)
        first = np.zeros((len(uniforms), 1), dtype=np.int64)
        for i in range(self.k):
            taken = np.sort(places, axis=1)
            starts, ends = np.hstack([first, taken + 1]), np.hstack([taken, first + tokens.size])
            left = np.cumsum(below[ends] - below[starts], axis=1)
            point = uniforms[:, i] * left[:, -1]
            # u · total can round up to the total itself: then the last segment that is not empty
            last = (left == left[:, -1:]).argmax(axis=1)
            segment = np.minimum((left <= point[:, None]).sum(axis=1), last)
            start, end = starts[rows, segment], ends[rows, segment]
            before = left[rows, segment] - (below[end] - below[start])
            found = np.searchsorted(below, point - before + below[start], side="right") - 1
            places = np.hstack([places, np.clip(found, start, end - 1)[:, None]])
        return tokens[places]

    @cached_property
    def _ascending(self) -> tuple[npt.NDArray[np.int64], Law]:
        """Tokens with p > 0 in ascending order of p, and the masses of the first j of them."""
        support = np.flatnonzero(self.draftable)
        tokens = support[np.argsort(self.probs[support], kind="stable")]
        return read_only(tokens), read_only(running_sum(self.probs[tokens], from_zero=True))

    @cached_property
    def _sets(self) -> Joint:
        """Distribution of the set of drafts, as ascending tuples; in fractions.

        The first i + 1 drafts are a set when one of its tokens comes after the others.
        """
        tokens = np.flatnonzero(self.draftable).tolist()
        self._check_size(len(tokens))
        sets: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
        for _ in range(self.k):
            longer: dict[tuple[int, ...], Fraction] = {}
            for drafted, probability in sets.items():
                share = probability / (1 - self.probs[list(drafted)].sum())
                for token in tokens:
                    if token not in drafted:
                        key = tuple(sorted((*drafted, token)))
                        longer[key] = longer.get(key, Fraction(0)) + share * self.probs[token]
            sets = longer
        return Joint(sets, self.n)

    def _check_size(self, m: int) -> None:
        steps = 0
        for size in range(self.k):
            steps += (m - size) * math.comb(m, size)
            if steps > LARGEST_ENUMERATION:
                raise ProblemTooLargeError(
                    f"{m:,} tokens with p > 0 and k = {self.k:,} drafts without replacement have "
                    f"too many sets of drafts for fractions (more than {LARGEST_ENUMERATION:,} "
                    "additions); give p in floats, which take any size"
                )

    def _extensions(
        self, drafts: tuple[int, ...], probability: Number, rest: Sequence[int]
    ) -> Iterator[tuple[tuple[int, ...], Number]]:
        if len(drafts) == self.k:
            yield drafts, probability
            return
        left = sum(self.probs.item(token) for token in rest)
        for token in rest:
            others = [other for other in rest if other != token]
            share = probability * (self.probs.item(token) / left)
            yield from self._extensions((*drafts, token), share, others)
