"""Cactus, a lossy rule that raises the target probability of the draft before the test."""

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
    """Verify a draft x against the target with a raised probability of x; not lossless.

    For the draft x and all tokens y ≠ x, the raised target h is ::

        h(x) = min(q(x) + √(2 δ q(x) (1 − q(x))), 1),    h(y) = q(y) (1 − h(x)) / (1 − q(x))

    So h(x) is approximately the largest probability of x for which the Kullback–Leibler divergence
    of h from q is at most δ.  The draft is accepted with probability min(1, h(x)/p(x)); otherwise
    the output is drawn from the residual ∝ max(h − p, 0).  This is our reading of [hao2026]_.
    Because h depends on the draft, the output distribution is not one of the distributions h, and
    its divergence from q can be larger than δ (docs/theory/lenience.md).

    Parameters
    ----------
    problem : Problem
        A problem with k = 1.
    delta : float or Fraction
        The divergence δ, at least 0; at δ = 0 the rule is lossless.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the problem has more than one draft, or δ is not a finite number of at least 0.

    Notes
    -----
    For fractions, the square root is computed as a float and converted to a fraction.

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
                f"Cactus supports one draft, but the problem has k = {self.problem.k}; give a "
                "problem with k = 1"
            )
        delta = as_parameter(self.delta, "delta", least=0, exact=self.problem.exact)
        object.__setattr__(self, "delta", delta)

    uniforms_per_selection = 2
    """Two uniforms: one to test the draft, one to draw from the residual."""

    @property
    def lossless(self) -> bool:
        """Whether δ = 0; for larger δ the rule is lossy."""
        return bool(self.delta == 0)

    @cached_property
    def raised_target(self) -> Probs:
        """Raised target probability h(x) of each token x if it is the draft: array [n]."""
        target = self.problem.target
        spread = 2 * self.delta * target * (1 - target)
        if self.problem.exact:
            root = np.array([Fraction(math.sqrt(x)) for x in spread], dtype=object)
        else:
            root = np.sqrt(np.maximum(spread, 0))
        return read_only(np.asarray(np.minimum(target + root, 1 + zeros(1, target))))

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, h(x)/p(x)) of accepting each token if it is the draft: array [n]."""
        return read_only(acceptance_ratio(self.raised_target, self.problem.draft))

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Σ p min(1, h/p); a residual token never equals the draft."""
        return as_number((self.problem.draft * self.accept_probability).sum())

    @cached_property
    def _residuals(self) -> _Residuals:
        draft, target = self.problem.draft, self.problem.target
        others = 1 - target
        # A token with target probability 1 is never rejected, so its scale does not matter.
        certain = others <= 0
        divisor = np.where(certain, 1 + others, others)
        scale = np.where(certain, 0 * others, (1 - self.raised_target) / divisor)
        return _Residuals(draft, target, read_only(np.asarray(scale)))

    def output_distribution(self) -> Probs:
        """Return the distribution of the output Y: accepted mass plus the mass of all residuals."""
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
    """The residuals ∝ max(c q − p, 0), with a scale c for each rejected token.

    A rejected token has h < p, so its probability in its own residual is 0.
    """

    draft: Probs
    target: Probs
    # The scale c for each token, [n].
    scale: Probs

    def given(self, tokens: npt.NDArray[np.int64]) -> Probs:
        """Return the residual after each rejected token: `[B] → [B, n]`.

        If the residual of a token has no mass, the token is never rejected; its row is the target.
        """
        difference = self.scale[tokens][:, None] * self.target - self.draft
        weights: Probs = np.maximum(difference, zeros(1, self.target))
        weights[np.arange(tokens.size), tokens] = 0 * self.target[:1]
        empty = ~(weights > 0).any(axis=1)
        weights[empty] = self.target
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def mixed(self, mass: Probs) -> Probs:
        """Return the mixture Σ_x mass(x) · (residual of x) over all tokens x: array [n].

        Token y is in the residual of x if c(x) > p(y)/q(y), so prefix sums in the order of p/q give
        all residuals at once.
        """
        support, rejected = np.flatnonzero(self.target > 0), np.flatnonzero(mass > 0)
        # A ratio that overflows to infinity is correctly above every scale.
        with np.errstate(over="ignore"):
            ratio = self.draft[support] / self.target[support]
        order = np.argsort(ratio, kind="stable")
        support, ratio = support[order], ratio[order]
        scale = self.scale[rejected]
        # This is the number of tokens with p/q < c.
        below = np.searchsorted(ratio, scale)
        target, draft = (running_sum(x[support], from_zero=True) for x in (self.target, self.draft))
        total = scale * target[below] - draft[below]
        empty = total <= 0
        share = np.where(empty, 0 * total, mass[rejected] / np.where(empty, 1 + 0 * total, total))
        # For each ratio r, these are the sums of share · c and of share over all scales c > r.
        rank = np.argsort(scale, kind="stable")
        above = np.searchsorted(scale[rank], ratio, side="right")
        times, plain = (_suffix_sums(x[rank])[above] for x in (share * scale, share))
        mixed = zeros(self.target.size, self.target)
        mixed[support] = self.target[support] * times - self.draft[support] * plain
        lost: Number = mass[rejected][empty].sum() if empty.any() else 0 * mass[0]
        return np.asarray(np.maximum(mixed, zeros(1, mixed)) + lost * self.target)


def _suffix_sums(values: Probs) -> Probs:
    """Return the sums from each index to the end: `[m] → [m + 1]`."""
    return np.asarray(running_sum(values[::-1], from_zero=True)[::-1])
