"""The protocol of transport plans: what every selection rule offers.

A rule looks at k drafts and outputs one token.  Each rule states the distribution of the output
given the drafts and how it is drawn from uniforms, and says how its drafts are to be drawn; the
rest follows here.  Randomness is always an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, zeros
from otm._core.checks import Drafts, Uniforms, check_generator, check_uniforms
from otm._core.display.reprs import Brief
from otm._core.display.text import shown
from otm._core.interval import Interval
from otm._core.probs.sampling import chunks, locate_in_rows
from otm._core.tensors import like
from otm.coupling.transport import Transport, by_set, token_labels
from otm.drafts.base import DraftDistribution
from otm.drafts.iid import IID
from otm.errors import InvalidInputError, ProblemTooLargeError
from otm.optimum.multisets import scientific
from otm.problem import Problem

MOST_DRAFTS = 1024
"""Most drafts of a plan that is written out."""

LARGEST_TABLE = 2**22
"""Most probabilities of a plan that is written out, drafts in every order."""

CHUNK_ENTRIES = 2**24
"""Most entries of the table of drafts by tokens that a selection works on at once: 128 MiB."""

NEED = (
    "these drafts need uniforms of shape {shape}, the last axis with plan.uniforms_per_selection "
    "of them"
)


@dataclass(frozen=True, eq=False)
class Selection(Brief):
    """Outcome of a selection, elementwise over the leading axes; unpacks as (token, index).

    Both are tensors, on the device of the drafts, if the drafts were a tensor.

    Attributes
    ----------
    token : int64 array [...]
        The output token Y.
    index : int64 array [...]
        Position in [0, k) of the first draft equal to Y; −1 only if no draft is.

    Examples
    --------
    >>> import otm
    >>> plan = otm.solve([0.75, 0.25], [0.25, 0.75], k=2).plan
    >>> token, index = plan.select([[0, 1], [0, 0]], [[0.5, 0.5, 0.1, 0.9]] * 2)
    >>> token.tolist(), index.tolist()
    ([1, 0], [1, 0])
    """

    token: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        return iter((self.token, self.index))


def _first_equal(rows: Drafts, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of the first entry of each row that equals its token, −1 for none: [B, k], [B]."""
    if tokens.size == 1:  # faster in a list
        entries, token = rows[0].tolist(), tokens.item()
        return np.array([entries.index(token) if token in entries else -1], dtype=np.int64)
    equal = rows == tokens[:, None]
    index: npt.NDArray[np.int64] = equal.argmax(axis=1)
    index[~np.logical_or.reduce(equal, axis=1)] = -1
    return index


@dataclass(frozen=True, eq=False)
class TransportPlan(Frozen, ABC):
    """A selection rule as a transport plan from the distribution of its drafts to its output's.

    Drafts and tokens are ids, those of `problem.tokens`; arrays [n] have an entry for each of them.

    Subclasses give `uniforms_per_selection`, `acceptance`, `output_distribution` and
    `_output_given`, in positions 0 to n − 1, `_select` if a rule draws more quickly, and `drafts`
    if these are not i.i.d.; where the distributions are fractions, all of it is exact.  Rules that
    accept a draft or else draw from one residual distribution are each a `ResidualPlan`.  Arrays
    that a rule keeps are `read_only`.  docs/theory/problem.md says what lossless means;
    docs/add-a-rule.md builds a rule.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If it is given no problem, one with rows, or one about other drafts.
    """

    problem: Problem

    def __post_init__(self) -> None:
        self._check_problem()

    def _check_problem(self) -> None:
        """Refuse what the rule is not for: rows of problems, and drafts drawn in another way."""
        if not isinstance(self.problem, Problem):
            raise InvalidInputError(
                f"{type(self).__name__} was given {shown(self.problem)}; a rule takes a Problem, "
                "such as otm.Problem(draft, target, k)"
            )
        if self.problem.shape or not self.problem.iid:
            _ = self.drafts

    @property
    def lossless(self) -> bool:
        """Whether the output has the target distribution; if not, see `distance_to_target`.

        What the rule claims of itself: the tests hold it to that.
        """
        return True

    @property
    def drafts(self) -> DraftDistribution:
        """The joint distribution from which the drafts of this rule must be drawn.

        i.i.d. from the draft distribution of the problem, but for rules that say otherwise.
        """
        return self.problem.drafts_as(IID, self.problem.k)

    @property
    @abstractmethod
    def uniforms_per_selection(self) -> int:
        """Number m of independent uniforms in [0, 1) that one selection takes."""

    @property
    @abstractmethod
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k})."""

    @property
    def acceptance_bounds(self) -> Interval:
        """Bounds on `acceptance`, of gap 0 unless the exact number would take too long."""
        return Interval(self.acceptance, self.acceptance)

    @abstractmethod
    def output_distribution(self) -> Probs:
        """Distribution of the output Y, integrated from what the plan really does.

        Returns
        -------
        array [n]
            Over `problem.tokens`; equal to the target distribution for a lossless rule: exactly for
            fractions, up to rounding of cumulative sums for floats.
        """

    @abstractmethod
    def _output_given(self, drafts: Drafts) -> Probs:
        """Distribution of the output given each set of drafts, as positions: [B, k] → [B, n]."""

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        """Position of the output for each set of drafts: [B, k], [B, m] → [B].

        Unless a rule says otherwise, the first uniform draws it from `_output_given`.
        """
        token = np.empty(len(drafts), dtype=np.int64)
        for chunk in chunks(len(drafts), self.problem.n, CHUNK_ENTRIES):
            token[chunk] = locate_in_rows(self._output_given(drafts[chunk]), uniforms[chunk, 0])
        return token

    def conditional(self, drafts: npt.ArrayLike) -> Probs:
        """Distribution of the output Y given the drafts.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Draft tokens.

        Returns
        -------
        array [..., n]
            One distribution over `problem.tokens` for each set of drafts.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, or could not have been drawn.
        """
        checked = self.drafts.positions(drafts)
        output = self._output_given(checked.reshape(-1, checked.shape[-1]))
        return output.reshape(*checked.shape[:-1], self.problem.n)

    def select(self, drafts: npt.ArrayLike, uniforms: npt.ArrayLike) -> Selection:
        """Choose the output token for each set of drafts.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Draft tokens, each set drawn from the joint distribution `drafts`.
        uniforms : array-like or tensor [..., m]
            Independent uniforms in [0, 1), m = `uniforms_per_selection` for each set.

        Returns
        -------
        Selection
            Tokens and indices of shape [...]; int64 tensors on the drafts' device if these are a
            tensor.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, lie outside the vocabulary, or could not
            have been drawn.
        InvalidUniformsError
            If the uniforms have a wrong shape or do not lie in [0, 1).
        """
        probs = self.drafts
        checked = probs.positions(drafts)
        leading, m = checked.shape[:-1], self.uniforms_per_selection
        numbers = check_uniforms(uniforms, (*leading, m), self.problem.exact, NEED)
        rows = checked.reshape(-1, checked.shape[-1])
        token = self._select(rows, numbers.reshape(-1, m))
        index = _first_equal(rows, token)
        token, index = probs.ids(token.reshape(leading)[()]), index.reshape(leading)[()]
        return Selection(like(drafts, token), like(drafts, index))

    def sample(self, drafts: npt.ArrayLike, rng: np.random.Generator) -> Selection:
        """`select` with uniforms from a generator, for convenience.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Draft tokens, each set drawn from the joint distribution `drafts`.
        rng : Generator
            Where the uniforms come from.

        Returns
        -------
        Selection
            As from `select`.

        Raises
        ------
        InvalidDraftsError
            As for `select`.
        InvalidParameterError
            If `rng` is no generator.
        """
        check_generator(rng)
        shape = self.drafts.positions(drafts).shape[:-1]
        return self.select(drafts, rng.random((*shape, self.uniforms_per_selection)))

    def transport(self, labels: Iterable[object] | None = None) -> Transport:
        """Write the plan out: the joint law of drafts and output, for small problems.

        Parameters
        ----------
        labels : iterable, optional
            A name for each token of `problem.tokens`; their ids if left out.

        Returns
        -------
        Transport
            A row for each set of drafts that can be drawn, a column for each token.  Both marginals
            have been checked; that of a lossless rule's output against the target.

        Raises
        ------
        InvalidInputError
            If there is not one label for each token.
        ProblemTooLargeError
            If the table, with drafts in every order, would have more than 2^22 entries, or there
            are more than 1,024 drafts.
        CertificateError
            If a marginal is not what it must be, so that the plan is none.

        Examples
        --------
        >>> import otm
        >>> otm.solve([0.75, 0.25], [0.25, 0.75], k=2).plan.transport().mass.round(4).tolist()
        [[0.25, 0.3125], [0.0, 0.375], [0.0, 0.0625]]
        """
        names = token_labels(labels, self.problem.tokens)
        drafts, n = self.drafts, self.problem.n
        if drafts.k > MOST_DRAFTS:
            raise ProblemTooLargeError(
                f"k = {drafts.k:,} drafts; a plan is written out for at most {MOST_DRAFTS:,}"
            )
        if (entries := drafts.tuple_count * n) > LARGEST_TABLE:
            raise ProblemTooLargeError(
                f"{scientific(drafts.tuple_count)} tuples of drafts with {n:,} tokens each are "
                f"{scientific(entries)} numbers; a plan is written out up to {LARGEST_TABLE:,}: "
                "take fewer tokens or drafts, or `conditional` of the drafts that matter"
            )
        sets, rows, masses, tuples = by_set(drafts.tuples())
        probs = np.array(masses)
        given = self.conditional(tuples) * probs[:, None]
        mass = zeros((len(sets), n), self.problem.target)
        np.add.at(mass, rows, given)
        drafted = zeros(len(sets), self.problem.target)
        np.add.at(drafted, rows, probs)
        output = self.problem.target if self.lossless else self.output_distribution()
        transport = Transport(tuple(sets), self.problem.tokens, mass, names, drafted, output)
        transport.check()
        return transport
