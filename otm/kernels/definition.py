"""Chain verification as the papers write it (Leviathan Algorithm 1), one sequence after another.

This is the definition that every faster version is compared with, decision for decision.  On object
arrays of `fractions.Fraction` the same code is exact.

Glossary: of the γ *drafts* of a sequence some are *accepted*, up to the first that is *rejected*;
in its place stands a token of the *residual* law.  If none is rejected, the target model's next
row gives a *bonus* token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from otm.kernels.checks import check_chain

__all__ = ["UNIT", "ChainResult", "verify_chain", "verify_chain_from_logits"]

UNIT = 2.0**61
"""Probabilities are added as whole numbers of this many parts.

A sum of floats depends on the order of its terms, so on a GPU on the device, the number of threads
and the other rows of the batch; a sum of integers does not.  What is rounded down on the way (of
float32 only what is below 2^−38) moves a law by less than V/2^60.  Rows that sum to less than 4
cannot overflow.
"""

Array = TypeVar("Array")


class ChainResult(NamedTuple, Generic[Array]):
    """Outcome of the verification of B chains of at most γ drafts.

    Attributes
    ----------
    tokens : int64 array [B, γ + 1]
        The accepted drafts, then the one token drawn from the residual or the bonus row, then −1.
    accepted : int64 array [B]
        Number of accepted drafts, so that `accepted + 1` tokens are output.
    """

    tokens: Array
    accepted: Array


def verify_chain(
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    validate: bool = True,
) -> ChainResult[npt.NDArray[np.int64]]:
    """Accept drafts one after another, and draw the token that follows the accepted ones.

    Draft x is accepted while u · draft(x) < target(x).  The first that is not is replaced by a
    token drawn ∝ max(target − draft, 0) at its position, or from the target if that is empty (then
    it was rejected by rounding only); if all are accepted, one more token is drawn from the
    target's next row.  The output has the law of the target model ([leviathan2023]_, Theorem in
    appendix A.1).

    Parameters
    ----------
    target_probs : array [B, γ + 1, V]
        The target model's law at each position; float16, float32, float64 or fractions.
    draft_probs : array [B, γ, V'] or None
        The laws that the drafts were sampled from, V' ≤ V: tokens beyond V' have probability 0.
        None if the drafts were not sampled but chosen, so that each law is one-hot.
    draft_tokens : int array [B, γ]
        The drafts; the first −1 ends a chain, so that chains may have any length from 0 to γ.
        What stands in the arrays beyond a chain's end is never looked at.
    uniforms : float64 array [B, γ + 2]
        Independent, in [0, 1): a coin for each draft, one uniform for the residual, one for the
        bonus.  Tokens are located by them in the cumulative distribution, for which 53 bits are
        needed: uniforms of 24 bits are about 10^−3 away from the law (TV) at V = 131,072.
    validate : bool
        Whether to look at all numbers first.  Without it shapes and types are not checked either,
        NaN and laws that do not sum to one give some token of the vocabulary, and a draft of draft
        probability zero is accepted if the target can produce it.

    Returns
    -------
    ChainResult
        Tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError
        If the laws have wrong shapes, types or entries, or do not sum to one.
    InvalidDraftsError
        If the drafts have a wrong shape or type, lie outside the vocabulary, or have draft
        probability zero.
    InvalidUniformsError
        If the uniforms have a wrong shape or type, or do not lie in [0, 1).

    Notes
    -----
    Laws are not normalised, which would take a pass over rows that are not read otherwise.  With
    sums D of a draft law and T of a target law, the law of an output token is at most
    abs(D − T) / max(D, T) away from the target (TV): 10^−6 for a float32 softmax, but up to
    10^−3 for one in half precision.  Give half-precision *logits* to `verify_chain_from_logits`
    instead.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023, Algorithm 1.

    Examples
    --------
    >>> target = np.array([[[0.5, 0.5], [0.1, 0.9]]])
    >>> draft = np.array([[[0.8, 0.2]]])
    >>> verify_chain(target, draft, np.array([[0]]), np.array([[0.6, 0.3, 0.5]]))
    ChainResult(tokens=array([[0, 1]]), accepted=array([1]))
    >>> verify_chain(target, draft, np.array([[0]]), np.array([[0.7, 0.3, 0.5]]))
    ChainResult(tokens=array([[ 1, -1]]), accepted=array([0]))
    """
    if validate:
        check_chain(np, target_probs, draft_probs, draft_tokens, uniforms)
    return one_by_one(_verify_one, target_probs, draft_probs, draft_tokens, uniforms)


def verify_chain_from_logits(
    target_logits: npt.NDArray[Any],
    draft_logits: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any] = 1.0,
    *,
    validate: bool = True,
) -> ChainResult[npt.NDArray[np.int64]]:
    """`verify_chain` for logits: the laws are softmax(logits / temperature), in float64.

    The drafts must have been sampled from that law: at the same temperature, after the same top-k
    or top-p (tokens left out have logit −inf), and not in lower precision than float32.

    Parameters
    ----------
    target_logits : array [B, γ + 1, V]
        Logits of the target model; float16, float32 or float64, −inf for impossible tokens.
    draft_logits : array [B, γ, V'] or None
        Logits of the draft model, V' ≤ V; None for one-hot drafts.
    draft_tokens, uniforms
        As for `verify_chain`.
    temperature : float or float array [B]
        Of both models, for each sequence.  0 means greedy: a draft is accepted if it has the
        target's largest logit, the first if there are several, and draft logits are not looked at.
    validate : bool
        As for `verify_chain`.

    Returns
    -------
    ChainResult
        Tokens [B, γ + 1], padded with −1, and the number of accepted drafts [B].

    Raises
    ------
    InvalidDistributionError
        If logits have wrong shapes or types, hold NaN or +inf, or a row is −inf everywhere.
    InvalidParameterError
        If a temperature is negative or not finite, or there is not one for each sequence.
    InvalidDraftsError, InvalidUniformsError
        As for `verify_chain`.

    Examples
    --------
    >>> target = np.array([[[0.0, 2.0], [1.0, 0.0]]])
    >>> verify_chain_from_logits(target, None, np.array([[1]]), np.zeros((1, 3)), temperature=0)
    ChainResult(tokens=array([[1, 0]]), accepted=array([1]))
    """
    if validate:
        check_chain(
            np,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            logits=True,
            temperature=temperature,
        )
    laws = laws_from_logits(target_logits, draft_logits, draft_tokens, temperature)
    return verify_chain(*laws, draft_tokens, uniforms, validate=False)


def _verify_one(
    target: npt.NDArray[Any],
    draft: npt.NDArray[Any] | None,
    drafts: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
) -> list[int]:
    """Output of one chain: [γ + 1, V], [γ, V'], [γ], [γ + 2] → the tokens, without padding."""
    *coins, for_residual, for_bonus = uniforms
    output: list[int] = []
    for i, x in enumerate(drafts.tolist()):
        if x < 0:
            break
        wanted = target[i]
        offered = one_hot(x, wanted) if draft is None else extend(draft[i], wanted)
        if not coins[i] * offered[x] < wanted[x]:
            left = np.maximum(mass(wanted) - mass(offered), 0)
            return [*output, locate(left if left.any() else mass(wanted), for_residual)]
        output.append(x)
    return [*output, locate(mass(target[len(output)]), for_bonus)]


def one_by_one(
    verify_one: Callable[..., list[int]],
    target: npt.NDArray[Any],
    draft: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
) -> ChainResult[npt.NDArray[np.int64]]:
    """Verify one sequence after another by a function that returns the tokens of one."""
    batch, gamma = draft_tokens.shape
    tokens = np.full((batch, gamma + 1), -1, dtype=np.int64)
    accepted = np.zeros(batch, dtype=np.int64)
    for b in range(batch):
        offered = None if draft is None else draft[b]
        output = verify_one(target[b], offered, draft_tokens[b], uniforms[b])
        tokens[b, : len(output)] = output
        accepted[b] = len(output) - 1
    return ChainResult(tokens, accepted)


def laws_from_logits(
    target_logits: npt.NDArray[Any],
    draft_logits: npt.NDArray[Any] | None,
    draft_tokens: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64] | None]:
    """Laws of target and draft; greedy ones are the first of the largest logits, and the draft."""
    batch, vocabulary = target_logits.shape[0], np.arange(target_logits.shape[-1])
    heat = np.broadcast_to(np.asarray(temperature, dtype=np.float64), (batch,))
    heat = heat.reshape(batch, *(1,) * (target_logits.ndim - 1))
    largest = vocabulary == target_logits.argmax(axis=-1)[..., None]
    target = np.where(heat == 0, largest, _softmax(target_logits, heat))
    draft = None
    if draft_logits is not None:
        drafted = vocabulary[: draft_logits.shape[-1]] == draft_tokens[..., None]
        draft = np.where(heat == 0, drafted, _softmax(draft_logits, heat))
    return target, draft


def one_hot(x: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Law of a draft that was not sampled but chosen."""
    law = np.zeros_like(like)
    law[x] = 1
    return law


def extend(law: npt.NDArray[Any], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Draft law on the target's vocabulary: missing mass is 0."""
    return np.append(law, np.zeros(like.size - law.size, dtype=law.dtype))


def mass(law: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers of parts; fractions stay as they are."""
    return law if law.dtype == object else (law.astype(np.float64) * UNIT).astype(np.int64)


def locate(masses: npt.NDArray[Any], uniform: Any) -> int:
    """Locate a token: the first at which the cumulative mass exceeds uniform · total."""
    cumulative = np.cumsum(masses)
    point = uniform * cumulative[-1]
    if masses.dtype != object:
        point = min(int(point), cumulative[-1] - 1)  # the product can round up to the total
    return int(np.searchsorted(cumulative, point, side="right"))


def _softmax(logits: npt.NDArray[Any], temperature: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Softmax in float64; the largest logit goes first, so that no temperature overflows."""
    with np.errstate(invalid="ignore", over="ignore"):  # in rows beyond a chain's end
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        weights = np.exp(shifted / np.where(temperature == 0, 1, temperature))
    law: npt.NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return law
