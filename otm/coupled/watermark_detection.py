"""Watermark detection with a key: the test, and its mean score in closed form.

A token drawn from a list has a small clock in this list, so its uniform u is small.  If the token
has probability p, its clock is p times an Exp(1) variable, and its score −ln u has the mean H(1/p),
a harmonic number.  The score of a clock independent of the text has the mean H(1) = 1.

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
"""Default threshold; an acceptance uniform below it selects the list of drafts."""

Floats = npt.NDArray[np.float64]


class Detection(NamedTuple):
    """Result of a watermark test.

    Attributes
    ----------
    score : float
        Sum of −ln u over the clocks of the text, where u is the uniform of a clock.  If the text is
        independent of the key, u is uniform on (0, 1); if the key generated the text, u is smaller.
    clocks : int
        Number n of clocks that the test reads.  If the text is independent of the key, the score
        has the distribution Gamma(n), with mean n.
    p_value : float
        Probability that a text independent of the key has at least this score.

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
    """Test whether a key generated a text, from the tokens of the text only.

    Parameters
    ----------
    tokens : sequence of int [n]
        Token ids of the text, without its prompt.
    key : int
        The key, from 0 to 2^64 − 1.
    start : int
        Position of the first token, which is the number of tokens of the prompt.
    method : {"coupled", "rejection", "keyed rejection"}, optional
        Decoding method to test for.  "rejection" reads the clocks of both lists.  "keyed rejection"
        reads the list that the key's acceptance uniform selects.  "coupled" with one list reads the
        list of drafts; if most drafts are accepted, this test detects texts of "rejection" better
        than the test "rejection".
    lists : int, optional
        Number of lists of `decode_coupled`; the test reads the smallest clock of a token.
    threshold : float, optional
        For keyed rejection: acceptance uniforms below it select the list of drafts; 0.9 by default.
        A threshold of 1 makes the test always read the list of drafts.

    Returns
    -------
    Detection
        Score, number of clocks, and p-value; the p-value is uniform for a text that is independent
        of the key.

    Raises
    ------
    InvalidInputError
        If there are no tokens, or they are not a flat sequence of integers of at least 0.
    InvalidParameterError
        If a number is outside its range, or a parameter belongs to another method.
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
    # scipy loads slowly, and generation does not need it.
    from scipy.special import gammaincc

    check_name("watermark", method, METHODS)
    text, first = _as_text(tokens), as_integer(start, "start", 0, 2**63)
    number = as_draft_count(lists)
    limit = _as_threshold(threshold)
    if number > 1 and method != "coupled":
        raise InvalidParameterError(
            f"lists = {number} for {method}; only coupled decoding uses several lists"
        )
    if threshold is not None and method != "keyed rejection":
        raise InvalidParameterError(
            f"threshold = {limit} for {method}; only keyed rejection uses a threshold"
        )
    clocks = SharedClocks(as_key(key), number)
    score, count = 0.0, len(text)
    for position, token in enumerate(text, first):
        if method == "coupled":
            least = min(clocks.uniform(position, m, token) for m in range(number))
            # The minimum of K uniforms is below v with probability 1 − (1 − v)^K.
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


class WatermarkStatistics(NamedTuple):
    """Acceptance and detectability of a watermark for one token, as means over keys.

    Attributes
    ----------
    acceptance : float
        Probability that a draft is accepted.
    strength : float
        Mutual information of key and token in nats, E KL(distribution given the key ‖ target).
        The strength of [he2026]_ is the information for a detector that also knows the models.
    score : float
        Mean score of a token under `detect_watermark`, a detector that knows only the key.
    clocks : int
        Number of clocks that the test reads; it is also the mean score if the token is independent
        of the key.

    Examples
    --------
    >>> watermark_statistics([0.5, 0.5], [0.5, 0.5])["coupled"].score  # H(2)
    1.5
    """

    acceptance: float
    strength: float
    score: float
    clocks: int


def watermark_statistics(
    draft_probs: npt.ArrayLike, target_probs: npt.ArrayLike, *, threshold: float | None = None
) -> dict[str, WatermarkStatistics]:
    """Compute acceptance and detectability of each watermarking method for one drafted token.

    Parameters
    ----------
    draft_probs, target_probs : array-like [n]
        Distributions of draft and target.
    threshold : float, optional
        As for `detect_watermark`.

    Returns
    -------
    dict of str to WatermarkStatistics
        Acceptance and detectability by method.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` and `target_probs` are not distributions on one vocabulary.
    InvalidParameterError
        If the threshold is outside [0, 1].

    References
    ----------
    .. [he2026] He, Li, Shen, Su and Long, "Improve the Trade-off Between Watermark Strength and
       Speculative Sampling Efficiency for Language Models", ICLR 2026, arXiv 2602.01428.

    Examples
    --------
    >>> for method, law in watermark_statistics([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]).items():
    ...     print(f"{method}: {law.acceptance:.2f} accepted, score {law.score - law.clocks:+.2f}")
    coupled: 0.70 accepted, score +0.79
    rejection: 0.75 accepted, score +0.58
    keyed rejection: 0.75 accepted, score +0.54
    """
    problem = Problem(draft_probs, target_probs, 1)
    p, q = (np.asarray(probs, dtype=np.float64) for probs in (problem.draft, problem.target))
    limit = _as_threshold(threshold)
    both, excess = np.minimum(p, q), np.maximum(q - p, 0)
    # Acceptance probability of each draft.
    ratio = np.divide(both, p, out=np.ones_like(p), where=p > 0)
    rejected = float(excess.sum())
    residual = excess / rejected if rejected else excess
    draft_score, target_score, residual_score = map(mean_score, (p, q, residual))
    late = late_score(p)
    entropy = float(_surprise(q).sum())
    coins = float((p * (_surprise(ratio) + _surprise(1 - ratio))).sum())
    both_lists = (both * (draft_score + 1) + excess * (late + residual_score)).sum()
    # With keyed uniforms, split accepted and rejected drafts at the threshold.
    low, high = np.minimum(ratio, limit), np.maximum(ratio, limit)
    accepted_score = (p * (low * draft_score + (ratio - low))).sum()
    low_rejected, high_rejected = (p * (limit - low)).sum(), (p * (1 - high)).sum()
    rejected_score = (residual * (low_rejected * late + high_rejected * residual_score)).sum()
    most = float(both.sum())
    return {
        "coupled": WatermarkStatistics(
            float(ListCoupling(problem).acceptance), entropy, float((q * target_score).sum()), 1
        ),
        "rejection": WatermarkStatistics(most, entropy - coins, float(both_lists), 2),
        "keyed rejection": WatermarkStatistics(
            most, entropy, float(accepted_score + rejected_score), 1
        ),
    }


def mean_score(probs: Floats) -> Floats:
    """Return the mean score H(1/p) of tokens drawn with probabilities p; 0 where p is 0."""
    from scipy.special import digamma

    positive = probs > 0
    # Below 1e-300 the score is not a finite float, and its weight is negligible.
    inverse = 1 / np.maximum(probs, 1e-300)
    return np.where(positive, digamma(1 + inverse) + np.euler_gamma, 0.0)


def late_score(probs: Floats) -> Floats:
    """Return the mean score of tokens that were not drawn, which is below 1."""
    # The mean over drawn and undrawn tokens is 1.
    drawn = probs * mean_score(probs)
    return np.divide(1 - drawn, 1 - probs, out=np.ones_like(probs), where=probs < 1)


def _surprise(probs: Floats) -> Floats:
    """Return the terms −p ln p of an entropy, in nats."""
    return -probs * np.log(probs, out=np.zeros_like(probs), where=probs > 0)


def _as_threshold(threshold: Any) -> float:
    return THRESHOLD if threshold is None else as_real(threshold, "threshold", least=0, most=1)


def _as_text(tokens: Any) -> list[int]:
    """Return the tokens of a text; raise if there are none, or if they are invalid."""
    values: npt.NDArray[Any] | None
    try:
        values = as_array(tokens, "the text", InvalidInputError)
    # A foreign object may raise any error.
    except Exception:
        values = None
    if values is None or values.ndim != 1 or not values.size or values.dtype.kind not in "iu":
        raise InvalidInputError(
            f"the tokens are {shown(tokens)}; give the token ids of one text, at least one, as a "
            "flat sequence of integers"
        )
    text: list[int] = values.tolist()
    if min(text) < 0:
        raise InvalidInputError(f"token {min(text)} in the text; token ids must be at least 0")
    return text
