"""Recursive rejection of drafts without replacement (Sequoia; recursive speculative decoding)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, as_number, at_most_one, running_sum, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.interval import Interval
from otm._core.probs.sampling import chunks, locate_in_rows
from otm._core.ratios.bins import RatioBins
from otm._core.ratios.order import scale_of_weights
from otm.coupling.plan import TransportPlan
from otm.coupling.residual import acceptance_ratio
from otm.drafts.without_replacement import WithoutReplacement
from otm.errors import ProblemTooLargeError

LARGEST_ENUMERATION = 2_000_000
"""Largest number of terms of an exact sum: paths of rejected drafts × tokens."""

CHUNK_ENTRIES = 2**21
"""Largest number of entries (drafts × tokens) in one chunk."""


@dataclass(frozen=True, eq=False)
class RecursiveRejectionWithoutReplacement(TransportPlan):
    """Recursive rejection of distinct drafts, so no token is tested twice.

    With t_1 = q and p_1 = p, draft i has distribution p_i and is accepted with probability min(1,
    t_i/p_i).  After a rejection, t_{i+1} ∝ max(t_i − p_i, 0), and p_{i+1} ∝ p_i without the
    rejected token.  If all drafts are rejected, the output is drawn from t_{k+1} ([chen2024]_,
    [jeon2024]_).  If fewer than k tokens have p > 0, all of them are drafted, and `plan.drafts.k`
    is their number.  If all these drafts are rejected, this rule draws from the residual, but
    Sequoia would continue with uniform drafts from the tokens with p = 0.

    Unlike with i.i.d. drafts, p_i and t_i depend on which drafts were rejected.  Given the drafts,
    all distributions are exact and take O(n k) time.  `acceptance` and `output_distribution` are
    means over the drafts, computed as sums over all paths of rejected drafts.  The paths for
    `acceptance` have k − 2 drafts, so `acceptance` works for any vocabulary if k ≤ 2.  The paths
    for `output_distribution` have k − 1 drafts.  If there are too many paths, average
    `acceptance_given` over sampled drafts.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    ProblemTooLargeError
        On use of `acceptance` or `output_distribution`, if the sum has too many paths.

    References
    ----------
    .. [chen2024] Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative
       Decoding", NeurIPS 2024.
    .. [jeon2024] Jeon et al., "Recursive Speculative Decoding: Accelerating LLM Inference via
       Sampling Without Replacement", 2024.

    Examples
    --------
    >>> from otm import Problem
    >>> problem = Problem([0.5, 0.25, 0.25], [0.25, 0.125, 0.625], k=2)
    >>> plan = RecursiveRejectionWithoutReplacement(problem)
    >>> round(plan.acceptance, 12)
    0.791666666667
    >>> plan.acceptance_given([[0, 1], [0, 2]])
    array([0.5, 1. ])
    """

    @cached_property
    def drafts(self) -> WithoutReplacement:
        """The distinct drafts, each drawn from p restricted to the tokens not drawn before."""
        return self.problem.drafts_as(WithoutReplacement, self.problem.k)

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform to test each draft and one for the residual: `plan.drafts.k` + 1."""
        return self.drafts.k + 1

    @cached_property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}), as a sum over paths of rejected drafts.

        Raises
        ------
        ProblemTooLargeError
            If there are too many paths of k − 2 drafts.
        """
        self._check_paths(max(self.drafts.k - 2, 0), "acceptance")
        return at_most_one(_accepted(self.problem.target, self.problem.draft, self.drafts.k))

    @property
    def acceptance_bounds(self) -> Interval:
        """Bounds on `acceptance`; they are equal unless there are too many paths.

        If there are too many paths, the lower bound is the probability that one of the first two
        drafts is accepted.  If there are too many paths, the upper bound is the target mass of
        the tokens with p > 0.
        """
        try:
            return super().acceptance_bounds
        except ProblemTooLargeError:
            lower = _accepted(self.problem.target, self.problem.draft, 2)
            reachable = as_number(self.problem.target[self.drafts.draftable].sum())
            return Interval(lower, max(lower, reachable))

    def acceptance_given(self, drafts: npt.ArrayLike) -> Probs:
        """Return the probability that one of these drafts is accepted.

        Parameters
        ----------
        drafts : int array-like [..., k]
            Draft tokens.

        Returns
        -------
        array [...]
            The probabilities.  The mean of these probabilities over drafts from `plan.drafts` is
            `acceptance`.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, or have probability 0.
        """
        checked = self.drafts.positions(drafts)
        rows = checked.reshape(-1, checked.shape[-1])
        accepted = np.zeros_like(self.problem.draft, shape=len(rows))
        for chunk in chunks(len(rows), self.problem.n, CHUNK_ENTRIES):
            passes, _ = self._rounds(rows[chunk])
            accepted[chunk] = 1 - np.prod(1 - passes, axis=1)
        return accepted.reshape(checked.shape[:-1])[()]

    def output_distribution(self) -> Probs:
        """Return the distribution of the output Y, as a sum over paths of rejected drafts.

        Raises
        ------
        ProblemTooLargeError
            If there are too many paths of k − 1 drafts.
        """
        self._check_paths(self.drafts.k - 1, "output distribution")
        return _output(self.problem.target, self.problem.draft, self.drafts.k)

    def _check_paths(self, length: int, what: str) -> None:
        """Raise if a sum over all paths of `length` rejected drafts has too many terms."""
        m = int(np.count_nonzero(self.drafts.draftable))
        digits = (math.lgamma(m + 1) - math.lgamma(m - length + 1)) / math.log(10)
        if digits + math.log10(self.problem.n) > math.log10(LARGEST_ENUMERATION):
            raise ProblemTooLargeError(
                f"the {what} for k = {self.drafts.k} drafts of {m:,} tokens is a sum over about "
                f"10^{digits:.1f} paths of {length} rejected drafts, with n = {self.problem.n:,} "
                f"terms each; the limit is {LARGEST_ENUMERATION:,} terms: average "
                "acceptance_given, or conditional, over sampled drafts"
            )

    def _rounds(self, drafts: Drafts) -> tuple[Probs, Probs]:
        """Return the pass probability of each draft, [B, k], and the last target, [B, n]."""
        rows = np.arange(len(drafts))
        target = np.tile(self.problem.target, (rows.size, 1))
        draft = np.tile(self.problem.draft, (rows.size, 1))
        passes = np.zeros_like(self.problem.draft, shape=drafts.shape)
        for i, token in enumerate(drafts.T):
            probs = draft / draft.sum(axis=1, keepdims=True)
            passes[:, i] = acceptance_ratio(target[rows, token], probs[rows, token])
            target = _next_target(target, probs)
            draft[rows, token] = zeros(1, draft)[0]
        return passes, target

    def _output_given(self, drafts: Drafts) -> Probs:
        output = np.zeros_like(self.problem.draft, shape=(len(drafts), self.problem.n))
        for chunk in chunks(len(drafts), self.problem.n, CHUNK_ENTRIES):
            passes, target = self._rounds(drafts[chunk])
            reached = np.cumprod(1 - passes, axis=1)
            output[chunk] = reached[:, -1:] * target
            reached = np.column_stack([1 + 0 * reached[:, :1], reached[:, :-1]])
            rows = np.arange(len(drafts))[chunk, None]
            np.add.at(output, (rows, drafts[chunk]), reached * passes)
        return output

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        output = np.empty(len(drafts), dtype=np.int64)
        for chunk in chunks(len(drafts), self.problem.n, CHUNK_ENTRIES):
            passes, target = self._rounds(drafts[chunk])
            passed = uniforms[chunk, :-1] < passes
            token = np.take_along_axis(drafts[chunk], passed.argmax(axis=1)[:, None], axis=1)[:, 0]
            rejected = np.flatnonzero(~passed.any(axis=1))
            token[rejected] = locate_in_rows(target[rejected], uniforms[chunk][rejected, -1])
            output[chunk] = token
        return output


def _next_target(target: Probs, draft: Probs) -> Probs:
    """Return the residual ∝ max(t − p_i, 0) along the last axis, or t if it has no mass."""
    residual = np.maximum(target - draft, zeros(1, target))
    total = residual.sum(axis=-1, keepdims=True)
    none = total == 0
    return np.asarray(np.where(none, target, residual / (total + none)))


def _first_round(target: Probs, draft: Probs) -> tuple[Probs, Probs, Probs]:
    """Return the accepted and the rejected mass of the first draft, and the next target."""
    probs = draft / draft.sum()
    taken = np.minimum(target, probs)
    return taken, probs - taken, _next_target(target, probs)


def _without(draft: Probs, token: np.int64) -> Probs:
    """Return the weights of the next draft after a token is rejected.

    The weights are not normalised: a subnormal weight would lose digits in every round, and it can
    be the only positive weight in the end.
    """
    remaining: Probs = draft.copy()
    remaining[token] = zeros(1, draft)[0]
    return remaining


def _output(target: Probs, draft: Probs, k: int) -> Probs:
    """Return the output distribution of the last k tests, for drafts with these weights."""
    taken, rejected, following = _first_round(target, draft)
    if k == 1:
        return np.asarray(taken + rejected.sum() * following)
    for token in rejected.nonzero()[0]:
        taken = taken + rejected[token] * _output(following, _without(draft, token), k - 1)
    return taken


def _accepted(target: Probs, draft: Probs, k: int) -> Number:
    """Return the probability that one of the last k tests accepts, for these draft weights."""
    taken, rejected, following = _first_round(target, draft)
    accepted = as_number(taken.sum())
    tokens = np.flatnonzero(rejected)
    if k == 1 or tokens.size == 0:
        return accepted
    if k == 2:
        return accepted + as_number((rejected[tokens] * _last(following, draft, tokens)).sum())
    for token in tokens:
        later = _accepted(following, _without(draft, token), k - 1)
        accepted = accepted + as_number(rejected[token]) * later
    return accepted


def _last(target: Probs, draft: Probs, rejected: npt.NDArray[np.int64]) -> Probs:
    """Return the probability that the last draft is accepted, after each rejected token x.

    With draft weights w, the probability is Σ min(t, w / (Σw − w(x))), because the rejected token
    has t(x) = 0.  The probability depends on x only through the cap 1 / (Σw − w(x)).
    """
    scale = scale_of_weights(draft)
    bins = RatioBins.from_masses(draft * scale, target)
    before = running_sum(draft, from_zero=True)[:-1]
    others = before + running_sum(draft[::-1], from_zero=True)[-2::-1]
    caps = 1 / (others[rejected] * scale)
    below = np.searchsorted(bins.least, caps, side="right")
    return np.asarray(bins.target_below[below] + caps * bins.draft_above[below])
