"""Cactus: a target distribution that is bent towards the very draft that is judged; lossy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, as_number, read_only, running_sum, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.numbers import as_parameter
from otm._core.probs.sampling import locate_in_rows
from otm.coupling.plan import TransportPlan
from otm.coupling.residual import acceptance_ratio
from otm.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class Cactus(TransportPlan):
    """Judge a draft x by the target whose probability of x is raised; not lossless.

    The bent target h has ::

        h(x) = min(q(x) + √(2 δ q(x) (1 − q(x))), 1),    h(y) = q(y) (1 − h(x)) / (1 − q(x))

    for y ≠ x: about the largest h(x) within a Kullback–Leibler divergence δ of q.  The draft is
    accepted with probability min(1, h(x)/p(x)), otherwise the output comes from ∝ max(h − p, 0)
    ([hao2026]_, as we read it).  Each draft has an h of its own, so that the output has none of
    these distributions, and its divergence from q may be above δ (docs/theory/lenience.md).

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution, and one draft.
    delta : float or Fraction
        δ, at least 0; at 0 the rule is lossless.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the problem has more than one draft, or δ is not a finite number of at least 0.

    Notes
    -----
    In exact mode the square root is the fraction that its float is.

    References
    ----------
    .. [hao2026] Hao and Mou, "Cactus: Accelerating Auto-Regressive Decoding with Constrained
       Acceptance Speculative Sampling", arXiv 2604.04987.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = Cactus(Problem([0.5, 0.5], [0.8, 0.2], k=1), 0.02)
    >>> plan.raised_target.round(3)             # 0.8 and 0.2, each with 0.08 more
    array([0.88, 0.28])
    >>> round(plan.acceptance, 3), plan.output_distribution().round(3)
    (0.78, array([0.72, 0.28]))
    """

    delta: Number

    def __post_init__(self) -> None:
        self._check_problem()
        if self.problem.k != 1:
            raise InvalidParameterError(
                f"Cactus judges one draft, the problem has k = {self.problem.k}; give a problem "
                "with k = 1"
            )
        delta = as_parameter(self.delta, "delta", least=0, exact=self.problem.exact)
        object.__setattr__(self, "delta", delta)

    uniforms_per_selection = 2
    """One for the coin, one for the residual."""

    @property
    def lossless(self) -> bool:
        """Only for δ = 0."""
        return bool(self.delta == 0)

    @cached_property
    def raised_target(self) -> Probs:
        """Target probability h(x) that each token is judged by when it is drafted: array [n]."""
        target = self.problem.target
        spread = 2 * self.delta * target * (1 - target)
        if self.problem.exact:
            root = np.array([Fraction(math.sqrt(x)) for x in spread], dtype=object)
        else:
            root = np.sqrt(np.maximum(spread, 0))
        return read_only(np.asarray(np.minimum(target + root, 1 + zeros(1, target))))

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, h(x)/p(x)) of accepting each token when it is drafted: array [n]."""
        return read_only(acceptance_ratio(self.raised_target, self.problem.draft))

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Σ p min(1, h/p): no draft is drawn again."""
        return as_number((self.problem.draft * self.accept_probability).sum())

    @cached_property
    def _residuals(self) -> _Residuals:
        draft, target = self.problem.draft, self.problem.target
        left = 1 - target
        sure = left <= 0  # the token that the target surely gives: it is never rejected
        scale = np.where(sure, 0 * left, (1 - self.raised_target) / np.where(sure, 1 + left, left))
        return _Residuals(draft, target, read_only(np.asarray(scale)))

    def output_distribution(self) -> Probs:
        """Distribution of the output Y: accepted mass, and the residuals of what is rejected."""
        draft, accept = self.problem.draft, self.accept_probability
        return np.asarray(draft * accept + self._residuals.mixed(draft * (1 - accept)))

    def _output_given(self, drafts: Drafts) -> Probs:
        tokens = drafts[:, 0]
        accept = self.accept_probability[tokens]
        output: Probs = (1 - accept)[:, None] * self._residuals.given(tokens)
        output[np.arange(tokens.size), tokens] += accept
        return output

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        token = drafts[:, 0].copy()
        rejected = np.flatnonzero(uniforms[:, 0] >= self.accept_probability[token])
        if rejected.size:
            weights = self._residuals.given(token[rejected])
            token[rejected] = locate_in_rows(weights, uniforms[rejected, 1])
        return token


@dataclass(frozen=True, eq=False)
class _Residuals(Frozen):
    """The distributions ∝ max(c q − p, 0), with a scale c for each token that is rejected.

    A rejected token itself has h < p and none of the mass.
    """

    draft: Probs
    target: Probs
    scale: Probs  # c of each token, [n]

    def given(self, tokens: npt.NDArray[np.int64]) -> Probs:
        """Return the residuals of some tokens: [B] → [B, n].

        Where nothing is left, which is where no draft is rejected, it is the target.
        """
        left = self.scale[tokens][:, None] * self.target - self.draft
        weights: Probs = np.maximum(left, zeros(1, self.target))
        weights[np.arange(tokens.size), tokens] = 0 * self.target[:1]
        empty = ~(weights > 0).any(axis=1)
        weights[empty] = self.target
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def mixed(self, mass: Probs) -> Probs:
        """Σ_x mass(x) · residual of x, over all tokens at once: [n].

        Token y is in the residuals of all x with c(x) > p(y)/q(y): sums over a sorted order.
        """
        seen, asked = np.flatnonzero(self.target > 0), np.flatnonzero(mass > 0)
        with np.errstate(over="ignore"):  # above every scale, as infinity is
            ratio = self.draft[seen] / self.target[seen]
        order = np.argsort(ratio, kind="stable")
        seen, ratio = seen[order], ratio[order]
        scale = self.scale[asked]
        below = np.searchsorted(ratio, scale)  # tokens with p/q < c
        target, draft = (running_sum(x[seen], from_zero=True) for x in (self.target, self.draft))
        total = scale * target[below] - draft[below]
        none = total <= 0
        share = np.where(none, 0 * total, mass[asked] / np.where(none, 1 + 0 * total, total))
        # of the scales above each ratio: sums of share · c and of share
        rank = np.argsort(scale, kind="stable")
        above = np.searchsorted(scale[rank], ratio, side="right")
        times, plain = (_from(x[rank])[above] for x in (share * scale, share))
        mixed = zeros(self.target.size, self.target)
        mixed[seen] = self.target[seen] * times - self.draft[seen] * plain
        lost: Number = mass[asked][none].sum() if none.any() else 0 * mass[0]
        return np.asarray(np.maximum(mixed, zeros(1, mixed)) + lost * self.target)


def _from(values: Probs) -> Probs:
    """Add up from each place to the end: [m] → [m + 1]."""
    return np.asarray(running_sum(values[::-1], from_zero=True)[::-1])
