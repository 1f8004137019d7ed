"""Base classes of rules that accept a draft or draw the output from one residual distribution.

Each rule implements the choice of the accepted draft, and the probability of this choice.
`ResidualPlan` derives the conditional distribution, the output distribution, the acceptance and the
selection.  `SequentialPlan` is for rules that test the drafts in turn and accept the first that
passes.
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
"""Largest number of tokens in a plot."""


@dataclass(frozen=True, eq=False)
class ResidualPlan(TransportPlan):
    """A rule that accepts a draft or draws the output from its residual distribution.

    The rule is lossless if the accepted mass of every token is at most its target probability
    (Theorem 1.1 of docs/theory/problem.md).

    A subclass implements `uniforms_per_selection`, `accepted_mass`, `_accept` and
    `_acceptance_per_draft`.  If a token from the residual can be one of the drafts, the subclass
    also overrides `acceptance` with `_acceptance_with_hits`.  A lossy rule may override
    `_residual_weights`.

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
        """Probability that each token is output as an accepted draft: array [n].

        The probability is computed from the stored tables that the selection uses.
        """

    @abstractmethod
    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        """Return the position of the accepted draft, or −1: `[B, k], [B, m − 1] → [B]`."""

    @abstractmethod
    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        """Return the probability that each draft is the accepted one: `[B, k] → [B, k]`."""

    @property
    def acceptance_by_test(self) -> Number:
        """Probability that the test of the rule accepts a draft."""
        return at_most_one(self.accepted_mass.sum())

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        For most rules, a token from the residual distribution is never a rejected draft, so this
        property equals `acceptance_by_test`.  Rules for which a residual token can be a rejected
        draft override this property.
        """
        return self.acceptance_by_test

    @cached_property
    def residual(self) -> InverseCdf:
        """The distribution of the output if no draft is accepted, as an inverse CDF."""
        return InverseCdf.from_weights(self._residual_weights)

    @property
    def _residual_weights(self) -> Probs:
        """Weight of each token if no draft is accepted, not normalised: array [n]."""
        return residual_weights(self.problem.target, self.accepted_mass)

    def output_distribution(self) -> Probs:
        """Return the distribution of the output Y: accepted mass plus residual mass."""
        return self._complete(self.accepted_mass)

    def plot(self, labels: Iterable[object] | None = None, ax: Axes | None = None) -> Axes:
        """Plot the accepted mass and the residual mass, with two bars for each token.

        The left bar is the draft probability.  The right bar is the target probability: its lower
        part is the accepted mass, and its upper part is the residual mass.  With one draft, the
        accepted mass is the overlap of the two bars.

        Parameters
        ----------
        labels : iterable, optional
            A name for each token of `problem.tokens`; the token ids by default.
        ax : Axes, optional
            Matplotlib axes to draw on.  If left out, a new pyplot figure is created.

        Returns
        -------
        Axes
            The axes with the plot; `ax.figure.savefig` saves it.  If there are more than 24 tokens,
            the plot shows the 24 tokens with the largest draft or target probability.

        Raises
        ------
        InvalidInputError
            If the number of labels is not the number of tokens.
        MissingDependencyError
            If matplotlib is not installed.
        """
        names = token_labels(labels, self.problem.tokens)
        from otm._core.drawing import drawing_on, split_bars

        laws = self.problem.draft, self.problem.target, self.accepted_mass
        draft, target, accepted = (law.astype(np.float64) for law in laws)
        most_probable = np.argsort(-np.maximum(draft, target), kind="stable")[:MOST_BARS]
        shown = np.sort(most_probable)
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
        # This shortcut gives the same result as the general code below, but faster.
        if position.size == 1 and position.item() >= 0:
            return drafts.take(position)
        # In rows without an accepted draft, this is any draft; the residual replaces it below.
        token = drafts.take(position + np.arange(0, drafts.size, drafts.shape[1]))
        rejected = (position < 0).nonzero()[0]
        if rejected.size:
            token[rejected] = self.residual.locate(uniforms[rejected, -1])
        return token

    def _acceptance_with_hits(self, hit: Probs) -> Number:
        """Compute `acceptance` from the probability `hit` [n] that a residual token is a draft."""
        by_test = self.acceptance_by_test
        by_residual = (self.residual.probs(self.problem.n) * hit).sum()
        return at_most_one(by_test + (1 - by_test) * by_residual)

    def _acceptance_with_rejected(self, rejected: Probs) -> Number:
        """Compute `acceptance` if rejected drafts are i.i.d. with distribution ∝ `rejected` [n]."""
        if not rejected.any():
            return self.acceptance_by_test
        return self._acceptance_with_hits(at_least_once(rejected / rejected.sum(), self.problem.k))

    def _complete(self, accepted: Probs) -> Probs:
        """Add residual mass to the accepted mass [..., n], so that the total mass is 1."""
        rejected = 1 - accepted.sum(axis=-1, keepdims=True)
        return np.asarray(accepted + rejected * self.residual.probs(self.problem.n))


def acceptance_ratio(target: Probs, draft: Probs) -> Probs:
    """Return the probability min(1, target / draft) of accepting each token; 0/0 gives 0.

    Parameters
    ----------
    target, draft : array [...]
        Masses of at least zero.  With the returned probability, the accepted mass is min(target,
        draft).

    Returns
    -------
    array [...]
        The probabilities, in the number type of the masses.

    Examples
    --------
    >>> acceptance_ratio(np.array([0.25, 0.5, 0.0]), np.array([0.5, 0.25, 0.0]))
    array([0.5, 1. , 0. ])
    """
    none = draft <= 0
    ratio: Probs = np.minimum(target, draft)
    if np.count_nonzero(none):
        # A draft mass of 0 may have underflowed, so its token is accepted unless the target is 0.
        ratio = ratio + (none & (target > 0))
        draft = draft + none
    ratio /= draft
    return ratio


@dataclass(frozen=True, eq=False)
class SequentialPlan(ResidualPlan):
    """A rule that tests each draft with one uniform, in turn, and accepts the first that passes."""

    @property
    def uniforms_per_selection(self) -> int:
        """One uniform to test each draft and one for the residual: k + 1."""
        return self.problem.k + 1

    @abstractmethod
    def _pass_probability(self, drafts: Drafts) -> Probs:
        """Return the probability that each draft passes its test: `[B, k] → [B, k]`."""

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
    """A rule whose test depends on the token alone; a subclass implements `accept_probability`."""

    @property
    @abstractmethod
    def accept_probability(self) -> Probs:
        """Probability of accepting each token when it is drafted: array [n]."""

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability that each token is output as an accepted draft: array [n]."""
        one_draft, missed = self.problem.draft * self.accept_probability, 1 - self._beta
        # (1 − (1 − β)^k) / β is the slope of t^k between 1 − β and 1, which is k at β = 0.
        factor = power_slopes(np.array([missed, 1 + 0 * missed]), self.problem.k)[0]
        return read_only(one_draft * factor)

    @property
    def acceptance_by_test(self) -> Number:
        """Probability 1 − (1 − β)^k that the test accepts a draft."""
        return at_least_once(self._beta, self.problem.k)

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        The probability can be larger than `acceptance_by_test`, because the token from the residual
        can equal a rejected draft.  If all drafts are rejected, they are i.i.d. with the
        distribution of rejected tokens.
        """
        return self._acceptance_with_rejected(self.problem.draft * (1 - self.accept_probability))

    @cached_property
    def _beta(self) -> Number:
        """Probability β that one draft passes the test."""
        return at_most_one((self.problem.draft * self.accept_probability).sum())

    def _pass_probability(self, drafts: Drafts) -> Probs:
        return self.accept_probability[drafts]


def argmax_weights(target: Probs) -> Probs:
    """Return weights [n] that are 1 for the first most probable token and 0 elsewhere."""
    weights = zeros(target.size, target)
    weights[target.argmax()] += 1
    return weights
