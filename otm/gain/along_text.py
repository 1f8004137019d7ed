"""Expected number of accepted drafts along a text of the target: a differentiable objective.

Let x_1, …, x_γ be tokens that the target sampled after a context. At each of these tokens let p be
the draft model's distribution and q the target's, and let c_i = Π_{j≤i} p(x_j)/q(x_j). Chain
verification accepts the first i of γ drafts with probability

    Σ Π_j min(p(x_j), q(x_j)) = E Π_{j≤i} min(1, p(x_j)/q(x_j)),

where the sum is over all paths. Block verification accepts the first i drafts with probability
Σ q(x_1 … x_i) min_{j≤i} c_j = E min_{0≤j≤i} c_j. Both probabilities are means over texts of the
target, and the distribution of these texts does not depend on the draft. So the gradient of the
mean is the mean of the gradient, and no drafts need to be sampled. To lower the variance, the
estimate sums over all values of the last token of each path, instead of taking this token from the
text:

    chain  Π_{j<i} min(1, p(x_j)/q(x_j)) α_1          block  Σ_v min(u q(v), c_{i−1} p(v))

with u = min_{0≤j<i} c_j. For a fixed path, each term of the block sum is concave in p, as α_1 is.
"""

from __future__ import annotations

from typing import Any

from otm._core.numbers import as_integer, check_name
from otm._core.optional import require
from otm._core.tensors import is_tensor
from otm.errors import InvalidDistributionError, InvalidInputError

RULES = ("chain", "block")

CLOSE, LOOSE = 1e-4, 2e-2
"""Allowed distance of a sum of probabilities from one, for float32 and for bfloat16."""

LARGEST = 80.0
"""Logarithm of the largest factor that multiplies a draft's probabilities."""


def accepted_along_text(
    draft_probs: Any,
    target_probs: Any,
    tokens: Any,
    gamma: int,
    *,
    rule: str = "block",
    validate: bool = True,
) -> Any:
    """Estimate the number of drafts accepted by steps that begin at each position of a text.

    The text must be sampled from the target. Then the mean of the estimate is the expected number
    of accepted drafts, and the mean of the estimate's gradient is the gradient of this number. So
    the estimate can train a draft model (docs/train-a-draft.md).

    Parameters
    ----------
    draft_probs, target_probs : float tensors [..., L, V]
        Probabilities of each model for each token of a text, conditioned on the tokens before it.
        The gradient flows to `draft_probs`.
    tokens : int64 tensor [..., L]
        The text, sampled from `target_probs`; otherwise the estimate is biased.
    gamma : int
        Number of drafts γ of a step, from 1 to L.
    rule : {"chain", "block"}, optional
        "chain" accepts drafts up to the first rejection ([leviathan2023]_, Algorithm 1). "block"
        verifies all drafts jointly ([sun2024block]_).
    validate : bool, optional
        Whether to check the probabilities, and that each token has a positive target probability.
        The check waits for the device.

    Returns
    -------
    tensor [..., L − γ + 1]
        Number of drafts that a step from each position accepts, if its γ drafts lie within the
        text. The step outputs one token more than it accepts.

    Raises
    ------
    InvalidInputError
        If the arguments are not tensors of these shapes and types.
    InvalidParameterError
        If γ is not an integer from 1 to L.
    UnknownMethodError
        If `rule` is not "chain" or "block".
    InvalidDistributionError
        If the probabilities are invalid, or the target gives a token of the text probability 0.
    MissingDependencyError
        If torch is not installed.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.

    Examples
    --------
    >>> import torch
    >>> p, q = torch.tensor([[2 / 3, 1 / 3]] * 2), torch.tensor([[1 / 3, 2 / 3]] * 2)
    >>> texts = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> values = [accepted_along_text(p, q, text, gamma=2, rule="block") for text in texts]
    >>> torch.cat(values)  # the mean, weighted by the texts' probabilities, is 11/9
    tensor([1.6667, 1.6667, 1.0000, 1.0000])
    """
    torch = require("torch")
    check_name("rule", rule, RULES)
    _check(torch, draft_probs, target_probs, tokens)
    length = tokens.shape[-1]
    gamma = as_integer(gamma, "gamma", 1, length)
    if draft_probs.dtype == torch.bfloat16:
        draft_probs, target_probs = draft_probs.float(), target_probs.float()
        tolerance = LOOSE
    else:
        tolerance = CLOSE
    size = draft_probs.shape[-1]
    if validate:
        if bool((tokens < 0).any() | (tokens >= size).any()):
            raise InvalidInputError(f"a token of the text is not from 0 to {size - 1}")
        for name, probs in (("draft_probs", draft_probs), ("target_probs", target_probs)):
            far = (probs.sum(-1) - 1).abs() <= tolerance
            if not bool(((probs >= 0).all(-1) & far).all()):
                raise InvalidDistributionError(
                    f"{name} are below 0, NaN, or do not sum to one; give probabilities, such as "
                    "logits.softmax(-1)"
                )
    of_draft, of_target = (
        probs.gather(-1, tokens[..., None])[..., 0] for probs in (draft_probs, target_probs)
    )
    if validate and not bool((of_target > 0).all()):
        raise InvalidDistributionError(
            "the target gives a token of the text probability 0; give a text that was sampled from "
            "`target_probs`"
        )
    # the smallest normal number has a finite logarithm
    least = torch.finfo(of_draft.dtype).tiny
    logs = of_draft.clamp(min=least).log() - of_target.clamp(min=least).log()
    accepted = _chain if rule == "chain" else _block
    return accepted(draft_probs, target_probs, logs, gamma)


def _chain(p: Any, q: Any, logs: Any, gamma: int) -> Any:
    """Return the sum over i of Π_{j<i} min(1, p(x_j)/q(x_j)) α_1 at i."""
    starts = logs.shape[-1] - gamma + 1
    alpha, kept = p.minimum(q).sum(-1), logs.clamp(max=0).exp()
    accepted = alpha[..., gamma - 1 :]
    # from the last draft back to the first
    for i in range(gamma - 2, -1, -1):
        accepted = alpha[..., i : i + starts] + kept[..., i : i + starts] * accepted
    return accepted


def _block(p: Any, q: Any, logs: Any, gamma: int) -> Any:
    """Return the sum over i of Σ_v min(u q(v), c p(v)), with c and u of the path before i."""
    starts = logs.shape[-1] - gamma + 1
    log_c = log_u = logs.new_zeros(1).expand_as(logs[..., :starts])
    accepted = 0
    for i in range(gamma):
        here = slice(i, i + starts)
        # above LARGEST, the minimum below is u q for any p
        u, c = log_u.exp(), log_c.clamp(max=LARGEST).exp()
        masses = (u[..., None] * q[..., here, :]).minimum(c[..., None] * p[..., here, :])
        accepted = accepted + masses.sum(-1)
        log_c = log_c + logs[..., here]
        log_u = log_u.minimum(log_c)
    return accepted


def _check(torch: Any, draft: Any, target: Any, tokens: Any) -> None:
    """Raise unless these are probabilities [..., L, V] and tokens [..., L] of one text."""
    given = ("draft_probs", draft), ("target_probs", target), ("tokens", tokens)
    for name, tensor in given:
        if not is_tensor(tensor):
            raise InvalidInputError(f"{name} is a {type(tensor).__name__}; give a torch tensor")
    for name, tensor in given[:2]:
        if not tensor.is_floating_point() or tensor.dtype != draft.dtype:
            raise InvalidInputError(
                f"{name} has {tensor.dtype}; give the probabilities of both models in one float "
                "type"
            )
    if draft.dtype == torch.float16:
        raise InvalidInputError(
            "the probabilities have type torch.float16, in which gradients overflow; give "
            "logits.float().softmax(-1)"
        )
    shapes = [tuple(tensor.shape) for _, tensor in given]
    if shapes[0] != shapes[1] or shapes[0][:-1] != shapes[2] or not shapes[2]:
        raise InvalidInputError(
            f"probabilities {shapes[0]} and {shapes[1]} for tokens {shapes[2]}; give [..., L, V] "
            "for both models and [..., L] for the tokens"
        )
    if tokens.dtype != torch.int64:
        raise InvalidInputError(f"tokens have {tokens.dtype}; give int64")
