"""`Problem`: the draft distribution, the target distribution and the number of drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Probs, is_exact, read_only, zeros
from otm._core.checks import as_draft_count, as_draft_counts, broadcast_counts, normalize_row
from otm._core.display.reprs import brief
from otm._core.display.text import shown
from otm._core.probs.distribution import as_probs_pair, as_probs_rows, to_exact, to_floats
from otm._core.probs.sparse import SparseProbs, Tokens, align, places_of
from otm._core.ratios.bins import RatioBins
from otm._core.ratios.order import RatioOrder
from otm._core.tensors import to_host
from otm.drafts.base import DraftDistribution, SingleDistribution
from otm.drafts.iid import IID
from otm.errors import InvalidDistributionError, InvalidDraftCountError, InvalidInputError

_Drafts = TypeVar("_Drafts", bound=DraftDistribution)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem(Frozen):
    """Optimal transport with membership cost (OTM-k), for k i.i.d. drafts or any other drafts.

    A draft model proposes independent tokens X_1, …, X_k, each with distribution p.  A selection
    rule reads the drafts and outputs one token Y, which must have the target distribution q.  The
    rule may depend on p, q, the drafts and fresh randomness, so it is a transport plan π from p^k
    to q::

        α_k(p, q) = max Pr(Y ∈ {X_1, …, X_k})   over all π with marginals p^k and q.

    Equivalently, π minimises the expected membership cost 1{Y ∉ {X_1, …, X_k}} ([sun2023]_,
    equations 3 and 4).  The drafts may also have a joint distribution other than p^k.

    Parameters
    ----------
    draft : array-like [..., n], SparseProbs or DraftDistribution
        The distribution p of each draft, or one distribution for each row; or the joint
        distribution of all drafts (`otm.drafts`).
    target : array-like [..., n] or SparseProbs
        The distribution q that the output must have, on the same tokens.  If `draft` is a
        `SparseProbs`, `target` must be one too; the problem then has the union of the supports.
    k : int or int array-like [...]
        The number of drafts, at least 1.  Leave it out if `draft` is a `DraftDistribution`.  All
        leading axes broadcast.

    Attributes
    ----------
    draft, target : array [n]
        The distributions, normalised and read-only: float64, or `fractions.Fraction` in an object
        array.  For many rows, arrays [..., n] in the shapes of the arguments.  If the drafts have
        different distributions, `draft` is the distribution of one draft picked at random.
    k : int
        The number of drafts; for many rows, an int array [...].
    shape : tuple of int
        Leading axes of the rows; () for a single problem.

    Raises
    ------
    InvalidDistributionError
        If a distribution is not valid (the message names its row), or the two distributions have
        different tokens.
    InvalidDraftCountError
        If k is not an integer of at least 1, or does not broadcast with the distributions.

    Notes
    -----
    A distribution on n tokens is divided by its sum if the sum is close enough to one.  The
    tolerance is the larger of two numbers: 0.01 and n 2^−25 in float16 and bfloat16, 1e-4 and
    n 2^−26 in float32, 1e-6 and n 2^−30 in other types and fractions.  A list or an array of
    float64 or float32 gets the tolerance of the narrowest type that represents all its numbers.
    The type of the array does not determine the tolerance, because a float32 softmax keeps its
    inexact sum after a conversion to float64.  Types of 16 bits are considered only for more than
    64 numbers.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, section 5.

    Examples
    --------
    >>> problem = Problem([0.5, 0.5], [0.75, 0.25], k=2)
    >>> problem.n, problem.k, problem.exact
    (2, 2, False)

    Sparse distributions, then rows where each row is a problem:

    >>> sparse = Problem(SparseProbs([7, 900], [0.5, 0.5]), SparseProbs([7, 30], [0.5, 0.5]), k=2)
    >>> sparse.tokens.tolist(), sparse.draft.tolist(), sparse.target.tolist()
    ([7, 30, 900], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0])
    >>> rows = Problem([[0.5, 0.5], [0.25, 0.75]], [0.75, 0.25], k=[1, 2])
    >>> rows.shape, rows[1].draft.tolist(), rows[1].k
    ((2,), [0.25, 0.75], 2)

    Drafts that are not independent:

    >>> from otm.drafts import WithoutReplacement
    >>> problem = Problem(WithoutReplacement([0.5, 0.25, 0.25], k=2), [0.25, 0.25, 0.5])
    >>> problem.iid, problem.k, str(problem.drafts)
    (False, 2, '2 without replacement')
    """

    draft: Probs
    target: Probs
    k: int
    shape: tuple[int, ...] = ()
    _tokens: Tokens | None = field(default=None, repr=False)
    _joint: DraftDistribution | None = field(default=None, repr=False)

    def __init__(self, draft: Any, target: Any, k: Any = None) -> None:
        tokens = joint = None
        if isinstance(draft, DraftDistribution):
            if k is not None:
                raise InvalidDraftCountError(
                    f"k is {shown(k)}, but the joint distribution already has {draft.k} drafts; "
                    "leave out k"
                )
            draft, target, joint = _align_with_drafts(draft, target)
            k, tokens = joint.k, joint.tokens
        elif isinstance(draft, SparseProbs) or isinstance(target, SparseProbs):
            tokens, draft, target = align(draft, target)
        self.__dict__.update(_tokens=tokens, _joint=joint)
        if has_rows(draft, target, k):
            counts = as_draft_counts(to_host(k))
            draft, target = as_probs_rows(draft, target)
            leading = np.broadcast_shapes(draft.shape[:-1], target.shape[:-1])
            shape = broadcast_counts(leading, counts)
            self.__dict__.update(shape=shape, k=np.broadcast_to(counts, shape))
        else:
            self.__dict__["k"] = as_draft_count(k)
            draft, target = as_probs_pair(draft, target)
        self.__dict__.update(draft=draft, target=target)

    @property
    def n(self) -> int:
        """Number of tokens: the vocabulary size, or the size of the union of two supports."""
        return int(self.draft.shape[-1])

    @property
    def exact(self) -> bool:
        """Whether the distributions are fractions; then every result is exact."""
        return is_exact(self.draft)

    @property
    def iid(self) -> bool:
        """Whether the drafts are independent and identically distributed, as OTM-k assumes."""
        return self._joint is None or isinstance(self._joint, IID)

    @cached_property
    def tokens(self) -> Tokens:
        """Ascending token ids: array [n]; 0 to n − 1 unless the arguments had token ids."""
        return read_only(np.arange(self.n)) if self._tokens is None else self._tokens

    def ids(self, positions: npt.NDArray[np.int64]) -> Tokens:
        """Return the token ids at positions in `tokens`.

        Parameters
        ----------
        positions : int array [...]
            Numbers in [0, n); they are not checked.

        Returns
        -------
        int array [...]
            The token ids; the argument itself if `tokens` is 0 to n − 1.
        """
        return positions if self._tokens is None else self._tokens[positions]

    @cached_property
    def drafts(self) -> DraftDistribution:
        """The joint distribution of the drafts: p^k, or the distribution given as `draft`."""
        self._check_single("the joint distribution of the drafts")
        if self._joint is not None:
            return self._joint
        return IID._from_checked(probs=self.draft, k=self.k, tokens=self._tokens)

    @cached_property
    def bins(self) -> RatioBins:
        """Bins of tokens in ascending order of q/p, with the masses of the bins; needs no sort."""
        self._check_single("the bins of q/p")
        return RatioBins.of(self.draft, self.target)

    @cached_property
    def by_ratio(self) -> RatioOrder:
        """The positions in `tokens`, in ascending order of q/p."""
        self._check_single("the order by q/p")
        return RatioOrder(self.draft, self.target)

    @cached_property
    def _ratios(self) -> RatioBins:
        """Bins of tokens, one bin for each ratio q/p; this may need a sort."""
        return (
            RatioBins.of(self.draft, self.target, few=self.n) if self.bins.wide.size else self.bins
        )

    def drafts_as(self, kind: type[_Drafts], *parameters: Any) -> _Drafts:
        """Return the drafts as the kind of draft distribution that a rule needs.

        Parameters
        ----------
        kind : type
            A class of `otm.drafts`.
        *parameters
            Arguments of the class after the distribution p.

        Returns
        -------
        DraftDistribution
            The drafts of the problem if they are of this kind.  If the problem is i.i.d., the
            result has drafts of this kind from the same p.

        Raises
        ------
        InvalidInputError
            If the problem has rows, or drafts of another kind, for which the rule would not be
            lossless.

        Examples
        --------
        >>> from otm.drafts import Greedy
        >>> problem = Problem([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], k=2)
        >>> str(problem.drafts_as(Greedy, problem.k))
        'top 1 and 1 more'
        """
        if (kind is IID and self._joint is None) or isinstance(self._joint, kind):
            return self.drafts  # type: ignore[return-value]
        if not self.iid:
            raise InvalidInputError(
                f"the drafts of the problem are {self.drafts} ({type(self.drafts).__name__}), but "
                f"this rule needs {kind.__name__} drafts; use a rule for the drafts of the "
                "problem, such as otm.solve(drafts, target).plan"
            )
        self._check_single("a rule")
        return kind(self.draft, *parameters, tokens=self._tokens)  # type: ignore[call-arg]

    def with_k(self, k: int) -> Problem:
        """Return the problem with another number of i.i.d. drafts.

        Parameters
        ----------
        k : int
            The number of drafts, at least 1.

        Returns
        -------
        Problem
            A problem with the same distributions and token ids.

        Raises
        ------
        InvalidDraftCountError
            If k is not an integer of at least 1.
        InvalidInputError
            If the problem has rows, or drafts that are not i.i.d.
        """
        self._check_single("a change of k")
        if not self.iid:
            # This call raises the error, with a message for these drafts.
            self.drafts_as(IID)
        return self._with(self.draft, self.target, k)

    def to_exact(self) -> Problem:
        """Return the same problem in fractions: p/Σp and q/Σq in rational arithmetic.

        Raises
        ------
        InvalidInputError
            If the problem has rows.
        """
        self._check_single("the conversion to fractions")
        return self if self.exact else self._converted(to_exact)

    def to_floats(self) -> Problem:
        """Return the same problem in float64.

        Raises
        ------
        InvalidInputError
            If the problem has rows.
        """
        self._check_single("the conversion to floats")
        return self._converted(to_floats) if self.exact else self

    def _converted(self, numbers: Callable[[Probs], Probs]) -> Problem:
        joint = None if self._joint is None else self._joint._with(numbers)
        return self._with(numbers(self.draft), numbers(self.target), self.k, joint)

    def __getitem__(self, row: int | tuple[int, ...]) -> Problem:
        """Return the problem of one row."""
        place = normalize_row(row, self.shape)
        if not self.shape:
            return self
        draft, target = (
            np.broadcast_to(distribution, (*self.shape, self.n))[place]
            for distribution in (self.draft, self.target)
        )
        return self._with(draft, target, int(np.asarray(self.k)[place]))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a single problem has no rows, so it has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Problem]:
        if len(self.shape) != 1:
            raise TypeError(f"problems of shape {self.shape} are not iterable; index them instead")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        parts = [f"{name}={brief(getattr(self, name))}" for name in ("draft", "target", "k")]
        parts += [f"shape={self.shape}"] if self.shape else []
        parts += [] if self._tokens is None else [f"tokens={brief(self._tokens)}"]
        parts += [] if self.iid else [f"drafts={self.drafts}"]
        return f"Problem({', '.join(parts)})"

    def _with(
        self, draft: Probs, target: Probs, k: int, joint: DraftDistribution | None = None
    ) -> Problem:
        """Return a single problem on the same tokens."""
        problem = Problem(draft, target, k)
        problem.__dict__.update(_tokens=self._tokens, _joint=joint)
        return problem

    def _check_single(self, what: str) -> None:
        if self.shape:
            raise InvalidInputError(
                f"{what} needs a single problem, but this one has rows of shape {self.shape}; use "
                "problem[i], with one index for each axis"
            )


def has_rows(draft: Any, target: Any, k: Any) -> bool:
    """Whether k or an array of probabilities has leading axes; False for other types of input."""
    if not (_count_axes(draft) > 1 or _count_axes(target) > 1 or _count_axes(k) > 0):
        return False
    return not any(
        isinstance(distribution, DraftDistribution | SparseProbs)
        for distribution in (draft, target)
    )


def _count_axes(values: Any) -> int:
    """Count the axes from the type of the first entry: 0, 1, or 2 for two or more axes."""
    axes = getattr(values, "ndim", None)
    if axes is None and isinstance(values, Sequence) and not isinstance(values, str | bytes):
        first = values[0] if len(values) else None
        nested = isinstance(first, list | tuple) or getattr(first, "ndim", 0) > 0
        return 2 if nested else 1
    return int(axes or 0)


def _align_with_drafts(
    drafts: DraftDistribution, target: Any
) -> tuple[Probs, Probs, DraftDistribution]:
    """Return the distribution of one draft, the target and the drafts, all in one number type."""
    if isinstance(target, SparseProbs):
        tokens = np.arange(drafts.n) if drafts.tokens is None else drafts.tokens
        places, known = places_of(tokens, target.tokens)
        if not known.all():
            raise InvalidDistributionError(
                f"the target has token {target.tokens[~known][0]}, which is not one of the "
                f"{drafts.n} tokens of the drafts; add the token to the drafts, with probability 0 "
                "if it cannot be drafted"
            )
        on_drafts = zeros(drafts.n, target.probabilities)
        on_drafts[places] = target.probabilities
        target = on_drafts
    one = drafts.probs if isinstance(drafts, SingleDistribution) else drafts.distribution_of_one()
    draft, target = as_probs_pair(one, target)
    if drafts.exact and not is_exact(draft):
        drafts = drafts.to_floats()
    return draft, target, drafts
