"""Rules that accept one of the drafts, or else draw the output from one residual law.

Each such rule states two things, which draft it accepts and with what probabilities it does so;
the conditional law, the output law, the acceptance probability and the selection follow here.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law, Number, at_most_one, zeros
from otm._core.checks import Drafts, Uniforms
from otm._core.distribution import residual_weights
from otm._core.sampling import InverseCdf
from otm.coupling.plan import TransportPlan


@dataclass(frozen=True, eq=False)
class ResidualPlan(TransportPlan):
    """A rule that accepts a draft or none, and in place of none draws from its residual law.

    Lossless if the accepted mass is nowhere above the target (Theorem 1.1 of
    docs/theory/problem.md).

    Subclasses give `uniforms_per_selection`, `accepted_mass`, `_accept` and
    `_acceptance_per_draft`.

    Parameters
    ----------
    problem : Problem
        The draft law, the target law and the number of drafts.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.
    """

    @property
    @abstractmethod
    def accepted_mass(self) -> Law:
        """Probability, for each token, that it is output as an accepted draft: array [n].

        Integrated from what the rule really does with its stored tables.
        """

    @abstractmethod
    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        """Position of the accepted draft, −1 for none: [B, k], [B, m − 1] → [B]."""

    @abstractmethod
    def _acceptance_per_draft(self, drafts: Drafts) -> Law:
        """Probability that each position is the accepted one: [B, k] → [B, k]."""

    @property
    def acceptance_by_test(self) -> Number:
        """Probability that the rule's own test accepts a draft."""
        return at_most_one(self.accepted_mass.sum())

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        For most rules a token from the residual law is never one of the rejected drafts, so that
        this equals `acceptance_by_test`; a rule for which it can be overrides this.
        """
        return self.acceptance_by_test

    @cached_property
    def residual(self) -> InverseCdf:
        """The law of the output where no draft is accepted, as the table that it is drawn with."""
        return InverseCdf.from_weights(residual_weights(self.problem.target, self.accepted_mass))

    def output_distribution(self) -> Law:
        """Law of the output Y: the accepted mass, and the residual for what is rejected."""
        return self._complete(self.accepted_mass)

    def _output_given(self, drafts: Drafts) -> Law:
        rows = np.arange(drafts.shape[0])
        accepted = zeros(rows.size * self.problem.n, self.problem.draft)
        accepted = accepted.reshape(rows.size, self.problem.n)
        np.add.at(accepted, (rows[:, None], drafts), self._acceptance_per_draft(drafts))
        return self._complete(accepted)

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        position = self._accept(drafts, uniforms[:, :-1])
        token = np.take_along_axis(drafts, np.maximum(position, 0)[:, None], axis=1)[:, 0]
        rejected = np.flatnonzero(position < 0)
        if rejected.size:
            token[rejected] = self.residual.locate(uniforms[rejected, -1])
        return token

    def _complete(self, accepted: Law) -> Law:
        """Add the residual law to sub-laws [..., n] of accepted tokens."""
        rejected = 1 - accepted.sum(axis=-1, keepdims=True)
        return np.asarray(accepted + rejected * self.residual.law(self.problem.n))


def acceptance_ratio(wanted: Law, offered: Law) -> Law:
    """Probability min(1, wanted / offered) of accepting each token; for 0/0 it is 0.

    Parameters
    ----------
    wanted, offered : array [...]
        Masses of at least zero; a draft is accepted so that `wanted` becomes the accepted mass,
        as far as `offered` allows.

    Returns
    -------
    array [...]
        Of the same kind.

    Examples
    --------
    >>> acceptance_ratio(np.array([0.25, 0.5, 0.0]), np.array([0.5, 0.25, 0.0]))
    array([0.5, 1. , 0. ])
    """
    none = offered <= 0
    ratio: Law = np.minimum(wanted, offered)
    if none.any():  # perhaps only underflowed: what has target probability 0 stays rejected
        ratio = ratio + (none & (wanted > 0))
        offered = offered + none
    ratio /= offered
    return ratio
