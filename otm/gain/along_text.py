"""Expected accepted drafts along a text of the target, differentiable: what to train a draft for.

Let c_i = Π_{j≤i} p(x_j)/q(x_j) for the tokens x_1, …, x_γ that the target drew after a context, p
the draft's probabilities there and q the target's.  Chain verification accepts the first i of γ
drafts with probability

    Σ Π_j min(p(x_j), q(x_j)) = E Π_{j≤i} min(1, p(x_j)/q(x_j)),

with the sum over all paths, and block verification with Σ q(x_1 … x_i) min_{j≤i} c_j =
E min_{0≤j≤i} c_j.  Both are means over texts of the target, which do not depend on the draft: their
gradients are those of what stands in the mean, and no drafts need to be drawn.  The last token of
each path is summed over instead of taken from the text, which lowers the variance:

    chain  Π_{j<i} min(1, p(x_j)/q(x_j)) α_1          block  Σ_v min(u q(v), c_{i−1} p(v))

with u = min_{0≤j<i} c_j.  Each term of the second is concave in p after one path, as α_1 is.
"""

from __future__ import annotations

from typing import Any

from otm._core.numbers import as_integer, check_name
from otm._core.optional import require
from otm._core.tensors import is_tensor
from otm.errors import InvalidDistributionError, InvalidInputError

RULES = ("chain", "block")

CLOSE, LOOSE = 1e-4, 2e-2
"""How far probabilities may sum from one: rounding of float32, and of bfloat16."""

LARGEST = 80.0
"""Logarithm of the largest factor of a draft's probabilities."""


def accepted_along_text(
    draft_probs: Any,
    target_probs: Any,
    tokens: Any,
    gamma: int,
    *,
    rule: str = "block",
    validate: bool = True,
) -> Any:
    """Estimate how many drafts a step accepts from each position of a text of the target.

    The mean over texts that the target drew is the expected number, without bias, and so is its
    gradient: a draft model can be trained for it (docs/train-a-draft.md).

    Parameters
    ----------
    draft_probs, target_probs : float tensors [..., L, V]
        Probabilities of each model for each token of a text, given those before it; the gradient
        goes to the draft's.
    tokens : int64 tensor [..., L]
        The text, drawn from `target_probs`.  Along any other text the estimate is biased.
    gamma : int
        Number of drafts γ of a step, from 1 to L.
    rule : {"chain", "block"}, optional
        Accept drafts up to the first that is rejected ([leviathan2023]_, Algorithm 1), or verify
        them together ([sun2024block]_).
    validate : bool, optional
        Whether to check probabilities, and that the target can draw the tokens, which waits for the
        device.

    Returns
    -------
    tensor [..., L − γ + 1]
        Accepted drafts of a step that begins at each position with all its drafts within the text;
        tokens of a step are one more.

    Raises
    ------
    InvalidInputError
        If these are no tensors of such shapes and types.
    InvalidParameterError
        If γ is not an integer from 1 to L.
    UnknownMethodError
        If there is no such rule.
    InvalidDistributionError
        If these are no probabilities, or the target gives a token of the text none.
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
    >>> torch.cat(values)  # its mean with the probabilities of the texts is 11/9
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
            "the target gives a token of the text probability 0; give the text that was drawn from "
            "these probabilities"
        )
    least = torch.finfo(of_draft.dtype).tiny  # whose logarithm is finite
    logs = of_draft.clamp(min=least).log() - of_target.clamp(min=least).log()
    accepted = _chain if rule == "chain" else _block
    return accepted(draft_probs, target_probs, logs, gamma)


def _chain(p: Any, q: Any, logs: Any, gamma: int) -> Any:
    """Sum over i of Π_{j<i} min(1, p(x_j)/q(x_j)) α_1 at i."""
    starts = logs.shape[-1] - gamma + 1
    alpha, kept = p.minimum(q).sum(-1), logs.clamp(max=0).exp()
    accepted = alpha[..., gamma - 1 :]
    for i in range(gamma - 2, -1, -1):  # from the last draft to the first
        accepted = alpha[..., i : i + starts] + kept[..., i : i + starts] * accepted
    return accepted


def _block(p: Any, q: Any, logs: Any, gamma: int) -> Any:
    """Sum over i of Σ_v min(u q(v), c p(v)), c and u being those of the path before i."""
    starts = logs.shape[-1] - gamma + 1
    log_c = log_u = logs.new_zeros(1).expand_as(logs[..., :starts])
    accepted = 0
    for i in range(gamma):
        here = slice(i, i + starts)
        u, c = log_u.exp(), log_c.clamp(max=LARGEST).exp()  # beyond it u q is less at any p
        masses = (u[..., None] * q[..., here, :]).minimum(c[..., None] * p[..., here, :])
        accepted = accepted + masses.sum(-1)
        log_c = log_c + logs[..., here]
        log_u = log_u.minimum(log_c)
    return accepted


def _check(torch: Any, draft: Any, target: Any, tokens: Any) -> None:
    """Refuse what are no probabilities [..., L, V] and tokens [..., L] of one text."""
    given = ("draft_probs", draft), ("target_probs", target), ("tokens", tokens)
    for name, tensor in given:
        if not is_tensor(tensor):
            raise InvalidInputError(f"{name} is a {type(tensor).__name__}; give a torch tensor")
    for name, tensor in given[:2]:
        if not tensor.is_floating_point() or tensor.dtype != draft.dtype:
            raise InvalidInputError(f"{name} has {tensor.dtype}; both must have one type of floats")
    if draft.dtype == torch.float16:
        raise InvalidInputError(
            "the probabilities are of torch.float16, in which gradients overflow; give "
            "logits.float().softmax(-1)"
        )
    shapes = [tuple(tensor.shape) for _, tensor in given]
    if shapes[0] != shapes[1] or shapes[0][:-1] != shapes[2] or not shapes[2]:
        raise InvalidInputError(
            f"probabilities {shapes[0]} and {shapes[1]} for tokens {shapes[2]}; give [..., L, V] "
            "twice and [..., L]"
        )
    if tokens.dtype != torch.int64:
        raise InvalidInputError(f"tokens have {tokens.dtype}; give int64")
