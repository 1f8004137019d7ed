"""`TransportPlan`, the base class of all selection rules.

A rule reads k drafts and outputs one token.  Each rule implements the conditional distribution of
the output, the selection from uniforms, and the joint distribution of its drafts.  The base class
derives all methods that a rule does not implement.  Randomness is always an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Number, Probs, zeros
from otm._core.checks import Drafts, Uniforms, check_generator, check_uniforms
from otm._core.display.reprs import ShortRepr
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
"""Largest number of drafts for which `transport` builds a table."""

LARGEST_TABLE = 2**22
"""Largest number of entries in the table of `transport`, with drafts in every order."""

CHUNK_ENTRIES = 2**24
"""Largest number of entries (drafts × tokens) in one chunk of a selection: 128 MiB."""

NEED = (
    "these drafts need uniforms of shape {shape}, with plan.uniforms_per_selection entries on the "
    "last axis"
)


@dataclass(frozen=True, eq=False)
class Selection(ShortRepr):
    """Result of a selection, elementwise over the leading axes; unpacks as (token, index).

    If the drafts are a tensor, both attributes are tensors on the same device.

    Attributes
    ----------
    token : int64 array [...]
        The output token Y.
    index : int64 array [...]
        Position in [0, k) of the first draft equal to Y; −1 if no draft equals Y.

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
    """Return the first position of each token in its row, or −1: `[B, k], [B] → [B]`."""
    # For one row, a list is faster than an array.
    if tokens.size == 1:
        entries, token = rows[0].tolist(), tokens.item()
        return np.array([entries.index(token) if token in entries else -1], dtype=np.int64)
    equal = rows == tokens[:, None]
    index: npt.NDArray[np.int64] = equal.argmax(axis=1)
    index[~np.logical_or.reduce(equal, axis=1)] = -1
    return index


@dataclass(frozen=True, eq=False)
class TransportPlan(Frozen, ABC):
    """A selection rule as a transport plan from the draft distribution to the output distribution.

    Drafts and output tokens are token ids from `problem.tokens`; arrays [n] have one entry for each
    of these tokens.

    A subclass implements `uniforms_per_selection`, `acceptance`, `output_distribution` and
    `_output_given`.  A subclass overrides `_select` if it has a faster selection, and `drafts` if
    its drafts are not i.i.d.  Methods with an underscore use positions 0 to n − 1.  For fractions,
    all results must be exact.  Rules that either accept a draft or draw from one residual
    distribution derive from `ResidualPlan`.  Arrays that a rule stores are `read_only`.
    docs/theory/problem.md defines lossless; docs/add-a-rule.md shows how to write a rule.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    """

    problem: Problem

    def __post_init__(self) -> None:
        self._check_problem()

    def _check_problem(self) -> None:
        """Raise unless the problem is a single `Problem` with drafts that the rule supports."""
        if not isinstance(self.problem, Problem):
            raise InvalidInputError(
                f"{type(self).__name__} needs a Problem such as otm.Problem(draft, target, k), not "
                f"{shown(self.problem)}"
            )
        if self.problem.shape or not self.problem.iid:
            _ = self.drafts

    @property
    def lossless(self) -> bool:
        """Whether the output has the target distribution; if not, see `distance_to_target`.

        Each rule sets this property, and tests verify the value.
        """
        return True

    @property
    def drafts(self) -> DraftDistribution:
        """The joint distribution from which the drafts of this rule must be drawn.

        By default, the drafts are i.i.d. with the draft distribution of the problem.
        """
        return self.problem.drafts_as(IID, self.problem.k)

    @property
    @abstractmethod
    def uniforms_per_selection(self) -> int:
        """Number m of independent uniforms in [0, 1) for one selection."""

    @property
    @abstractmethod
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k})."""

    @property
    def acceptance_bounds(self) -> Interval:
        """Bounds on `acceptance`; they are equal unless the exact value would take too long."""
        return Interval(self.acceptance, self.acceptance)

    @abstractmethod
    def output_distribution(self) -> Probs:
        """Return the distribution of the output Y, computed from the decisions of the plan.

        Returns
        -------
        array [n]
            Distribution over `problem.tokens`.  For a lossless rule it equals the target
            distribution: exactly for fractions, up to rounding of cumulative sums for floats.
        """

    @abstractmethod
    def _output_given(self, drafts: Drafts) -> Probs:
        """Return the output distribution for each set of draft positions: `[B, k] → [B, n]`."""

    def _select(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        """Return the position of the output for each set of drafts: `[B, k], [B, m] → [B]`.

        By default, the first uniform draws the position from `_output_given`.
        """
        token = np.empty(len(drafts), dtype=np.int64)
        for chunk in chunks(len(drafts), self.problem.n, CHUNK_ENTRIES):
            token[chunk] = locate_in_rows(self._output_given(drafts[chunk]), uniforms[chunk, 0])
        return token

    def conditional(self, drafts: npt.ArrayLike) -> Probs:
        """Return the distribution of the output Y given the drafts.

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
            If the drafts have a wrong shape or type, or have probability 0.
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
            Tokens and indices of shape [...]; int64 tensors on the same device if the drafts are a
            tensor.

        Raises
        ------
        InvalidDraftsError
            If the drafts have a wrong shape or type, lie outside the vocabulary, or have
            probability 0.
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
        """Call `select` with uniforms from a generator.

        Parameters
        ----------
        drafts : int array-like or tensor [..., k]
            Draft tokens, each set drawn from the joint distribution `drafts`.
        rng : Generator
            Generator that draws the uniforms.

        Returns
        -------
        Selection
            Same as for `select`.

        Raises
        ------
        InvalidDraftsError
            Same as for `select`.
        InvalidParameterError
            If `rng` is not a NumPy Generator.
        """
        check_generator(rng)
        shape = self.drafts.positions(drafts).shape[:-1]
        return self.select(drafts, rng.random((*shape, self.uniforms_per_selection)))

    def transport(self, labels: Iterable[object] | None = None) -> Transport:
        """Return the joint distribution of drafts and output as a table, for small problems.

        Parameters
        ----------
        labels : iterable, optional
            A name for each token of `problem.tokens`; the token ids by default.

        Returns
        -------
        Transport
            A table with a row for each set of drafts and a column for each token.  Both marginals
            are checked.  For a lossless rule, the marginal of the output must be the target.

        Raises
        ------
        InvalidInputError
            If the number of labels is not the number of tokens.
        ProblemTooLargeError
            If the table, with drafts in every order, would have more than 2^22 entries, or there
            are more than 1,024 drafts.
        CertificateError
            If a marginal is wrong, so the rule is not a valid plan.

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
                f"k = {drafts.k:,} drafts; the table of a plan takes at most {MOST_DRAFTS:,}"
            )
        if (entries := drafts.tuple_count * n) > LARGEST_TABLE:
            raise ProblemTooLargeError(
                f"{scientific(drafts.tuple_count)} tuples of drafts × {n:,} tokens are "
                f"{scientific(entries)} numbers; the table of a plan has at most "
                f"{LARGEST_TABLE:,}: use fewer tokens or drafts, or call `conditional`"
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
