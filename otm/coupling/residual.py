"""Rules that accept one of the drafts, or else draw the output from one residual distribution.

Each such rule states two things, which draft it accepts and with what probabilities it does so;
the conditional distribution, the output distribution, the acceptance probability and the selection
follow here.  Rules that test the drafts one after another and accept the first that passes are
`SequentialPlan`s.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    at_least_once,
    at_most_one,
    power_slopes,
    read_only,
    zeros,
)
from otm._core.checks import Drafts, Uniforms
from otm._core.probs.distribution import residual_weights
from otm._core.probs.sampling import InverseCdf
from otm.coupling.plan import TransportPlan
from otm.coupling.transport import token_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 24
"""Most tokens of a picture."""


@dataclass(frozen=True, eq=False)
class ResidualPlan(TransportPlan):
    """A rule that accepts a draft, or else draws from its residual distribution.

    Lossless if the accepted mass is nowhere above the target (Theorem 1.1 of
    docs/theory/problem.md).

    Subclasses give `uniforms_per_selection`, `accepted_mass`, `_accept` and
    `_acceptance_per_draft`.  Where a token of the residual can be one of the drafts, they also give
    `acceptance`, by `_acceptance_with_hits`; a lossy rule may give other `_residual_weights`.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    """

    @property
    @abstractmethod
    def accepted_mass(self) -> Probs:
        """Probability, for each token, that it is output as an accepted draft: array [n].

        Integrated from what the rule really does with its stored tables.
        """

    @abstractmethod
    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        """Position of the accepted draft, −1 for none: [B, k], [B, m − 1] → [B]."""

    @abstractmethod
    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        """Probability that each position is the accepted one: [B, k] → [B, k]."""

    @property
    def acceptance_by_test(self) -> Number:
        """Probability that the rule's own test accepts a draft."""
        return at_most_one(self.accepted_mass.sum())

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        For most rules a token from the residual distribution is never one of the rejected drafts,
        so that this equals `acceptance_by_test`; a rule for which it can be overrides this.
        """
        return self.acceptance_by_test

    @cached_property
    def residual(self) -> InverseCdf:
        """The distribution of the output where no draft is accepted, as a table to draw with."""
        return InverseCdf.from_weights(self._residual_weights)

    @property
    def _residual_weights(self) -> Probs:
        """Weight of each token where no draft is accepted, of any sum: array [n]."""
        return residual_weights(self.problem.target, self.accepted_mass)

    def output_distribution(self) -> Probs:
        """Distribution of the output Y: accepted mass, and the residual for what is rejected."""
        return self._complete(self.accepted_mass)

    def plot(self, labels: Iterable[object] | None = None, ax: Axes | None = None) -> Axes:
        """Draw what is accepted and what the residual is: two bars for each token.

        The left one is what a draft is drawn from.  The right one is the target: its lower part is
        output as an accepted draft, its upper part is drawn from the residual.  With one draft the
        accepted part is the overlap of both bars.

        Parameters
        ----------
        labels : iterable, optional
            A name for each token of `problem.tokens`; their ids if left out.
        ax : Axes, optional
            Matplotlib axes to draw on.  If left out, a new pyplot figure is created.

        Returns
        -------
        Axes
            The axes with the plot; `ax.figure.savefig` saves it.  Of more than 24 tokens it has those
            that are likeliest in one of the two distributions.

        Raises
        ------
        InvalidInputError
            If there is not one label for each token.
        MissingDependencyError
            If matplotlib is not installed.
        """
        names = token_labels(labels, self.problem.tokens)
        from otm._core.drawing import drawing_on, split_bars

        laws = self.problem.draft, self.problem.target, self.accepted_mass
        draft, target, accepted = (law.astype(np.float64) for law in laws)
        likeliest = np.argsort(-np.maximum(draft, target), kind="stable")[:MOST_BARS]
        shown = np.sort(likeliest)
        residual = np.maximum(target - accepted, 0)
        bars = draft[shown], accepted[shown], residual[shown]
        drawn = f"draft, k = {self.drafts.k}" if self.drafts.k > 1 else "draft"
        masses = f"accepted, {accepted.sum():.4g}", f"residual, {residual.sum():.4g}"
        with drawing_on(ax, 2.8, 3 + 0.25 * max(shown.size, 6)) as axes:
            split_bars(axes, [names[i] for i in shown], bars, (drawn, *masses))
            of = "" if shown.size == draft.size else f" ({shown.size} of {draft.size:,})"
            axes.set(xlabel=f"token{of}", ylabel="probability")
        return axes

    def _output_given(self, drafts: Drafts) -> Probs:
        rows = np.arange(drafts.shape[0])
        accepted = zeros((rows.size, self.problem.n), self.problem.draft)
        np.add.at(accepted, (rows[:, None], drafts), self._acceptance_per_draft(drafts))
        return self._complete(accepted)

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        position = self._accept(drafts, uniforms[:, :-1])
        if position.size == 1 and position.item() >= 0:  # what follows, but faster
            return drafts.take(position)
        # where none is accepted some draft, replaced below
        token = drafts.take(position + np.arange(0, drafts.size, drafts.shape[1]))
        rejected = (position < 0).nonzero()[0]
        if rejected.size:
            token[rejected] = self.residual.locate(uniforms[rejected, -1])
        return token

    def _acceptance_with_hits(self, hit: Probs) -> Number:
        """Compute `acceptance`; each token of the residual is a draft with its probability: [n]."""
        by_test = self.acceptance_by_test
        by_residual = (self.residual.probs(self.problem.n) * hit).sum()
        return at_most_one(by_test + (1 - by_test) * by_residual)

    def _acceptance_with_rejected(self, rejected: Probs) -> Number:
        """Compute `acceptance` where rejected drafts are i.i.d. with these masses: [n]."""
        if not rejected.any():
            return self.acceptance_by_test
        return self._acceptance_with_hits(at_least_once(rejected / rejected.sum(), self.problem.k))

    def _complete(self, accepted: Probs) -> Probs:
        """Add the residual distribution to sub-distributions [..., n] of accepted tokens."""
        rejected = 1 - accepted.sum(axis=-1, keepdims=True)
        return np.asarray(accepted + rejected * self.residual.probs(self.problem.n))


def acceptance_ratio(target: Probs, draft: Probs) -> Probs:
    """Probability min(1, target / draft) of accepting each token; for 0/0 it is 0.

    Parameters
    ----------
    target, draft : array [...]
        Masses of at least zero; a draft is accepted so that `target` becomes the accepted mass,
        as far as `draft` allows.

    Returns
    -------
    array [...]
        Of the same kind.

    Examples
    --------
    >>> acceptance_ratio(np.array([0.25, 0.5, 0.0]), np.array([0.5, 0.25, 0.0]))
    array([0.5, 1. , 0. ])
    """
    none = draft <= 0
    ratio: Probs = np.minimum(target, draft)
    if np.count_nonzero(none):
        # perhaps only underflowed: what has target probability 0 stays rejected
        ratio = ratio + (none & (target > 0))
        draft = draft + none
    ratio /= draft
    return ratio


@dataclass(frozen=True, eq=False)
class SequentialPlan(ResidualPlan):
    """A rule that accepts the first draft whose own coin is below its acceptance probability."""

    @property
    def uniforms_per_selection(self) -> int:
        """One coin a draft and one uniform for the residual: k + 1."""
        return self.problem.k + 1

    @abstractmethod
    def _pass_probability(self, drafts: Drafts) -> Probs:
        """Probability that each draft passes its test when it is reached: [B, k] → [B, k]."""

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        passed = uniforms < self._pass_probability(drafts)
        return np.where(passed.any(axis=1), passed.argmax(axis=1), -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        passes = self._pass_probability(drafts)
        reached = np.ones_like(passes)
        reached[:, 1:] = np.cumprod(1 - passes[:, :-1], axis=1)
        return np.asarray(passes * reached)


@dataclass(frozen=True, eq=False)
class TokenwisePlan(SequentialPlan):
    """A rule that tests a draft by its token alone; subclasses give `accept_probability`."""

    @property
    @abstractmethod
    def accept_probability(self) -> Probs:
        """Probability of accepting each token when it is drafted: array [n]."""

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n]."""
        one_draft, missed = self.problem.draft * self.accept_probability, 1 - self._beta
        # (1 − (1 − β)^k) / β as the slope of t^k between 1 − β and 1: it is k at β = 0, not 0/0
        factor = power_slopes(np.array([missed, 1 + 0 * missed]), self.problem.k)[0]
        return read_only(one_draft * factor)

    @property
    def acceptance_by_test(self) -> Number:
        """Probability 1 − (1 − β)^k that the rule's test accepts a draft."""
        return at_least_once(self._beta, self.problem.k)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        In general above `acceptance_by_test`: the residual can hit a draft that was tested and
        rejected.  Given that all are rejected, the drafts are i.i.d. with the distribution of those
        that do not pass.
        """
        return self._acceptance_with_rejected(self.problem.draft * (1 - self.accept_probability))

    @cached_property
    def _beta(self) -> Number:
        """Probability β that one draft passes the test."""
        return at_most_one((self.problem.draft * self.accept_probability).sum())

    def _pass_probability(self, drafts: Drafts) -> Probs:
        return self.accept_probability[drafts]


def only_likeliest(target: Probs) -> Probs:
    """Weights of the likeliest token alone, the first of them where there are ties: array [n]."""
    weights = zeros(target.size, target)
    weights[target.argmax()] += 1
    return weights
