"""Drafts without replacement: successive sampling, as tree methods draw the children of a node.

In floats, `miss_probability` uses exponential clocks, for all prefixes H of an order at once.  The
clock of token x rings at an exponential time of rate p(x), and the drafts are the k tokens that
ring first.
H misses a draft if a clock outside H rings before k clocks of H have rung.  If s is the mass
outside H::

    Pr(S ⊄ H) = ∫ s e^(−s t) Pr(fewer than k clocks of H have rung by t) dt

Every term is positive, so the sum has no cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, read_only, running_sum, total
from otm._core.checks import Drafts, Uniforms
from otm.drafts.base import DifferentTokens
from otm.drafts.joint import Joint
from otm.errors import ProblemTooLargeError

LARGEST_ENUMERATION = 50_000
"""Largest number of additions of fractions for the sets of drafts: about one second of work."""

Floats = npt.NDArray[np.float64]

CHUNK = 2**20
"""Largest product of the numbers of tokens and quadrature points in one chunk: about 50 MB."""

MASS_SCALE = 2.0**500
"""Factor by which masses are multiplied and times are divided.

Without this factor, 1 over a subnormal mass overflows.
"""

LOG_PRECISION = 37.0
"""The truncation error of the quadrature is below e^−37 (1e-16), relative to the integral."""


@dataclass(frozen=True, eq=False)
class WithoutReplacement(DifferentTokens):
    """k distinct drafts, each drawn from p restricted to the tokens not drawn before.

    Parameters
    ----------
    probs : array-like [n]
        The distribution p of the first draft; stored normalised and read-only.
    k : int
        Number of drafts, at least 1.  If only m < k tokens have p > 0, all m are drafted and the
        attribute `k` is m.
    tokens : int array [n], optional
        Token ids of the entries of p, ascending; 0 to n − 1 by default.

    Raises
    ------
    InvalidDistributionError, InvalidDraftCountError
        If p or k is not valid.

    Notes
    -----
    Equivalently, each token x has a clock that rings at an exponential time of rate p(x), and the
    drafts are the k tokens that ring first, in that order.  Tree methods draw the children of a
    node in this way ([chen2024]_, [jeon2024]_).

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

    @property
    def tuple_count(self) -> int:
        """Number m! / (m − k)! of draft tuples, for m tokens with p > 0."""
        return math.perm(int(np.count_nonzero(self.draftable)), self.k)

    def position_tuples(self) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each tuple of drafts with positive probability, and its probability."""
        one = 1 + 0 * self.probs.item(0)
        return self._extensions((), one, np.flatnonzero(self.draftable).tolist())

    def miss_probability(self, order: npt.NDArray[np.int64]) -> Probs:
        """Return the probability that a prefix of an order misses a draft, for each prefix.

        For floats, the probability is computed by quadrature with a few hundred points, each in
        O(n k) time: 0.3 s in total at n = 32,000 and k = 8.  The relative error is below 1e-12.

        Raises
        ------
        ProblemTooLargeError
            If p is in fractions and has too many sets of drafts to list.
        """
        if self.exact:
            return self._sets.miss_probability(order)
        drafted = self.draftable[order]
        outside = self.draftable.copy()
        outside[order] = False
        missed = miss_probabilities(self.probs[order[drafted]], self.probs[outside], self.k)
        return np.asarray(missed[np.append(0, np.cumsum(drafted))])

    def __str__(self) -> str:
        return f"{self.k} without replacement"

    def _is_possible(self, drafts: Drafts) -> npt.NDArray[np.bool_]:
        ordered = np.sort(drafts, axis=-1)
        different = (ordered[..., 1:] > ordered[..., :-1]).all(axis=-1)
        return np.asarray(different, dtype=np.bool_)

    def _draw(self, uniforms: Uniforms) -> Drafts:
        """Draw each token by inverse CDF on the remaining tokens: [B, k] → [B, k].

        Tokens are in ascending order of p, and the tokens already drawn split them into at most k
        segments.  The mass of a segment is a difference of prefix sums; in ascending order it does
        not lose digits.
        """
        tokens, below = self._ascending
        rows = np.arange(len(uniforms))
        places = np.empty((len(uniforms), 0), dtype=np.int64)
        first = np.zeros((len(uniforms), 1), dtype=np.int64)
        for i in range(self.k):
            taken = np.sort(places, axis=1)
            starts, ends = np.hstack([first, taken + 1]), np.hstack([taken, first + tokens.size])
            remaining = np.cumsum(below[ends] - below[starts], axis=1)
            point = uniforms[:, i] * remaining[:, -1]
            # u · total can round up to the total; then the last nonempty segment is used.
            last = (remaining == remaining[:, -1:]).argmax(axis=1)
            segment = np.minimum((remaining <= point[:, None]).sum(axis=1), last)
            start, end = starts[rows, segment], ends[rows, segment]
            before = remaining[rows, segment] - (below[end] - below[start])
            position = np.searchsorted(below, point - before + below[start], side="right") - 1
            places = np.hstack([places, np.clip(position, start, end - 1)[:, None]])
        return tokens[places]

    @cached_property
    def _ascending(self) -> tuple[npt.NDArray[np.int64], Probs]:
        """Tokens with p > 0 in ascending order of p, and the prefix sums of p in this order."""
        support = np.flatnonzero(self.draftable)
        tokens = support[np.argsort(self.probs[support], kind="stable")]
        return read_only(tokens), read_only(running_sum(self.probs[tokens], from_zero=True))

    @cached_property
    def _sets(self) -> Joint:
        """Distribution of the set of drafts, as ascending tuples, in fractions.

        The probability of a set of i + 1 drafts is a sum over the token that is drawn last.
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
                    "additions); give p in floats, which work at any size"
                )

    def _extensions(
        self, drafts: tuple[int, ...], probability: Number, remaining: Sequence[int]
    ) -> Iterator[tuple[tuple[int, ...], Number]]:
        """Yield each completion of a prefix of drafts, with its probability."""
        if len(drafts) == self.k:
            yield drafts, probability
            return
        mass = total(self.probs.item(token) for token in remaining)
        for token in remaining:
            others = [other for other in remaining if other != token]
            share = probability * (self.probs.item(token) / mass)
            yield from self._extensions((*drafts, token), share, others)


def miss_probabilities(masses: Probs, outside: Probs, k: int) -> Floats:
    """Return the probability that the first j tokens lack one of the k tokens that ring first.

    The result has shape [m + 1], for j = 0, …, m.

    `masses` [m] has the positive rates of the tokens in the order, and `outside` has the rates of
    all other tokens.  The rates sum to one, and there are at least k tokens in total.
    """
    m = masses.size
    above = running_sum(np.append(masses, outside.sum())[::-1])[::-1]
    missed = np.zeros(m + 1)
    # A prefix of fewer than k tokens always misses a draft.
    missed[:k] = above[:k] > 0
    live = slice(k, m + 1 if outside.size else m)
    if m < k or above[live].size == 0:
        return missed
    largest = np.partition(np.concatenate([masses, outside]), -k)[-k:]
    scaled, rates = masses * MASS_SCALE, above[live] * MASS_SCALE
    for times, weights in _quadrature(k, largest.min(), max(1, CHUNK // m)):
        fewer = _fewer_than(k, scaled, times)[k - 1 : live.stop - 1]
        # An overflow to infinity means that a clock has rung almost surely.
        with np.errstate(over="ignore"):
            fewer *= np.exp(-rates[:, None] * times)
        missed[live] += (fewer @ (times * weights)) * rates
    return np.minimum(missed, 1.0)


def _quadrature(k: int, smallest: float, size: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield chunks of points t and weights w, with ∫ f(t) dt ≈ Σ w t f(t).

    This is the trapezoid rule in u, where t = exp(u − exp(−u)).  Near t = 0 the integrand is s, and
    the integral is at least s, so the points start where dt/du is negligible.
    """
    # At the end time T, the k tokens of largest mass have almost surely rung.  Each of them has at
    # least the mass `smallest`.  If all of them are in H, the integral beyond T is at most
    # s k e^(−T · smallest) / smallest, otherwise at most e^(−T · smallest).
    end = math.log(LOG_PRECISION + math.log(k) - math.log(smallest)) - math.log(smallest)
    step = _step(k)
    points = np.arange(-3.7, end + step, step)
    for start in range(0, points.size, size):
        u = points[start : start + size]
        inverse = np.exp(-u)
        yield np.exp(u - inverse - math.log(MASS_SCALE)), step * (1 + inverse)


def _step(k: int) -> float:
    """Return the largest step of the trapezoid rule with an error below e^−LOG_PRECISION.

    For complex t with the argument y, the integrand is larger by a factor of up to cos(y)^−k.  So
    the error is at most about exp(−2π y / step) cos(y)^−k, for every y < π/2.
    """
    y = np.linspace(0.01, 1.5, 150)
    return float((2 * math.pi * y / (LOG_PRECISION - k * np.log(np.cos(y)))).max())


def _fewer_than(k: int, masses: Floats, times: Floats) -> Floats:
    """Return the probability that fewer than k of the first j clocks have rung: [m, times].

    The number of clocks that have rung has the generating polynomial
    Π (e^(−p t) + (1 − e^(−p t)) y), truncated at y^k.  Two passes over blocks of about √m tokens
    compute all prefix products; all blocks are processed in parallel.
    """
    width = math.isqrt(masses.size - 1) + 1
    blocks = -(-masses.size // width)
    # The padding has rate 0, so its clocks never ring.
    padded = np.zeros(blocks * width)
    padded[: masses.size] = masses
    with np.errstate(over="ignore"):
        rates = padded.reshape(blocks, width).T[:, :, None] * times
    silent, rung = np.exp(-rates), -np.expm1(-rates)

    counts = np.zeros((k, blocks, times.size))
    counts[0] = 1
    for i in range(width):
        _add_clock(counts, silent[i], rung[i])
    start = np.zeros_like(counts)
    start[0, 0] = 1
    for block in range(1, blocks):
        for i in range(k):
            start[i:, block] += start[i, block - 1] * counts[: k - i, block - 1]
    fewer = np.empty((blocks, width, times.size))
    for i in range(width):
        _add_clock(start, silent[i], rung[i])
        start.sum(axis=0, out=fewer[:, i])
    return fewer.reshape(-1, times.size)[: masses.size]


def _add_clock(counts: Floats, silent: Floats, rung: Floats) -> None:
    """Multiply the polynomials `counts` by silent + rung · y, in place."""
    moved = counts[:-1] * rung
    counts *= silent
    counts[1:] += moved
