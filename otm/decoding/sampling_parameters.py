"""Sampling parameters: from logits to the distribution that tokens are sampled from.

Temperature, top-k, nucleus and min-p sampling, and argmax, all adjust the distribution of the next
token and then sample from it ([leviathan2023]_, section 2.2).  Speculative decoding is stated for
distributions, so it covers all these sampling methods.  Drafts must be drawn from, and verified
with, the distribution of their `SamplingParameters`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from otm._core.arithmetic import read_only
from otm._core.checks import as_array, name_row
from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_real
from otm._core.probs.largest import near_largest
from otm._core.probs.sparse import SparseProbs, Tokens
from otm._core.tensors import is_tensor, to_host
from otm.errors import InvalidDistributionError, InvalidParameterError

KEEP = "or None to keep all tokens"


@dataclass(frozen=True)
class SamplingParameters:
    """Sampling parameters: a function from logits to probabilities ([leviathan2023]_, section 2.2).

    The parameters act in this order, each on the distribution that the previous one leaves:

    1. `temperature` T: softmax(logits / T); T = 0 puts all mass on the largest logit.
    2. `top_k`: keep the k tokens with the largest logits, exactly k.
    3. `top_p`: keep the smallest set of most probable tokens whose mass is at least p.
    4. `min_p`: keep the tokens whose probability is at least min_p times the largest probability.

    Ties for the last kept tokens go to the lowest token ids.

    Parameters
    ----------
    temperature : float, optional
        T, finite and at least 0.
    top_k : int, optional
        k, at least 1; a k above the vocabulary size keeps all tokens.
    top_p : float, optional
        The threshold p of nucleus sampling, above 0 and at most 1.
    min_p : float, optional
        Least probability of a kept token, as a fraction of the largest probability, in [0, 1].

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its range.

    Notes
    -----
    Order and results are those of Hugging Face transformers, up to rounding and ties.  In
    transformers, top-k keeps all tokens that tie with the k-th, and top-p breaks ties in an
    unspecified way.  Temperature 0 corresponds to `do_sample=False` and puts all mass on one token;
    the limit T → 0 of the softmax would split it among tied tokens.

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
        # The dataclass is frozen, so the checked values go through its dictionary.
        checked = vars(self)
        checked["temperature"] = as_real(self.temperature, "temperature", least=0, advice=greedy)
        if self.top_k is not None:
            checked["top_k"] = as_integer(self.top_k, "top_k", 1, advice=KEEP)
        if self.top_p is not None:
            advice = f"{KEEP} (temperature=0 keeps the most likely one)"
            checked["top_p"] = as_real(self.top_p, "top_p", above=0, most=1, advice=advice)
        if self.min_p is not None:
            checked["min_p"] = as_real(self.min_p, "min_p", least=0, most=1, advice=KEEP)

    def __str__(self) -> str:
        named = zip(("T", "top-k", "top-p", "min-p"), vars(self).values(), strict=True)
        return ", ".join(f"{name} {value:g}" for name, value in named if value is not None)

    def __call__(self, logits: Any) -> Any:
        """Convert logits to next-token distributions.

        Parameters
        ----------
        logits : array-like or tensor [..., V]
            Scores of all tokens along the last axis, as real numbers; −∞ excludes a token.
            Unnormalised log-probabilities are valid scores.

        Returns
        -------
        array or tensor [..., V]
            Probabilities in float64.  If the logits are a tensor, the result is a tensor on the
            same device, without gradient.

        Raises
        ------
        InvalidDistributionError
            If the logits are not numbers with a token axis, or a row has NaN, +∞ or only −∞; the
            message names the row.

        Notes
        -----
        All computations use float64, for every type of logits.  Decoding on a device uses float32,
        with an error of about 10^−7 in total variation.  If the logits are a tensor, the check of
        its rows synchronizes once with the device.
        """
        xp, scores = _as_float64(logits)
        # The maximum is NaN if the row has a NaN.
        highest = xp.amax(scores, -1, keepdims=True)
        _check_rows(highest)
        return self._weighed(xp, scores, highest)

    def _weighed(self, xp: Any, scores: Any, highest: Any) -> Any:
        """Return probabilities of scores whose maxima are known, in NumPy or torch."""
        if self.temperature == 0:
            largest = scores == highest
            first = largest & (xp.cumsum(largest, -1) == 1)
            return first * xp.ones_like(highest)

        def weigh(scores: Any) -> Any:
            """Return probabilities divided by the largest one; exponents ≤ 0 cannot overflow."""
            # A difference may overflow to −∞, which gives a weight of zero.
            with np.errstate(over="ignore"):
                exponents = scores - highest
                if self.temperature != 1:
                    exponents /= self.temperature
            return xp.exp(exponents, out=exponents)

        weights = weigh(scores)
        top_k = min(self.top_k or scores.shape[-1], scores.shape[-1])
        if top_k < scores.shape[-1] or self.top_p is not None:
            weights *= _most_likely(xp, scores, weigh, top_k, self.top_p)
        if self.min_p is not None:
            # The largest weight is 1.
            weights *= weights >= self.min_p
        weights /= weights.sum(-1)[..., None]
        return weights

    def sparse_probs(self, logits: Any) -> SparseProbs:
        """Return the next-token distribution by its support; truncated tokens cost almost no time.

        Parameters
        ----------
        logits : array-like or tensor [V]
            Logits of one distribution; `__call__` describes them.

        Returns
        -------
        SparseProbs
            The distribution that a call returns, up to rounding.

        Raises
        ------
        InvalidDistributionError
            If `logits` is not one row, or `__call__` would raise this error.

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
                f"logits of shape {scores.shape}; pass one row [V], or use `sparse_probs_rows` for "
                "several rows [M, V]"
            )
        return self.sparse_probs_rows(scores[None])[0]

    def sparse_probs_rows(self, logits: Any) -> list[SparseProbs]:
        """Return the distribution of `sparse_probs` for each row of logits.

        Parameters
        ----------
        logits : array-like or tensor [M, V]
            Rows of logits; `__call__` describes them.

        Returns
        -------
        list of SparseProbs
            One distribution per row.

        Raises
        ------
        InvalidDistributionError
            If `logits` is not an array [M, V], or `__call__` would raise this error.
        """
        scores = as_array(logits, "the logits", InvalidDistributionError, widen=False)
        if scores.ndim != 2:
            raise InvalidDistributionError(
                f"logits of shape {scores.shape}; pass the rows of logits as an array [M, V]"
            )
        if scores.dtype.kind != "f":
            return [_supported(_all_tokens(scores.shape[-1]), probs) for probs in self(scores)]
        k = 1 if self.temperature == 0 else self.top_k or scores.shape[-1]
        truncates = k < scores.shape[-1]
        probs_of: Any = partial(_truncated, self, k) if truncates else partial(_untruncated, self)
        found = [probs for probs in map(probs_of, scores) if probs is not None]
        if len(found) < len(scores):
            # A row is invalid, and the call raises.
            self(scores)
        return found


def as_sampling(sampling: object) -> SamplingParameters:
    """Return the sampling parameters, by default those that change nothing."""
    if not isinstance(sampling, SamplingParameters | None):
        raise InvalidParameterError(
            f"sampling = {shown(sampling)}; give a SamplingParameters, such as "
            "SamplingParameters(temperature=0.7)"
        )
    return sampling or SamplingParameters()


def ranking_parameters(sampling: SamplingParameters | None) -> SamplingParameters | None:
    """Return the parameters that rank tokens for drafters that take the most probable tokens.

    Temperature 0 would keep only one token per node, so it is replaced by the default.
    """
    if sampling is not None and sampling.temperature == 0:
        return SamplingParameters()
    return sampling


def keeps_all_tokens(sampling: SamplingParameters) -> bool:
    """Return whether the parameters keep every token."""
    return sampling.temperature > 0 and sampling == SamplingParameters(sampling.temperature)


def dtype_on_device(sampling: SamplingParameters, logits: Any) -> Any:
    """Return the dtype of probabilities on a device: float32 unless float64 is necessary.

    Float64 is necessary for float64 logits, top-p, and temperatures too small for float32 division.
    """
    import torch

    wide = sampling.top_p is not None or 0 < sampling.temperature < 2.0**-100
    return torch.float64 if wide or logits.dtype == torch.float64 else torch.float32


def probs_on_device(sampling: SamplingParameters, logits: Any, out: Any = None) -> tuple[Any, Any]:
    """Return distributions [..., V] of tensor rows, and whether each is valid (bool [...]).

    The call does not synchronize with the device.  Distributions go to `out` if it is not None.
    Invalid rows have undefined values.
    """
    import torch

    scores = logits.detach().to(dtype_on_device(sampling, logits))
    if not keeps_all_tokens(sampling):
        highest = scores.amax(-1, keepdim=True)
        probs = sampling._weighed(torch, scores, highest)
        return (probs if out is None else out.copy_(probs)), highest[..., 0].abs() < math.inf
    # Subtract the maximum before the division, so that no value overflows.
    if sampling.temperature != 1:
        scores = (scores - scores.amax(-1, keepdim=True)).div_(sampling.temperature)
    probs = torch.softmax(scores, -1, out=out)
    # The softmax of an invalid row is NaN everywhere.
    return probs, probs[..., 0] >= 0


def _most_likely(
    xp: Any, scores: Any, weigh: Callable[[Any], Any], top_k: int, top_p: float | None
) -> Any:
    """Return which tokens top-k and then top-p keep, as booleans.

    Tokens are ranked by logits, because rounded or zero weights would tie.  Top-p adds
    probabilities from the smallest up, so that decisions for p near 1 depend on small sums.
    """
    ascending = xp.sort(scores) if xp is np else xp.sort(scores).values
    weights = weigh(ascending)
    weights[..., : weights.shape[-1] - top_k] = 0
    # Mass of each token together with all less probable tokens.
    tail = xp.cumsum(weights, -1)
    kept = tail > (1 - (1.0 if top_p is None else top_p)) * tail[..., -1:]
    # Keep the first token even if 1 − p rounds to 1.
    kept[..., -1] = True
    least = xp.amin(xp.where(kept, ascending, xp.inf), -1, keepdims=True)
    above, ties = scores > least, scores == least
    places = (kept.sum(-1) - above.sum(-1))[..., None]
    return above | (ties & (xp.cumsum(ties, -1) <= places))


def _as_float64(logits: Any) -> tuple[Any, Any]:
    """Return the library of the logits (NumPy or torch), and the logits in float64.

    Callers use only functions that NumPy and torch share, except `sort`.
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
    # An overflow gives infinity, and `_check_rows` raises for the row.
    with np.errstate(over="ignore"):
        return xp, scores.astype(np.float64, copy=False) if xp is np else scores.double()


def _check_rows(highest: Any) -> None:
    """Raise if the largest logit [..., 1] of a row is not finite."""
    largest = to_host(highest)[..., 0]
    if np.isfinite(largest).all():
        return
    row = tuple(int(i) for i in np.argwhere(~np.isfinite(largest))[0])
    fault = {-np.inf: "only −∞", np.inf: "+∞"}.get(float(largest[row]), "NaN")
    raise InvalidDistributionError(
        f"{name_row(row)}the logits have {fault}; at least one logit must be finite, and all "
        "others must be finite or −∞"
    )


def _truncated(sampling: SamplingParameters, k: int, scores: Any) -> SparseProbs | None:
    """Return the distribution of a row with few kept tokens, or None if the row has none."""
    if sampling.temperature == 0:
        # If the row has a NaN, argmax returns its index.
        first = scores.argmax()
        if not abs(scores[first]) < math.inf:
            return None
        return SparseProbs.from_support(np.array([first]), np.ones(1))
    near, highest = near_largest(scores, k)
    if not abs(highest) < math.inf:
        return None
    values = scores[near]
    kept = values >= np.partition(values, -k)[-k]
    tokens, values = near[kept], values[kept]
    if tokens.size > k or sampling.top_p is not None or sampling.min_p is not None:
        return _supported(tokens, sampling(values))
    probs = sampling._weighed(np, values.astype(np.float64), np.float64(highest))
    return _supported(tokens, probs)


def _untruncated(sampling: SamplingParameters, scores: Any) -> SparseProbs | None:
    """Return the distribution of a row without top-k, or None if the row has none.

    Scores of −∞ are left out first, because their exponentials are slow.
    """
    tokens = _all_tokens(scores.size)
    if scores.min() == -math.inf:
        tokens = np.flatnonzero(scores > -math.inf)
        scores = scores[tokens]
    # In float64, so that the difference from it widens the scores without another pass.
    highest = scores.max(initial=-math.inf, keepdims=True).astype(np.float64)
    if not abs(highest[0]) < math.inf:
        return None
    return _supported(tokens, sampling._weighed(np, scores, highest))


def kth_largest(scores: Any, k: int) -> Any:
    """Return the k-th largest score; a cheap lower bound discards most scores first."""
    return np.partition(scores[near_largest(scores, k)[0]], -k)[-k]


@cache
def _all_tokens(count: int) -> Tokens:
    return read_only(np.arange(count))


def _supported(tokens: Tokens, probs: Any) -> SparseProbs:
    """Return probabilities restricted to their support."""
    if not probs.all():
        support = probs > 0
        tokens, probs = tokens[support], probs[support]
    return SparseProbs.from_support(tokens, probs)
