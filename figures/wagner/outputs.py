"""Computed output distributions of a step if other weights replace probabilities.

A draft x is sampled from the draft model and accepted with probability min(1, t(x) / d(x)).  A
rejected draft is replaced by a token drawn ∝ max(t − d, 0).  After the last draft a token is drawn
∝ t.  With softmax, t and d are the probabilities of target and draft, and the output follows the
target.  With σ((z − α) / (β − α)) of a logit z, as in Wagner et al. 2024, section 3.2.2, it does
not.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from figures.shipped_pairs import logits_at, prompts_of_text, texts_of_target
from otm._core.optional import require

SOFTMAX = "softmax"
"""Name of the exact method, used in place of a scale."""

PROMPT = 64
Array = npt.NDArray[np.float64]


class Outputs(NamedTuple):
    """Outcome of one draft in each of R contexts."""

    accepted: Array  # [R], acceptance probability of the draft
    matched: Array  # [R], probability that the output is the draft, accepted or drawn again
    token: Array  # [R, V], distribution of the output in place of the draft
    after: Array  # [R, V], distribution of the bonus token


def weights(logits: Array, scale: float | str, dtype: str) -> Array:
    """Compute weights that replace probabilities, with every operation rounded to a type.

    Parameters
    ----------
    logits : float64 array [R, V]
        Logits of one model.
    scale : float or "softmax"
        Scale β = −α of the sigmoid, or "softmax".
    dtype : {"float16", "float32", "float64"}
        Type of logits, scales and results.

    Returns
    -------
    float64 array [R, V]
        The weights, or NaN if the type overflows: 10^5 is infinite in float16.

    Examples
    --------
    >>> weights(np.array([[0.0, 2.0]]), 1e4, "float32").round(6)
    array([[0.622459, 0.622483]])
    >>> weights(np.array([[0.0, 2.0]]), 1e5, "float16")
    array([[nan, nan]])
    """
    torch = require("torch")
    scores = torch.from_numpy(logits).to(getattr(torch, dtype))
    if scale == SOFTMAX:
        return np.asarray(scores.softmax(-1).double())
    high = torch.tensor(float(scale)).to(
        scores.dtype
    )  # infinite if the scale is too large for the type
    low = -high
    return np.asarray(torch.sigmoid((scores - low) / (high - low)).double())


def outputs(drawn: Array, target: Array, draft: Array) -> Outputs:
    """Compute the output distributions of a step in float64.

    `drawn` [R, V] is the distribution of the drafts; `target` and `draft` are results of `weights`.
    NaN in the weights gives NaN in the results.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # The test is u · d < t, so acceptance is certain if d = 0 and t > 0.
        ratio = np.where(draft == 0, target > 0, np.minimum(target / draft, 1))
        kept = drawn * ratio
        left = np.maximum(target - draft, 0)
        left = np.where(left.sum(1, keepdims=True) == 0, target, left)
        accepted = kept.sum(1)
        again = left / left.sum(1, keepdims=True)
        token = kept + (1 - accepted)[:, None] * again
        matched = accepted + ((drawn - kept) * again).sum(1)
    return Outputs(accepted, matched, token, target / target.sum(1, keepdims=True))


def distance(probs: Array, exact: Array) -> Array:
    """Return the TV distances of distributions [R, V] from the exact ones."""
    return np.asarray(np.abs(probs - exact).sum(1) / 2)


@cache
def logits_at_contexts(
    names: tuple[str, ...], prompts: int, tokens: int, seed: int
) -> tuple[dict[str, Array], npt.NDArray[np.int64]]:
    """Return logits of models at every token of texts of the target, and the prompt numbers.

    Logits are arrays [prompts · tokens, V] by model; prompt numbers are [prompts · tokens].  The
    seed determines the target's texts.
    """
    texts = texts_of_target(prompts_of_text(prompts, PROMPT), tokens, seed=seed)
    scores = {name: logits_at(name, texts, PROMPT) for name in names}
    flat = {name: logits.reshape(-1, logits.shape[-1]) for name, logits in scores.items()}
    return flat, np.repeat(np.arange(prompts), tokens)
