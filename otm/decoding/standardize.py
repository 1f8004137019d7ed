"""From logits to laws: every way of sampling is drawing from an adjusted law.

Temperature, top-k, nucleus and min-p sampling, and argmax, all change the law of the next token
and then draw from it ([leviathan2023]_, section 2.2).  Speculative decoding is stated for laws, so
that it serves all of them alike, as long as drafts are drawn from, and judged by, the law that
their `Standardization` gives.
"""

from __future__ import annotations

import math
import numbers
import operator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from otm.arithmetic import read_only
from otm.errors import InvalidLawError, InvalidParameterError
from otm.membership.rows import name_row
from otm.sparse import SparseLaw, Tokens
from otm.tensors import is_tensor, to_host

__all__ = ["Standardization"]

GROUP = 32
"""How many scores a group has when the largest are looked for."""

LOWEST_EXPONENT = -700
"""Nearly where exp(x) becomes 0."""


@dataclass(frozen=True)
class Standardization:
    """Sampling parameters, as a function from logits to laws.

    They act in this order, each on the law that those before it leave:

    1. `temperature` T: the law is softmax(logits / T); for T = 0 it gives all to the largest logit.
    2. `top_k`: the k tokens of largest logits stay, exactly k of them.
    3. `top_p`: the most likely tokens stay, as few as have mass p; the one that reaches p is kept.
    4. `min_p`: tokens stay that are at least min_p times as likely as the most likely one.

    Where equal logits compete for the last places, the lowest token ids win.

    Parameters
    ----------
    temperature : float, optional
        T, finite and at least 0.
    top_k : int, optional
        k, at least 1; more than the vocabulary holds keep all of it.
    top_p : float, optional
        p, above 0 and at most 1.
    min_p : float, optional
        In [0, 1].

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its range.

    Notes
    -----
    The order is that of Hugging Face transformers, and so are the laws, up to rounding, but for
    ties: there, top-k keeps all tokens that tie with the k-th, and top-p keeps unspecified ones of
    equal tokens.  Temperature 0, which stands for `do_sample=False`, puts all mass on one token;
    the limit T → 0 of the softmax would share it among tokens that tie.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023, section 2.2.

    Examples
    --------
    >>> logits = np.log([0.1, 0.4, 0.2, 0.3])
    >>> Standardization(top_p=0.6)(logits).round(12)
    array([0.        , 0.57142857, 0.        , 0.42857143])
    >>> Standardization(temperature=0)([[1, 3, 3], [2, 0, 1]])
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        temperature = _as_float(self.temperature)
        if not 0 <= temperature < math.inf:
            raise InvalidParameterError(
                f"temperature = {self.temperature!r:.60}; it must be a finite number of at least "
                "0, where 0 means the most likely token"
            )
        object.__setattr__(self, "temperature", temperature)
        if self.top_k is not None:
            object.__setattr__(self, "top_k", _as_count(self.top_k))
        if self.top_p is not None:
            top_p = _as_float(self.top_p)
            if not 0 < top_p <= 1:
                raise InvalidParameterError(
                    f"top_p = {self.top_p!r:.60}; it must be a number above 0 and at most 1, or "
                    "None to keep all tokens (temperature=0 keeps the most likely one)"
                )
            object.__setattr__(self, "top_p", top_p)
        if self.min_p is not None:
            min_p = _as_float(self.min_p)
            if not 0 <= min_p <= 1:
                raise InvalidParameterError(
                    f"min_p = {self.min_p!r:.60}; it must be a number in [0, 1], or None to keep "
                    "all tokens"
                )
            object.__setattr__(self, "min_p", min_p)

    def __call__(self, logits: Any) -> Any:
        """Laws of the next token.

        Parameters
        ----------
        logits : array-like or tensor [..., V]
            Scores of all tokens along the last axis, in any type of real numbers; −∞ excludes a
            token.  Unnormalised log-probabilities serve as well.

        Returns
        -------
        array or tensor [..., V]
            Laws in float64: of a tensor a tensor on its device, without gradient.

        Raises
        ------
        InvalidLawError
            If the logits are not numbers along a last axis, or a row has NaN, +∞, or nothing but
            −∞, which names the row.

        Notes
        -----
        Everything is computed in float64, whatever the type of the logits.  Checking the rows
        waits for the tensor's device once.
        """
        xp, scores = _as_float64(logits)
        highest = xp.amax(scores, -1, keepdims=True)  # NaN if the row has one
        _check_rows(highest)
        if self.temperature == 0:
            largest = scores == highest
            first = largest & (xp.cumsum(largest, -1) == 1)
            return first * xp.ones_like(highest)
        weights = self._weights(xp, scores, highest)
        if self.top_k is not None or self.top_p is not None:
            weights = weights * self._most_likely(xp, scores, highest)
        if self.min_p is not None:
            weights = weights * (weights >= self.min_p)  # the largest weight is 1
        return weights / weights.sum(-1)[..., None]

    def sparse(self, logits: Any) -> SparseLaw:
        """Law of the next token by its support; what was truncated costs next to nothing.

        Parameters
        ----------
        logits : array-like or tensor [V]
            As for a call, for one law.

        Returns
        -------
        SparseLaw
            The law that a call gives, up to rounding.

        Raises
        ------
        InvalidLawError
            As for a call.

        Examples
        --------
        >>> law = Standardization(top_k=2)(np.log([0.1, 0.4, 0.2, 0.3]))
        >>> law.round(12)
        array([0.        , 0.57142857, 0.        , 0.42857143])
        >>> Standardization(top_k=2).sparse(np.log([0.1, 0.4, 0.2, 0.3])).tokens.tolist()
        [1, 3]
        """
        scores = _as_host(logits)
        if scores.ndim != 1:
            raise InvalidLawError(
                f"logits of shape {scores.shape}; a single law takes [V], `sparse_rows` [M, V]"
            )
        return self.sparse_rows(scores[None])[0]

    def sparse_rows(self, logits: Any) -> list[SparseLaw]:
        """Laws of the next token by their supports, those that `sparse` gives row by row.

        Parameters
        ----------
        logits : array-like or tensor [M, V]
            As for a call.

        Returns
        -------
        list of SparseLaw
            A law for each row.

        Raises
        ------
        InvalidLawError
            As for a call.
        """
        scores = _as_host(logits)
        if scores.ndim != 2:
            raise InvalidLawError(
                f"logits of shape {scores.shape}; several laws take those of each in a row, [M, V]"
            )
        if scores.dtype.kind not in "fiu" or scores.shape[-1] == 0:
            self(scores)  # refuses them
        if self.temperature == 0:
            return [self._largest(row) for row in scores]
        if scores.dtype.kind == "f" and self.top_k is not None and self.top_k < scores.shape[-1]:
            return [self._truncated(row, self.top_k) for row in scores]
        everything = _all_tokens(scores.shape[-1])
        return [_supported(everything, law) for law in self._plain(scores)]

    def _plain(self, scores: Any) -> Any:
        """Laws of rows; equivalent to a call, but faster where only the temperature matters."""
        if scores.dtype.kind != "f" or self._more_than_top_k:
            return self(scores)
        highest = scores.max(-1, keepdims=True)  # NaN if the row has one
        if not np.isfinite(highest).all():
            return self(scores)
        weights = np.subtract(scores, highest, dtype=np.float64)
        if self.temperature != 1:
            with np.errstate(over="ignore"):  # to −∞, which is a weight of zero
                weights /= self.temperature
        np.exp(weights, out=weights)
        weights /= weights.sum(-1, keepdims=True)
        return weights

    def _largest(self, scores: Any) -> SparseLaw:
        """All mass on the first of the largest logits."""
        token = scores.argmax()  # that of NaN if there is one
        if not math.isfinite(scores[token]):
            self(scores)  # refuses the row
        return SparseLaw.from_support(np.array([token]), np.ones(1))

    def _truncated(self, scores: Any, k: int) -> SparseLaw:
        """Law of a row of which few tokens are left: the others are sorted out first."""
        largest = scores.max()  # NaN if the row has one
        tokens = np.flatnonzero(scores >= _below_largest(scores, k))
        found = scores[tokens]
        least = np.partition(found, -k)[-k] if found.size >= k else -math.inf
        if not (least > -math.inf and largest < math.inf):  # refused, or all of it
            return _supported(_all_tokens(scores.size), self(scores))
        if found.size > k:
            kept = found >= least
            tokens, found = tokens[kept], found[kept]
        lowest = (float(least) - float(largest)) / self.temperature
        if found.size > k or self._more_than_top_k or lowest < LOWEST_EXPONENT:
            return _supported(tokens, self(found))
        weights = np.exp(np.subtract(found, largest, dtype=np.float64) / self.temperature)
        weights /= weights.sum()
        return SparseLaw.from_support(tokens, weights)

    @cached_property
    def _more_than_top_k(self) -> bool:
        """Whether anything but temperature and top-k changes the law."""
        return self.top_p is not None or self.min_p is not None

    def _weights(self, xp: Any, scores: Any, highest: Any) -> Any:
        """Laws times what makes their largest entry 1: subtracted first, nothing overflows."""
        with np.errstate(over="ignore"):  # to −∞, which is a weight of zero
            return xp.exp((scores - highest) / self.temperature)

    def _most_likely(self, xp: Any, scores: Any, highest: Any) -> Any:
        """Which tokens top-k and then top-p leave, as booleans.

        Logits are ranked, not weights, which tie where they are rounded or zero.  Top-p adds from
        the least likely token on, so that p near 1 is decided by the small sums.
        """
        ascending = xp.sort(scores) if xp is np else xp.sort(scores).values
        weights = self._weights(xp, ascending, highest)
        if self.top_k is not None:
            weights[..., : max(weights.shape[-1] - self.top_k, 0)] = 0
        tail = xp.cumsum(weights, -1)  # mass of a token and of all that are less likely
        kept = tail > (1 - (1.0 if self.top_p is None else self.top_p)) * tail[..., -1:]
        kept[..., -1] = True  # also where p is lost in 1 − p
        least = xp.amin(xp.where(kept, ascending, xp.inf), -1, keepdims=True)
        above, ties = scores > least, scores == least
        places = (kept.sum(-1) - above.sum(-1))[..., None]
        return above | (ties & (xp.cumsum(ties, -1) <= places))


def _as_host(logits: Any) -> Any:
    """Return logits as a NumPy array, in their own type where NumPy has it."""
    return np.asarray(to_host(logits, widen=False))


@cache
def _all_tokens(count: int) -> Tokens:
    return read_only(np.arange(count))


def _supported(tokens: Tokens, law: Any) -> SparseLaw:
    """Return the law without its tokens of probability zero."""
    if not law.all():
        support = law > 0
        tokens, law = tokens[support], law[support]
    return SparseLaw.from_support(tokens, law)


def _below_largest(scores: Any, k: int) -> Any:
    """Return a number that at least k scores reach, and not many more; cheaper than the k-th.

    Of the largest scores of many groups, the k-th largest: k groups have one that reaches it.
    """
    groups = scores.size // GROUP
    if k > groups:
        return np.partition(scores, -k)[-k]
    of_groups = scores[: groups * GROUP].reshape(GROUP, groups).max(axis=0)
    return np.partition(of_groups, -k)[-k]


def _as_float(value: Any) -> float:
    """Return a real number as a float, and NaN, which is in no range, for all that is none."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _as_count(top_k: Any) -> int:
    try:
        count = 0 if isinstance(top_k, bool | np.bool_) else operator.index(top_k)
    except TypeError:
        count = 0
    if count < 1:
        raise InvalidParameterError(
            f"top_k = {top_k!r:.60}; it must be an integer of at least 1, or None to keep all "
            "tokens"
        )
    return count


def _as_float64(logits: Any) -> tuple[Any, Any]:
    """Return the library that these logits belong to, and the logits in float64.

    What is used of the two libraries has the same names and meanings in both, except for `sort`.
    """
    xp: Any = np
    if is_tensor(logits):
        import torch

        xp = torch
        scores = logits.detach()
        number = not scores.is_complex() and scores.dtype != torch.bool
    else:
        try:
            scores = np.asarray(logits)
        except Exception as reason:  # whatever a foreign object raises when asked for its entries
            raise InvalidLawError(
                f"the logits are not array-like ({reason}); give an array"
            ) from reason
        number = scores.dtype.kind in "fiu"
    if not number or scores.ndim == 0 or scores.shape[-1] == 0:
        raise InvalidLawError(
            f"logits of type {scores.dtype} and shape {tuple(scores.shape)}; they must be real "
            "numbers, one for each token along the last axis"
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused by its row
        return xp, scores.astype(np.float64) if xp is np else scores.double()


def _check_rows(highest: Any) -> None:
    """Refuse a row whose largest logit [..., 1] is not finite."""
    largest = to_host(highest)[..., 0]
    if np.isfinite(largest).all():
        return
    row = tuple(int(i) for i in np.argwhere(~np.isfinite(largest))[0])
    found = {-np.inf: "nothing but −∞", np.inf: "+∞"}.get(float(largest[row]), "NaN")
    raise InvalidLawError(
        f"{name_row(row)}the logits have {found}; a law needs a finite logit, and beside it only "
        "finite ones and −∞"
    )
