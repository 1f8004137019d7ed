"""From logits to laws: every way of sampling is drawing from an adjusted law.

Temperature, top-k, nucleus and min-p sampling, and argmax, all change the law of the next token
and then draw from it ([leviathan2023]_, section 2.2).  Speculative decoding is stated for laws, so
that it serves all of them alike, as long as drafts are drawn from, and judged by, the law that
their `SamplingParameters` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from otm._core.numbers import as_integer, as_real
from otm._core.sparse import SparseProbs
from otm._core.tensors import to_host
from otm.decoding.dense_probs import dense_probs
from otm.decoding.sparse_probs import sparse_probs
from otm.errors import InvalidDistributionError

KEEP = "or None to keep all tokens"


@dataclass(frozen=True)
class SamplingParameters:
    """Sampling parameters, as a function from logits to laws ([leviathan2023]_, section 2.2).

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
        temperature = as_real(self.temperature, "temperature", least=0, advice=greedy)
        object.__setattr__(self, "temperature", temperature)
        if self.top_k is not None:
            top_k = as_integer(self.top_k, "top_k", 1, advice=KEEP)
            object.__setattr__(self, "top_k", top_k)
        if self.top_p is not None:
            advice = f"{KEEP} (temperature=0 keeps the most likely one)"
            top_p = as_real(self.top_p, "top_p", above=0, most=1, advice=advice)
            object.__setattr__(self, "top_p", top_p)
        if self.min_p is not None:
            min_p = as_real(self.min_p, "min_p", least=0, most=1, advice=KEEP)
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
        InvalidDistributionError
            If the logits are not numbers along a last axis, or a row has NaN, +∞, or nothing but
            −∞, which names the row.

        Notes
        -----
        Everything is computed in float64, whatever the type of the logits.  Checking the rows
        waits for the tensor's device once.
        """
        return dense_probs(logits, self.temperature, self.top_k, self.top_p, self.min_p)

    def sparse_probs(self, logits: Any) -> SparseProbs:
        """Law of the next token by its support; what was truncated costs next to nothing.

        Parameters
        ----------
        logits : array-like or tensor [V]
            As for a call, for one law.

        Returns
        -------
        SparseProbs
            The law that a call gives, up to rounding.

        Raises
        ------
        InvalidDistributionError
            As for a call.

        Examples
        --------
        >>> law = SamplingParameters(top_k=2)(np.log([0.1, 0.4, 0.2, 0.3]))
        >>> law.round(12)
        array([0.        , 0.57142857, 0.        , 0.42857143])
        >>> SamplingParameters(top_k=2).sparse_probs(np.log([0.1, 0.4, 0.2, 0.3])).tokens.tolist()
        [1, 3]
        """
        scores = _as_host(logits)
        if scores.ndim != 1:
            raise InvalidDistributionError(
                f"logits of shape {scores.shape}; one row takes [V], `sparse_probs_rows` [M, V]"
            )
        return self.sparse_probs_rows(scores[None])[0]

    def sparse_probs_rows(self, logits: Any) -> list[SparseProbs]:
        """Laws of the next token by their supports, those that `sparse` gives row by row.

        Parameters
        ----------
        logits : array-like or tensor [M, V]
            As for a call.

        Returns
        -------
        list of SparseProbs
            A law for each row.

        Raises
        ------
        InvalidDistributionError
            As for a call.
        """
        scores = _as_host(logits)
        if scores.ndim != 2:
            raise InvalidDistributionError(
                f"logits of shape {scores.shape}; several laws take those of each in a row, [M, V]"
            )
        return sparse_probs(scores, self.temperature, self.top_k, self.top_p, self.min_p)


def _as_host(logits: Any) -> Any:
    """Return logits as a NumPy array, in their own type where NumPy has it."""
    return np.asarray(to_host(logits, widen=False))
