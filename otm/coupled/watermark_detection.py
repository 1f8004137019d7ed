"""What the key of a text shows of its watermark: the test, and its mean in closed form.

A clock of the list that drew a token is early.  If the token has probability p there, its clock is
p times an Exp(1), and the mean of its score −ln u is the harmonic number H(1/p); that of any other
clock is H(1) = 1.

References
----------
.. [aaronson2022] Aaronson, "My AI Safety Lecture for UT Effective Altruism", 2022.
.. [he2026] He, Li, Shen, Su and Long, "Improve the Trade-off Between Watermark Strength and
   Speculative Sampling Efficiency for Language Models", ICLR 2026, arXiv 2602.01428.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_array, as_draft_count
from otm._core.display.text import shown
from otm._core.numbers import as_integer, as_real, check_name
from otm.coupled.clocks.numpy import SharedClocks
from otm.coupled.list_coupling import ListCoupling
from otm.coupled.watermark import COINS, DRAFTS, METHODS, RECOVERED, as_key
from otm.errors import InvalidInputError, InvalidParameterError
from otm.problem import Problem

THRESHOLD = 0.9
"""Coins below it point at the list of drafts, if nothing else is said."""

Floats = npt.NDArray[np.float64]


class Detection(NamedTuple):
    """How early the clocks of a text are.

    Attributes
    ----------
    score : float
        Sum of −ln u over the clocks that were read; u is uniform if the text knows nothing of the
        key, and small if it was generated with it.
    clocks : int
        Number n of clocks that were read; without the key the score is Gamma(n), with mean n.
    p_value : float
        Probability that a text independent of the key has this score or more.

    Examples
    --------
    >>> detect_watermark([1, 0, 1, 1], key=7, start=1).clocks
    4
    """

    score: float
    clocks: int
    p_value: float


def detect_watermark(
    tokens: Sequence[int],
    key: int,
    start: int,
    *,
    method: str = "coupled",
    lists: int = 1,
    threshold: float | None = None,
) -> Detection:
    """Test whether a text was generated with a key, by its tokens alone.

    Parameters
    ----------
    tokens : sequence of int [n]
        Token ids of the text, without its prompt.
    key : int
        The key, from 0 to 2^64 − 1.
    start : int
        Position of the first token: the number of tokens of the prompt.
    method : {"coupled", "rejection", "keyed rejection"}, optional
        How it would have been generated.  By "rejection" the clocks of both lists are read, with
        keyed coins that of the list that the coin points at.  "coupled" with one list reads that of
        drafts: where most drafts are accepted, it is the better test for "rejection", too.
    lists : int, optional
        Number of lists of `decode_coupled`; the earliest clock of a token is read.
    threshold : float, optional
        Of keyed rejection: coins below it point at the list of drafts, 0.9 if left out.  With 1 the
        coins are not looked at.

    Returns
    -------
    Detection
        Score, number of clocks and p-value, which is uniform for any text that is independent of
        the key.

    Raises
    ------
    InvalidInputError
        If there is no token, or tokens are no flat sequence of whole numbers of at least 0.
    InvalidParameterError
        If a number is outside its range, or belongs to another method.
    InvalidDraftCountError
        If `lists` is not an integer of at least 1.
    UnknownMethodError
        If there is no such method.

    References
    ----------
    .. [aaronson2022] Aaronson, "My AI Safety Lecture for UT Effective Altruism", 2022.
    .. [he2026] He, Li, Shen, Su and Long, "Improve the Trade-off Between Watermark Strength and
       Speculative Sampling Efficiency for Language Models", ICLR 2026, arXiv 2602.01428.

    Examples
    --------
    >>> from otm.coupled import decode_watermarked
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> [text] = decode_watermarked(target, draft, [[0]], key=7, max_tokens=200).sequences
    >>> for key in (7, 8):
    ...     print(f"{detect_watermark(text, key, start=1).p_value:.1g}")
    2e-10
    0.9
    """
    # scipy takes its time to load, and generation does without it
    from scipy.special import gammaincc

    check_name("watermark", method, METHODS)
    text, first = _as_text(tokens), as_integer(start, "start", 0, 2**63)
    number = as_draft_count(lists)
    limit = _as_threshold(threshold)
    if number > 1 and method != "coupled":
        raise InvalidParameterError(f"lists = {number} for {method}; coupled decoding alone has it")
    if threshold is not None and method != "keyed rejection":
        raise InvalidParameterError(
            f"threshold = {limit} for {method}; only keyed rejection has coins that point at lists"
        )
    clocks = SharedClocks(as_key(key), number)
    score, count = 0.0, len(text)
    for position, token in enumerate(text, first):
        if method == "coupled":
            least = min(clocks.uniform(position, m, token) for m in range(number))
            # the least of K uniforms u is below v with probability 1 − (1 − v)^K
            score -= math.log(-math.expm1(number * math.log1p(-least)))
            continue
        drafted = method == "rejection" or clocks.uniform(position, COINS, 0) < limit
        recovered = method == "rejection" or not drafted
        if drafted:
            score -= math.log(clocks.uniform(position, DRAFTS, token))
        if recovered:
            score -= math.log(clocks.uniform(position, RECOVERED, token))
    count *= 1 + (method == "rejection")
    return Detection(score, count, float(gammaincc(count, score)))


class WatermarkLaw(NamedTuple):
    """What a watermark is worth for one token, on the mean over keys.

    Attributes
    ----------
    acceptance : float
        Probability that a draft is accepted.
    strength : float
        Information of the key about the token in nats, E KL(law given the key ‖ target), the
        strength of [he2026]_: what a detector can use that knows the models, too.
    score : float
        Mean score of the token in `detect_watermark`, which knows the key alone.
    clocks : int
        Mean score of a token that knows nothing of the key: the clocks that are read.

    Examples
    --------
    >>> watermark_laws([0.5, 0.5], [0.5, 0.5])["coupled"].score  # H(2)
    1.5
    """

    acceptance: float
    strength: float
    score: float
    clocks: int


def watermark_laws(
    draft_probs: npt.ArrayLike, target_probs: npt.ArrayLike, *, threshold: float | None = None
) -> dict[str, WatermarkLaw]:
    """Compute acceptance and detectability of each watermark, of a token that is drafted once.

    Parameters
    ----------
    draft_probs, target_probs : array-like [n]
        Distributions of draft and target.
    threshold : float, optional
        As for `detect_watermark`.

    Returns
    -------
    dict of str to WatermarkLaw
        By method.

    Raises
    ------
    InvalidDistributionError
        If the two are no distributions on one vocabulary.
    InvalidParameterError
        If the threshold is outside [0, 1].

    References
    ----------
    .. [he2026] He, Li, Shen, Su and Long, "Improve the Trade-off Between Watermark Strength and
       Speculative Sampling Efficiency for Language Models", ICLR 2026, arXiv 2602.01428.

    Examples
    --------
    >>> for method, law in watermark_laws([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]).items():
    ...     print(f"{method}: {law.acceptance:.2f} accepted, score {law.score - law.clocks:+.2f}")
    coupled: 0.70 accepted, score +0.79
    rejection: 0.75 accepted, score +0.58
    keyed rejection: 0.75 accepted, score +0.54
    """
    problem = Problem(draft_probs, target_probs, 1)
    p, q = (np.asarray(probs, dtype=np.float64) for probs in (problem.draft, problem.target))
    limit = _as_threshold(threshold)
    both, left = np.minimum(p, q), np.maximum(q - p, 0)
    ratio = np.divide(both, p, out=np.ones_like(p), where=p > 0)  # a draft is accepted with it
    rejected = float(left.sum())
    residual = left / rejected if rejected else left
    of_draft, of_target, of_residual = map(mean_score, (p, q, residual))
    late = late_score(p)
    entropy = float(_surprise(q).sum())
    coins = float((p * (_surprise(ratio) + _surprise(1 - ratio))).sum())
    both_lists = (both * (of_draft + 1) + left * (late + of_residual)).sum()
    # keyed coins: accepted and rejected ones below the threshold, and above it
    low, high = np.minimum(ratio, limit), np.maximum(ratio, limit)
    accepted_score = (p * (low * of_draft + (ratio - low))).sum()
    low_rejected, high_rejected = (p * (limit - low)).sum(), (p * (1 - high)).sum()
    rejected_score = (residual * (low_rejected * late + high_rejected * of_residual)).sum()
    most = float(both.sum())
    return {
        "coupled": WatermarkLaw(
            float(ListCoupling(problem).acceptance), entropy, float((q * of_target).sum()), 1
        ),
        "rejection": WatermarkLaw(most, entropy - coins, float(both_lists), 2),
        "keyed rejection": WatermarkLaw(most, entropy, float(accepted_score + rejected_score), 1),
    }


def mean_score(probs: Floats) -> Floats:
    """Mean score H(1/p) of tokens that are drawn with these probabilities; 0 where it is 0."""
    from scipy.special import digamma

    positive = probs > 0
    inverse = 1 / np.maximum(probs, 1e-300)  # beyond it a score is no float, and never counts
    return np.where(positive, digamma(1 + inverse) + np.euler_gamma, 0.0)


def late_score(probs: Floats) -> Floats:
    """Mean score of tokens that were not drawn, below 1: their clocks are late."""
    drawn = probs * mean_score(probs)  # as the mean over both cases is 1
    return np.divide(1 - drawn, 1 - probs, out=np.ones_like(probs), where=probs < 1)


def _surprise(probs: Floats) -> Floats:
    """Terms −p ln p of an entropy, in nats."""
    return -probs * np.log(probs, out=np.zeros_like(probs), where=probs > 0)


def _as_threshold(threshold: Any) -> float:
    return THRESHOLD if threshold is None else as_real(threshold, "threshold", least=0, most=1)


def _as_text(tokens: Any) -> list[int]:
    """Return tokens of a text, at least one."""
    values: npt.NDArray[Any] | None
    try:
        values = as_array(tokens, "the text", InvalidInputError)
    except Exception:  # whatever foreign objects raise
        values = None
    if values is None or values.ndim != 1 or not values.size or values.dtype.kind not in "iu":
        raise InvalidInputError(
            f"the tokens are {shown(tokens)}; give the token ids of one text, at least one, as a "
            "flat sequence of whole numbers"
        )
    text: list[int] = values.tolist()
    if min(text) < 0:
        raise InvalidInputError(f"token {min(text)} in the text; token ids are at least 0")
    return text
