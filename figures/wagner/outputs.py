"""What a step outputs where other numbers stand for probabilities: computed, not sampled.

A draft x is sampled from the draft model and accepted with probability min(1, t(x) / d(x)); a
rejected one is replaced by a token drawn ∝ max(t − d, 0); after the last draft a token is drawn
∝ t.  With softmax t and d are the probabilities of target and draft, and the output follows the
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
"""In the place of a scale."""

PROMPT = 64
Array = npt.NDArray[np.float64]


class Outputs(NamedTuple):
    """What becomes of one draft in each of R contexts."""

    accepted: Array  # [R], probability that the draft is accepted
    matched: Array  # [R], that the token in its place is the draft: accepted, or drawn again
    token: Array  # [R, V], distribution of the token in its place
    after: Array  # [R, V], of the token that follows when all drafts are accepted


def weights(logits: Array, scale: float | str, dtype: str) -> Array:
    """Put numbers in the place of probabilities, every operation rounded to a type.

    Parameters
    ----------
    logits : float64 array [R, V]
        Of one model.
    scale : float or "softmax"
        β = −α of the sigmoid.
    dtype : {"float16", "float32", "float64"}
        The type of logits, scales and results.

    Returns
    -------
    float64 array [R, V]
        NaN where the type gives none: 10^5 is infinite in float16.

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
    high = torch.tensor(float(scale)).to(scores.dtype)  # infinite where it is too large
    low = -high
    return np.asarray(torch.sigmoid((scores - low) / (high - low)).double())


def outputs(drawn: Array, target: Array, draft: Array) -> Outputs:
    """Compute what a step outputs, in float64.

    Of what drafts are sampled from [R, V], and of what stands for the probabilities of target and
    draft, from `weights`; where that is NaN, so is the result.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # u · d < t is how it is tested: certain where d is 0 and t is not
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
    """Distances (TV) of distributions [R, V]."""
    return np.asarray(np.abs(probs - exact).sum(1) / 2)


@cache
def logits_at_contexts(
    names: tuple[str, ...], prompts: int, tokens: int, seed: int
) -> tuple[dict[str, Array], npt.NDArray[np.int64]]:
    """Logits of models at every token of texts that the target wrote, and the prompt of each.

    By model an array [prompts · tokens, V], and one array [prompts · tokens]; the seed is that of
    the target's sampling.
    """
    texts = texts_of_target(prompts_of_text(prompts, PROMPT), tokens, seed=seed)
    scores = {name: logits_at(name, texts, PROMPT) for name in names}
    flat = {name: logits.reshape(-1, logits.shape[-1]) for name, logits in scores.items()}
    return flat, np.repeat(np.arange(prompts), tokens)
