"""The protocol of transport plans: what every selection rule offers.

A rule looks at k drafts, accepts one of them or none, and where none is accepted draws the output
from its residual law.  So each rule states two things, which draft it accepts and with what
probabilities it does so, and everything else follows here: the conditional law, the output law,
the acceptance probability and the vectorised selection.  Randomness is always an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from otm.arithmetic import Law, Number, as_number, zeros
from otm.coupling.input_checks import Drafts, Uniforms, check_drafts, check_uniforms
from otm.distribution import residual_weights
from otm.problem import MembershipProblem
from otm.sampling import InverseCdf

__all__ = ["Drafts", "Selection", "TransportPlan", "Uniforms", "acceptance_ratio"]


@dataclass(frozen=True, eq=False)
class Selection:
    """Outcome of a selection, elementwise over the leading axes; unpacks as (token, index).

    Attributes
    ----------
    token : int array [...]
        The output token Y.
    index : int array [...]
        Position of the first draft equal to Y; −1 only if no draft is.
    """

    token: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return iter((self.token, self.index))


@dataclass(frozen=True, eq=False)
class TransportPlan(ABC):
    """A selection rule for k i.i.d. drafts as a transport plan from p^k to its output law.

    Subclasses give `accepted_mass`, `_accept` and `_acceptance_per_draft`; where the laws are
    fractions, all of it is exact.

    Parameters
    ----------
    problem : MembershipProblem
        The draft law, the target law and the number of drafts.
    """

    problem: MembershipProblem

    @property
    @abstractmethod
    def uniforms_per_selection(self) -> int:
        """Number m of independent uniforms in [0, 1) that one selection takes."""

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
        return as_number(self.accepted_mass.sum())

    @property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        For most rules a token from the residual law is never one of the rejected drafts, so that
        this equals `acceptance_by_test`; a rule for which it can be overrides this.
        """
        return self.acceptance_by_test

    @cached_property
    def residual(self) -> InverseCdf:
        """The law of the output where no draft is accepted."""
        return InverseCdf.from_weights(residual_weights(self.problem.target, self.accepted_mass))

    def output_law(self) -> Law:
        """Law of the output Y, integrated from what the plan really does.

        Returns
        -------
        array [n]
            Equal to the target law for a lossless rule: exactly for fractions, up to rounding of
            cumulative sums for floats.
        """
        return self._complete(self.accepted_mass)

    def conditional(self, drafts: npt.ArrayLike) -> Law:
        """Law of the output Y given the drafts.

        Parameters
        ----------
        drafts : int array-like [..., k]
            Draft tokens.

        Returns
        -------
        array [..., n]
            One law on the vocabulary for each set of drafts.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, or could not have been drawn.
        """
        checked = check_drafts(self.problem, drafts)
        rows = checked.reshape(-1, self.problem.k)
        accepted = zeros(rows.shape[0] * self.problem.n, self.problem.draft)
        accepted = accepted.reshape(rows.shape[0], self.problem.n)
        np.add.at(
            accepted, (np.arange(rows.shape[0])[:, None], rows), self._acceptance_per_draft(rows)
        )
        return self._complete(accepted).reshape(*checked.shape[:-1], self.problem.n)

    def select(self, drafts: npt.ArrayLike, uniforms: npt.ArrayLike) -> Selection:
        """Choose the output token for each set of drafts.

        Parameters
        ----------
        drafts : int array-like [..., k]
            Draft tokens, each set drawn i.i.d. from the draft law.
        uniforms : array-like [..., m]
            Independent uniforms in [0, 1), m = `uniforms_per_selection` for each set.

        Returns
        -------
        Selection
            Tokens and indices of shape [...].

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, lie outside the vocabulary, or have
            probability zero under the draft law.
        InvalidUniformsError
            If the uniforms have a wrong shape or do not lie in [0, 1).
        """
        checked = check_drafts(self.problem, drafts)
        leading = checked.shape[:-1]
        expected = (*leading, self.uniforms_per_selection)
        numbers = check_uniforms(uniforms, expected, self.problem.exact)
        rows = checked.reshape(-1, self.problem.k)
        numbers = numbers.reshape(-1, self.uniforms_per_selection)

        position = self._accept(rows, numbers[:, :-1])
        token = np.take_along_axis(rows, np.maximum(position, 0)[:, None], axis=1)[:, 0]
        rejected = np.flatnonzero(position < 0)
        if rejected.size:
            token[rejected] = self.residual.locate(numbers[rejected, -1])
        equal = rows == token[:, None]
        index = np.where(equal.any(axis=1), equal.argmax(axis=1), -1)
        return Selection(token.reshape(leading)[()], index.reshape(leading)[()])

    def sample(self, drafts: npt.ArrayLike, rng: np.random.Generator) -> Selection:
        """`select` with uniforms from a generator, for convenience."""
        shape = check_drafts(self.problem, drafts).shape[:-1]
        return self.select(drafts, rng.random((*shape, self.uniforms_per_selection)))

    def _complete(self, accepted: Law) -> Law:
        """Add the residual law to sub-laws [..., n] of accepted tokens."""
        rejected = 1 - accepted.sum(axis=-1, keepdims=True)
        law: Law = accepted + rejected * self.residual.law(self.problem.n)
        return law


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
    """
    none = offered <= 0
    ratio: Law = np.minimum(wanted, offered)
    if none.any():  # perhaps only underflowed: what has target probability 0 stays rejected
        ratio = ratio + (none & (wanted > 0))
        offered = offered + none
    ratio /= offered
    return ratio
