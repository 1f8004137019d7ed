"""The problem that OTM solves, stated once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Frozen, Probs, is_exact, read_only, zeros
from otm._core.checks import as_draft_count, as_draft_counts, broadcast_counts, place_of_row
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
    """Optimal transport with membership cost and k i.i.d. drafts (OTM-k), or any other drafts.

    A draft model proposes tokens X_1, …, X_k, independent with distribution p.  A selection rule
    looks at them and outputs one token Y, which must have the target distribution q.  The rule may
    depend on p, q, the drafts and fresh randomness, that is, it is a transport plan π from p^k to
    q::

        α_k(p, q) = max Pr(Y ∈ {X_1, …, X_k})   over all π with marginals p^k and q.

    Equivalently, π minimises the expected membership cost 1{Y ∉ {X_1, …, X_k}} ([sun2023]_,
    equations 3 and 4).  In place of p^k the drafts may have any joint distribution.

    Parameters
    ----------
    draft : array-like [..., n], SparseProbs or DraftDistribution
        The distribution p of each draft: an array, rows of them, or one by its support; or the
        joint distribution of all drafts (`otm.drafts`).
    target : array-like [..., n] or SparseProbs
        The distribution q that the output must have, on the same tokens.  By its support if the
        draft is; the problem then lives on the union of the supports.
    k : int or int array-like [...]
        The number of drafts, at least 1; to be left out beside a `DraftDistribution`.  All leading
        axes broadcast.

    Attributes
    ----------
    draft, target : array [n]
        The distributions, normalised and read-only: float64, or `fractions.Fraction` in an object
        array.  Of many rows [..., n], each of the shape that it was given in.  Of drafts that do
        not come from one distribution `draft` is that of one of them, picked at random.
    k : int
        The number of drafts; of many rows an int array [...].
    shape : tuple of int
        Leading axes: those of the rows, () for a single problem.

    Raises
    ------
    InvalidDistributionError
        If a distribution is not valid, which names its row, or they do not fit together.
    InvalidDraftCountError
        If k is not an integer of at least 1, or does not broadcast with the distributions.

    Notes
    -----
    A distribution on n tokens is divided by its sum if this is close enough to one.  The tolerance
    is the larger of two numbers: 0.01 and n 2^−25 in float16 and bfloat16, 1e-4 and n 2^−26 in
    float32, 1e-6 and n 2^−30 in other types and fractions.  A list or an array of float64 or
    float32 has the tolerance of the narrowest type that holds all its numbers, since a softmax in
    float32 keeps its sum in float64.  Types of 16 bits are considered only for more than 64
    numbers.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport",
       NeurIPS 2023, section 5.

    Examples
    --------
    >>> problem = Problem([0.5, 0.5], [0.75, 0.25], k=2)
    >>> problem.n, problem.k, problem.exact
    (2, 2, False)

    By their supports, and rows of which each is a problem:

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
                    f"k = {shown(k)} beside a joint distribution of {draft.k} drafts, which says "
                    "how many there are; leave k out"
                )
            draft, target, joint = _beside_drafts(draft, target)
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
        """Number of tokens: the size of the vocabulary, or of the union of two supports."""
        return int(self.draft.shape[-1])

    @property
    def exact(self) -> bool:
        """Whether the distributions are fractions, so that every result is exact."""
        return is_exact(self.draft)

    @property
    def iid(self) -> bool:
        """Whether the drafts are independent with one distribution, as OTM-k has them."""
        return self._joint is None or isinstance(self._joint, IID)

    @cached_property
    def tokens(self) -> Tokens:
        """Token ids, ascending: array [n]; 0 to n − 1 unless supports or drafts came with ids."""
        return read_only(np.arange(self.n)) if self._tokens is None else self._tokens

    def ids(self, positions: npt.NDArray[np.int64]) -> Tokens:
        """Token ids of positions in `tokens`.

        Parameters
        ----------
        positions : int array [...]
            Numbers in [0, n), which are not checked.

        Returns
        -------
        int array [...]
            Their ids; the array itself where positions are ids.
        """
        return positions if self._tokens is None else self._tokens[positions]

    @cached_property
    def drafts(self) -> DraftDistribution:
        """The joint distribution of the drafts: p^k, unless another was given."""
        self._check_single("the joint distribution of the drafts")
        if self._joint is not None:
            return self._joint
        return IID._of_checked(probs=self.draft, k=self.k, tokens=self._tokens)

    @cached_property
    def bins(self) -> RatioBins:
        """The tokens in bins of ascending q/p, with their masses: what needs no sort."""
        self._check_single("the bins of q/p")
        return RatioBins.of(self.draft, self.target)

    @cached_property
    def by_ratio(self) -> RatioOrder:
        """The tokens, as positions in `tokens`, in ascending order of q/p."""
        self._check_single("the order by q/p")
        return RatioOrder(self.draft, self.target)

    @cached_property
    def _ratios(self) -> RatioBins:
        """The tokens in bins of one q/p each, which may take a sort."""
        return (
            RatioBins.of(self.draft, self.target, few=self.n) if self.bins.wide.size else self.bins
        )

    def drafts_as(self, kind: type[_Drafts], *parameters: Any) -> _Drafts:
        """Return the drafts as a rule needs them to be drawn.

        Parameters
        ----------
        kind : type
            A class of `otm.drafts`.
        *parameters
            What it takes beside the distribution p.

        Returns
        -------
        DraftDistribution
            The drafts of the problem if they are of this kind.  Those of an i.i.d. problem are
            drawn from the same p in the other way.

        Raises
        ------
        InvalidInputError
            If the problem has rows, or is about other drafts, for which this rule would not be
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
                f"the drafts of the problem are {self.drafts} ({type(self.drafts).__name__}), and "
                f"this rule is for {kind.__name__} drafts; take a rule for the former, such as "
                "otm.solve(drafts, target).plan"
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
            Of the same distributions and token ids.

        Raises
        ------
        InvalidDraftCountError
            If k is not an integer of at least 1.
        InvalidInputError
            If the problem has rows, or drafts that are not i.i.d.
        """
        self._check_single("another number of drafts")
        if not self.iid:
            self.drafts_as(IID)  # says what is wrong
        return self._with(self.draft, self.target, k)

    def to_exact(self) -> Problem:
        """Return the same problem in fractions: p/Σp and q/Σq in rational arithmetic.

        Raises
        ------
        InvalidInputError
            If the problem has rows.
        """
        self._check_single("a problem in fractions")
        return self if self.exact else self._converted(to_exact)

    def to_floats(self) -> Problem:
        """Return the same problem in float64.

        Raises
        ------
        InvalidInputError
            If the problem has rows.
        """
        self._check_single("a problem in floats")
        return self._converted(to_floats) if self.exact else self

    def _converted(self, numbers: Callable[[Probs], Probs]) -> Problem:
        joint = None if self._joint is None else self._joint._with(numbers)
        return self._with(numbers(self.draft), numbers(self.target), self.k, joint)

    def __getitem__(self, row: int | tuple[int, ...]) -> Problem:
        """Return the problem of one row."""
        place = place_of_row(row, self.shape)
        if not self.shape:
            return self
        draft, target = (
            np.broadcast_to(distribution, (*self.shape, self.n))[place]
            for distribution in (self.draft, self.target)
        )
        return self._with(draft, target, int(np.asarray(self.k)[place]))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("this is a single problem, which has no leading axis and no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Problem]:
        if len(self.shape) != 1:
            raise TypeError(f"problems of shape {self.shape} are not a sequence; index them")
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
                f"{what} is about one problem, and this one has rows of shape {self.shape}; take "
                "problem[i], with an index for each axis"
            )


def has_rows(draft: Any, target: Any, k: Any) -> bool:
    """Whether arrays of distributions, or k, have leading axes; of other inputs a problem says."""
    if not (_axes(draft) > 1 or _axes(target) > 1 or _axes(k) > 0):
        return False
    return not any(
        isinstance(distribution, DraftDistribution | SparseProbs)
        for distribution in (draft, target)
    )


def _axes(values: Any) -> int:
    """Count the axes, as far as the first entry shows: 2 stands for more, and so 0 for none."""
    axes = getattr(values, "ndim", None)
    if axes is None and isinstance(values, Sequence) and not isinstance(values, str | bytes):
        first = values[0] if len(values) else None
        nested = isinstance(first, list | tuple) or getattr(first, "ndim", 0) > 0
        return 2 if nested else 1
    return int(axes or 0)


def _beside_drafts(
    drafts: DraftDistribution, target: Any
) -> tuple[Probs, Probs, DraftDistribution]:
    """Distribution of one draft, the target, and the drafts, all in floats or all in fractions."""
    if isinstance(target, SparseProbs):
        tokens = np.arange(drafts.n) if drafts.tokens is None else drafts.tokens
        places, known = places_of(tokens, target.tokens)
        if not known.all():
            raise InvalidDistributionError(
                f"the target has token {target.tokens[~known][0]}, which is not among the "
                f"{drafts.n} tokens of the drafts; give these a probability for it, which may be 0"
            )
        on_drafts = zeros(drafts.n, target.probabilities)
        on_drafts[places] = target.probabilities
        target = on_drafts
    one = drafts.probs if isinstance(drafts, SingleDistribution) else drafts.distribution_of_one()
    draft, target = as_probs_pair(one, target)
    if drafts.exact and not is_exact(draft):
        drafts = drafts.to_floats()
    return draft, target, drafts
