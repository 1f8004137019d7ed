"""SpecTr's recursion (Algorithm 3) over K chains of drafts, one sequence after another.

This is the definition that the faster versions are compared with, decision for decision.  On object
arrays of `fractions.Fraction` the same code is exact.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from otm.kernels.definition import extend, laws_from_logits, locate, mass
from otm.kernels.k_seq_definition import k_seq
from otm.kernels.levels_definition import levels
from otm.kernels.multi_draft_checks import check_drafts, coins_of

__all__ = ["DraftsResult", "verify_drafts", "verify_drafts_from_logits"]

Array = TypeVar("Array")

CHOOSE = {"k-seq": k_seq, "levels": levels}


class DraftsResult(NamedTuple, Generic[Array]):
    """Outcome of the verification of K chains of at most γ drafts for each of B sequences.

    Attributes
    ----------
    tokens : int64 array [B, γ + 1]
        The accepted drafts, then the one token drawn from the residual or the bonus row, then −1.
    accepted : int64 array [B]
        Number of accepted drafts, so that `accepted + 1` tokens are output.
    chain : int64 array [B]
        The first chain that begins with the accepted drafts: the one whose cache is kept.
    """

    tokens: Array
    accepted: Array
    chain: Array


def verify_drafts(
    target_probs: npt.NDArray[Any],
    draft_probs: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    *,
    rule: str = "k-seq",
    validate: bool = True,
) -> DraftsResult[npt.NDArray[np.int64]]:
    """Accept drafts position by position, each time among the chains that agree so far.

    At each position a rule looks at the drafts of those chains that begin with the accepted tokens.
    If it accepts one, all of them that have this token go on; if not, a token of the residual ends
    the output; and when no chain has a draft left, a token of the target's next row does.  The
    output has the law of the target model ([sun2023]_, Theorem 2).  For K = 1 this is chain
    verification.

    Parameters
    ----------
    target_probs : array [B, K, γ + 1, V]
        The target model's law at each position of each chain; float16, float32, float64 or
        fractions.  Where chains begin alike, so do their laws: those of the first that has a draft
        there are read, and nothing beyond a chain's end is.
    draft_probs : array [B, K, γ, V']
        The laws that the drafts were sampled from, V' ≤ V: tokens beyond V' have probability 0.
    draft_tokens : int array [B, K, γ]
        The chains, sampled independently; the first −1 ends one.  Lengths must not depend on
        tokens.
    uniforms : float64 array [B, γK + 2], or [B, γ(2K + 1) + 2] for the rule "levels"
        Independent, in [0, 1): the rule's coins for each position, one uniform for the residual,
        one for the bonus.
    rule : {"k-seq", "levels"}, optional
        `k_seq` (SpecTr Algorithm 2), or `levels`, which accepts nearly as much as is possible.
    validate : bool
        Whether to look at all numbers first.  Without it shapes and types are not checked either,
        and NaN and laws that do not sum to one give some token of the vocabulary.

    Returns
    -------
    DraftsResult
        Tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

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
    For K drafts at a single node let γ = 1; laws that the chains share can be broadcast.

    Laws are not normalised.  With sums D of a draft law and T of a target law, the law of an output
    token was measured to be at most abs(D − 1) + abs(T − 1) away from the target (TV).

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023, Algorithm 3.

    Examples
    --------
    >>> target = np.array([[0.5, 0.5], [0.1, 0.9]])[None, None].repeat(2, axis=1)
    >>> draft = np.array([[0.9, 0.1]])[None, None].repeat(2, axis=1)
    >>> tokens, uniforms = np.array([[[0], [1]]]), np.array([[0.6, 0.3, 0.5, 0.5]])
    >>> verify_drafts(target, draft, tokens, uniforms)
    DraftsResult(tokens=array([[1, 1]]), accepted=array([1]), chain=array([1]))
    """
    if validate:
        check_drafts(np, target_probs, draft_probs, draft_tokens, uniforms, rule=rule)
    batch, _, gamma = draft_tokens.shape
    tokens = np.full((batch, gamma + 1), -1, dtype=np.int64)
    accepted = np.zeros(batch, dtype=np.int64)
    chain = np.zeros(batch, dtype=np.int64)
    for b in range(batch):
        given = (target_probs[b], draft_probs[b], draft_tokens[b], uniforms[b])
        output, chain[b] = _verify_one(*given, rule)
        tokens[b, : len(output)] = output
        accepted[b] = len(output) - 1
    return DraftsResult(tokens, accepted, chain)


def verify_drafts_from_logits(
    target_logits: npt.NDArray[Any],
    draft_logits: npt.NDArray[Any],
    draft_tokens: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    temperature: float | npt.NDArray[Any] = 1.0,
    *,
    rule: str = "k-seq",
    validate: bool = True,
) -> DraftsResult[npt.NDArray[np.int64]]:
    """`verify_drafts` for logits: the laws are softmax(logits / temperature), in float64.

    The drafts must have been sampled from that law: at the same temperature, after the same top-k
    or top-p (tokens left out have logit −inf), and not in lower precision than float32.

    Parameters
    ----------
    target_logits : array [B, K, γ + 1, V]
        Logits of the target model; float16, float32 or float64, −inf for impossible tokens.
    draft_logits : array [B, K, γ, V']
        Logits of the draft model, V' ≤ V.
    draft_tokens, uniforms, rule, validate
        As for `verify_drafts`.
    temperature : float or float array [B]
        Of both models, for each sequence.  0 means greedy: a draft is accepted if it has the
        target's largest logit, the first if there are several, and draft logits are not looked at.
        The chains of a greedy sequence are alike; where they differ, the first of them counts.

    Returns
    -------
    DraftsResult
        Tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    InvalidDistributionError
        If logits have wrong shapes or types, hold NaN or +inf, or a row is −inf everywhere.
    InvalidParameterError
        If a temperature is negative or not finite, or there is not one for each sequence.
    InvalidDraftsError, InvalidUniformsError
        As for `verify_drafts`.

    Examples
    --------
    >>> target = np.array([[0.0, 2.0], [1.0, 0.0]])[None, None].repeat(2, axis=1)
    >>> given = (target, target[:, :, :1], np.array([[[1], [1]]]), np.zeros((1, 4)))
    >>> verify_drafts_from_logits(*given, temperature=0)
    DraftsResult(tokens=array([[1, 0]]), accepted=array([1]), chain=array([0]))
    """
    if validate:
        check_drafts(
            np,
            target_logits,
            draft_logits,
            draft_tokens,
            uniforms,
            rule=rule,
            logits=True,
            temperature=temperature,
        )
    target, draft = laws_from_logits(target_logits, draft_logits, draft_tokens, temperature)
    assert draft is not None, "of logits, a law"
    return verify_drafts(target, draft, draft_tokens, uniforms, rule=rule, validate=False)


def _verify_one(
    target: npt.NDArray[Any],
    draft: npt.NDArray[Any],
    drafts: npt.NDArray[Any],
    uniforms: npt.NDArray[Any],
    rule: str,
) -> tuple[list[int], int]:
    """Output and chain of one sequence: [K, γ + 1, V], [K, γ, V'], [K, γ], uniforms."""
    count, gamma = drafts.shape
    size = coins_of(rule, count)
    for_residual, for_bonus = uniforms[gamma * size :]
    agree = np.ones(count, dtype=bool)
    output: list[int] = []
    for i in range(gamma):
        running = np.where(agree, drafts[:, i], -1)
        if (running < 0).all():
            break
        c = int((running >= 0).argmax())  # a chain that has ended has no law here
        wanted = target[c, i]
        coins = uniforms[i * size : (i + 1) * size]
        index, residual = CHOOSE[rule](wanted, extend(draft[c, i], wanted), running, coins)
        if index < 0:
            return [*output, locate(residual, for_residual)], int(agree.argmax())
        output.append(int(running[index]))
        agree = running == running[index]
    first = int(agree.argmax())
    return [*output, locate(mass(target[first, len(output)]), for_bonus)], first
