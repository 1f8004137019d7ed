"""From logits to distributions: every way of sampling is drawing from an adjusted distribution.

Temperature, top-k, nucleus and min-p sampling, and argmax, all change the distribution of the next
token and then draw from it ([leviathan2023]_, section 2.2).  Speculative decoding is stated for
distributions and so serves all of them alike, as long as drafts are drawn from, and verified by,
the distribution that their `SamplingParameters` gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from otm._core.arithmetic import read_only
from otm._core.checks import as_array, name_row
from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_real
from otm._core.probs.sparse import SparseProbs, Tokens
from otm._core.tensors import is_tensor, to_host
from otm.errors import InvalidDistributionError, InvalidParameterError

KEEP = "or None to keep all tokens"

GROUP = 32
"""How many scores a group has when the largest are looked for."""


@dataclass(frozen=True)
class SamplingParameters:
    """Sampling parameters: a function from logits to probabilities ([leviathan2023]_, section 2.2).

    They act in this order, each on the distribution that those before it leave:

    1. `temperature` T: softmax(logits / T); for T = 0 all mass is on the largest logit.
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
    The order is that of Hugging Face transformers, and so are the results, up to rounding, but for
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
    >>> SamplingParameters(top_p=0.6)(logits).round(12)
    array([0.        , 0.57142857, 0.        , 0.42857143])
    >>> SamplingParameters(temperature=0)([[1, 3, 3], [2, 0, 1]])
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        greedy = "where 0 means the most likely token"
        checked = vars(self)  # frozen for others
        checked["temperature"] = as_real(self.temperature, "temperature", least=0, advice=greedy)
        if self.top_k is not None:
            checked["top_k"] = as_integer(self.top_k, "top_k", 1, advice=KEEP)
        if self.top_p is not None:
            advice = f"{KEEP} (temperature=0 keeps the most likely one)"
            checked["top_p"] = as_real(self.top_p, "top_p", above=0, most=1, advice=advice)
        if self.min_p is not None:
            checked["min_p"] = as_real(self.min_p, "min_p", least=0, most=1, advice=KEEP)

    def __str__(self) -> str:
        names = {"temperature": "T", "top_k": "top-k", "top_p": "top-p", "min_p": "min-p"}
        values = {short: getattr(self, name) for name, short in names.items()}
        given = (f"{name} {value:g}" for name, value in values.items() if value is not None)
        return ", ".join(given)

    def __call__(self, logits: Any) -> Any:
        """Distributions of the next token.

        Parameters
        ----------
        logits : array-like or tensor [..., V]
            Scores of all tokens along the last axis, in any type of real numbers; −∞ excludes a
            token.  Unnormalised log-probabilities serve as well.

        Returns
        -------
        array or tensor [..., V]
            Probabilities in float64: of a tensor a tensor on its device, without gradient.

        Raises
        ------
        InvalidDistributionError
            If the logits are not numbers along a last axis, or a row has NaN, +∞, or nothing but
            −∞, which names the row.

        Notes
        -----
        Everything is computed in float64, whatever the type of the logits; decoding on a device
        takes float32, about 10^−7 (TV) away.  Checking the rows waits for the tensor's device once.
        """
        xp, scores = _as_float64(logits)
        highest = xp.amax(scores, -1, keepdims=True)  # NaN if the row has one
        _check_rows(highest)
        return self._weighed(xp, scores, highest)

    def _weighed(self, xp: Any, scores: Any, highest: Any) -> Any:
        """Probabilities from scores whose largest are known, in NumPy or torch."""
        if self.temperature == 0:
            largest = scores == highest
            first = largest & (xp.cumsum(largest, -1) == 1)
            return first * xp.ones_like(highest)

        def weigh(scores: Any) -> Any:
            """Probs times what makes the largest 1: subtracted first, nothing overflows."""
            with np.errstate(over="ignore"):  # to −∞, which is a weight of zero
                exponents = scores - highest
                if self.temperature != 1:
                    exponents /= self.temperature
            return xp.exp(exponents, out=exponents)

        weights = weigh(scores)
        top_k = min(self.top_k or scores.shape[-1], scores.shape[-1])
        if top_k < scores.shape[-1] or self.top_p is not None:
            weights *= _most_likely(xp, scores, weigh, top_k, self.top_p)
        if self.min_p is not None:
            weights *= weights >= self.min_p  # the largest weight is 1
        weights /= weights.sum(-1)[..., None]
        return weights

    def sparse_probs(self, logits: Any) -> SparseProbs:
        """Distribution of the next token by its support; truncated tokens cost next to nothing.

        Parameters
        ----------
        logits : array-like or tensor [V]
            As for a call, for one distribution.

        Returns
        -------
        SparseProbs
            What a call returns, up to rounding.

        Raises
        ------
        InvalidDistributionError
            As for a call.

        Examples
        --------
        >>> probs = SamplingParameters(top_k=2)(np.log([0.1, 0.4, 0.2, 0.3]))
        >>> probs.round(12)
        array([0.        , 0.57142857, 0.        , 0.42857143])
        >>> SamplingParameters(top_k=2).sparse_probs(np.log([0.1, 0.4, 0.2, 0.3])).tokens.tolist()
        [1, 3]
        """
        scores = as_array(logits, "the logits", InvalidDistributionError, widen=False)
        if scores.ndim != 1:
            raise InvalidDistributionError(
                f"logits of shape {scores.shape}; one row takes [V], `sparse_probs_rows` [M, V]"
            )
        return self.sparse_probs_rows(scores[None])[0]

    def sparse_probs_rows(self, logits: Any) -> list[SparseProbs]:
        """Distributions of the next token by their supports, those of `sparse_probs` row by row.

        Parameters
        ----------
        logits : array-like or tensor [M, V]
            As for a call.

        Returns
        -------
        list of SparseProbs
            A distribution for each row.

        Raises
        ------
        InvalidDistributionError
            As for a call.
        """
        scores = as_array(logits, "the logits", InvalidDistributionError, widen=False)
        if scores.ndim != 2:
            raise InvalidDistributionError(
                f"logits of shape {scores.shape}; several rows of logits are an array [M, V]"
            )
        k = 1 if self.temperature == 0 else self.top_k
        if scores.dtype.kind == "f" and k is not None and k < scores.shape[-1]:
            return [_truncated(self, row, k) for row in scores]
        return [_supported(_all_tokens(scores.shape[-1]), probs) for probs in self(scores)]


def as_sampling(sampling: object) -> SamplingParameters:
    """Return how to sample, from the distributions as they are if nothing is said."""
    if not isinstance(sampling, SamplingParameters | None):
        raise InvalidParameterError(
            f"sampling = {shown(sampling)}; give a SamplingParameters, such as "
            "SamplingParameters(temperature=0.7)"
        )
    return sampling or SamplingParameters()


def ranked_by(sampling: SamplingParameters | None) -> SamplingParameters | None:
    """Return how the draft model's tokens are ranked where the likeliest are drafted, not sampled.

    At temperature 0 it would leave one token of each node, and other drafts are worth as much.
    """
    if sampling is not None and sampling.temperature == 0:
        return SamplingParameters()
    return sampling


def leaves_all(sampling: SamplingParameters) -> bool:
    """Whether no token is left out."""
    return sampling.temperature > 0 and sampling == SamplingParameters(sampling.temperature)


def dtype_on_device(sampling: SamplingParameters, logits: Any) -> Any:
    """Return the type of probabilities on a device: float32, unless logits or parameters need more.

    That is for logits in float64, top-p, and temperatures that float32 cannot divide by.
    """
    import torch

    wide = sampling.top_p is not None or 0 < sampling.temperature < 2.0**-100
    return torch.float64 if wide or logits.dtype == torch.float64 else torch.float32


def probs_on_device(sampling: SamplingParameters, logits: Any, out: Any = None) -> tuple[Any, Any]:
    """Distributions of rows of a tensor without a wait for its device, and which rows have one.

    [..., V] → [..., V] and bool [...]; they go to `out` if it is given.  What stands in a row that
    has none means nothing.
    """
    import torch

    scores = logits.detach().to(dtype_on_device(sampling, logits))
    if not leaves_all(sampling):
        highest = scores.amax(-1, keepdim=True)
        probs = sampling._weighed(torch, scores, highest)
        return (probs if out is None else out.copy_(probs)), highest[..., 0].abs() < math.inf
    if sampling.temperature != 1:  # the largest first, so that nothing overflows
        scores = (scores - scores.amax(-1, keepdim=True)).div_(sampling.temperature)
    probs = torch.softmax(scores, -1, out=out)
    return probs, probs[..., 0] >= 0  # what is wrong anywhere makes a whole row NaN


def _most_likely(
    xp: Any, scores: Any, weigh: Callable[[Any], Any], top_k: int, top_p: float | None
) -> Any:
    """Which tokens top-k and then top-p leave, as booleans.

    Logits are ranked, not weights, which tie where they are rounded or zero.  Top-p adds from the
    least likely token on, so that p near 1 is decided by the small sums.
    """
    ascending = xp.sort(scores) if xp is np else xp.sort(scores).values
    weights = weigh(ascending)
    weights[..., : weights.shape[-1] - top_k] = 0
    tail = xp.cumsum(weights, -1)  # mass of a token and of all that are less likely
    kept = tail > (1 - (1.0 if top_p is None else top_p)) * tail[..., -1:]
    kept[..., -1] = True  # also where p is lost in 1 − p
    least = xp.amin(xp.where(kept, ascending, xp.inf), -1, keepdims=True)
    above, ties = scores > least, scores == least
    places = (kept.sum(-1) - above.sum(-1))[..., None]
    return above | (ties & (xp.cumsum(ties, -1) <= places))


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
        scores = as_array(logits, "the logits", InvalidDistributionError)
        number = scores.dtype.kind in "fiu"
    if not number or scores.ndim == 0 or scores.shape[-1] == 0:
        raise InvalidDistributionError(
            f"logits of type {scores.dtype} and shape {tuple(scores.shape)}; they must be real "
            "numbers, one for each token along the last axis"
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused by its row
        return xp, scores.astype(np.float64, copy=False) if xp is np else scores.double()


def _check_rows(highest: Any) -> None:
    """Refuse a row whose largest logit [..., 1] is not finite."""
    largest = to_host(highest)[..., 0]
    if np.isfinite(largest).all():
        return
    row = tuple(int(i) for i in np.argwhere(~np.isfinite(largest))[0])
    found = {-np.inf: "nothing but −∞", np.inf: "+∞"}.get(float(largest[row]), "NaN")
    raise InvalidDistributionError(
        f"{name_row(row)}the logits have {found}; there must be a finite logit, and beside it "
        "only finite ones and −∞"
    )


def _truncated(sampling: SamplingParameters, scores: Any, k: int) -> SparseProbs:
    """Probs of a row of which few tokens are left: the others are sorted out first."""
    if sampling.temperature == 0:
        first = scores.argmax()  # NaN if there is one
        if not abs(scores[first]) < math.inf:
            sampling(scores)  # refuses the row
        return SparseProbs.from_support(np.array([first]), np.ones(1))
    near, highest = _near_largest(scores, k)
    if not highest < math.inf:
        sampling(scores)  # refuses NaN and +∞
    values = scores[near]
    kept = values >= np.partition(values, -k)[-k]
    tokens, values = near[kept], values[kept]
    if tokens.size > k or sampling.top_p is not None or sampling.min_p is not None:
        return _supported(tokens, sampling(values))
    probs = sampling._weighed(np, values.astype(np.float64), np.float64(highest))
    return _supported(tokens, probs)


def kth_largest(scores: Any, k: int) -> Any:
    """Return the k-th largest score, of the few that reach a bound which is cheap to find."""
    return np.partition(scores[_near_largest(scores, k)[0]], -k)[-k]


def _near_largest(scores: Any, k: int) -> tuple[Tokens, Any]:
    """Return tokens of which k have the largest scores, mostly not many more, and the largest.

    They reach the k-th largest of the largest scores of many groups: k groups have one that does.
    """
    groups = scores.size // GROUP
    if k > groups:
        return _all_tokens(scores.size), scores.max()
    whole = groups * GROUP
    of_groups = scores[:whole].reshape(GROUP, groups).max(axis=0)
    highest = of_groups.max()
    if whole < scores.size:
        highest = np.maximum(highest, scores[whole:].max())  # NaN if one of them is
    return np.flatnonzero(scores >= np.partition(of_groups, -k)[-k]), highest


@cache
def _all_tokens(count: int) -> Tokens:
    return read_only(np.arange(count))


def _supported(tokens: Tokens, probs: Any) -> SparseProbs:
    """Return probs by their support, without the tokens of probability zero."""
    if not probs.all():
        support = probs > 0
        tokens, probs = tokens[support], probs[support]
    return SparseProbs.from_support(tokens, probs)
