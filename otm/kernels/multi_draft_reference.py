"""SpecTr's recursion over K chains of drafts in plain torch, batched.

It never waits for the device.  All that is added up is added as whole numbers, hence the decisions
are those of `otm.kernels.multi_draft_definition` bit for bit, on every device and in every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm.kernels.k_seq_reference import k_seq
from otm.kernels.levels_reference import levels
from otm.kernels.multi_draft_checks import check_drafts, coins_of
from otm.kernels.multi_draft_definition import DraftsResult
from otm.kernels.reference import import_torch, laws_from_logits, locate, mass, output

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["verify_drafts", "verify_drafts_from_logits"]

CHOOSE = {"k-seq": k_seq, "levels": levels}


def verify_drafts(
    target_probs: Tensor,
    draft_probs: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    *,
    rule: str = "k-seq",
    validate: bool = True,
) -> DraftsResult[Tensor]:
    """Accept drafts position by position, each time among the chains that agree so far.

    Equivalent to `otm.kernels.multi_draft_definition.verify_drafts`, where everything is said, but
    batched.

    Parameters
    ----------
    target_probs : Tensor [B, K, γ + 1, V]
        The target model's laws; float16, bfloat16, float32 or float64, with any strides.
    draft_probs : Tensor [B, K, γ, V']
        The laws that the drafts were sampled from, V' ≤ V.
    draft_tokens : int Tensor [B, K, γ]
        The chains; the first −1 ends one.
    uniforms : float64 Tensor [B, γK + 2], or [B, γ(2K + 1) + 2] for the rule "levels"
        The rule's coins for each position, one uniform for the residual, one for the bonus.
    rule : {"k-seq", "levels"}, optional
        Which draft of a position is accepted.
    validate : bool
        Whether to look at all numbers first, which reads every row and waits for the device.
        Without it nothing is checked, and no input gives a token outside the vocabulary.

    Returns
    -------
    DraftsResult
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.multi_draft_definition.verify_drafts`.
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> import torch
    >>> target = torch.tensor([[0.5, 0.5], [0.125, 0.875]]).expand(1, 2, 2, 2)
    >>> draft = torch.tensor([[0.875, 0.125]]).expand(1, 2, 1, 2)
    >>> uniforms = torch.tensor([[0.6, 0.3, 0.5, 0.5]], dtype=torch.float64)
    >>> verify_drafts(target, draft, torch.tensor([[[0], [1]]]), uniforms)
    DraftsResult(tokens=tensor([[1, 1]]), accepted=tensor([1]), chain=tensor([1]))
    """
    torch = import_torch()
    if validate:
        check_drafts(torch, target_probs, draft_probs, draft_tokens, uniforms, rule=rule)
    batch, most, gamma = draft_tokens.shape
    size = coins_of(rule, most)
    drafts = draft_tokens.long()
    missing = target_probs.shape[3] - draft_probs.shape[3]
    sequences = torch.arange(batch, device=drafts.device)
    places = torch.arange(most, device=drafts.device)

    def first(chosen: Tensor) -> Tensor:
        return torch.where(chosen, places, most - 1).amin(1)

    agree = torch.ones_like(drafts[:, :, 0] if gamma else drafts.sum(2), dtype=torch.bool)
    alive = torch.ones_like(sequences, dtype=torch.bool)
    rejected, accepted = ~alive, torch.zeros_like(sequences)
    masses = mass(target_probs[:, 0, 0])
    for i in range(gamma):
        running = drafts[:, :, i].where(agree, -1)
        drafted = running >= 0
        some = drafted.any(1)
        # a chain that has ended has no draft law here
        chain = torch.where(some, first(drafted), first(agree))
        draft = torch.nn.functional.pad(draft_probs[sequences, chain, i], (0, missing))
        coins = uniforms[:, i * size : (i + 1) * size]
        target = target_probs[sequences, chain, i]
        index, residual = CHOOSE[rule](target, draft, running, coins)
        masses = torch.where(alive[:, None], residual, masses)
        rejected = torch.where(alive, some, rejected)
        alive = alive & (index >= 0)
        accepted = accepted + alive
        taken = running.gather(1, index.clamp(min=0)[:, None])
        agree = torch.where(alive[:, None], running == taken, agree)
    chain = first(agree)
    rows = mass(target_probs[sequences, chain, gamma])
    masses = torch.where(alive[:, None], rows, masses)
    uniform = torch.where(rejected & ~alive, uniforms[:, -2], uniforms[:, -1])
    token = locate(masses, uniform)
    return DraftsResult(output(drafts[sequences, chain], accepted, token), accepted, chain)


def verify_drafts_from_logits(
    target_logits: Tensor,
    draft_logits: Tensor,
    draft_tokens: Tensor,
    uniforms: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    rule: str = "k-seq",
    validate: bool = True,
) -> DraftsResult[Tensor]:
    """`verify_drafts` for logits: the laws are softmax(logits / temperature), in float64.

    Equivalent to `otm.kernels.multi_draft_definition.verify_drafts_from_logits`, where everything
    is said, but batched, and up to the last bit of the exponential function.

    Parameters
    ----------
    target_logits : Tensor [B, K, γ + 1, V]
        Logits of the target model; float16, bfloat16, float32 or float64, −inf for impossible
        tokens.
    draft_logits : Tensor [B, K, γ, V']
        Logits of the draft model, V' ≤ V.
    draft_tokens, uniforms, rule, validate
        As for `verify_drafts`.
    temperature : float or float Tensor [B]
        Of both models, for each sequence; 0 means greedy.

    Returns
    -------
    DraftsResult
        int64 tokens [B, γ + 1], padded with −1, the number of accepted drafts [B], and a chain that
        begins with them [B].

    Raises
    ------
    InvalidDistributionError, InvalidParameterError, InvalidDraftsError, InvalidUniformsError
        As for `otm.kernels.multi_draft_definition.verify_drafts_from_logits`.
    MissingDependencyError
        If torch is not installed.

    Examples
    --------
    >>> import torch
    >>> target = torch.tensor([[0.0, 2.0], [1.0, 0.0]]).expand(1, 2, 2, 2)
    >>> uniforms = torch.zeros(1, 4, dtype=torch.float64)
    >>> given = (target, target[:, :, :1], torch.tensor([[[1], [1]]]), uniforms)
    >>> verify_drafts_from_logits(*given, temperature=0)
    DraftsResult(tokens=tensor([[1, 0]]), accepted=tensor([1]), chain=tensor([0]))
    """
    torch = import_torch()
    if validate:
        check_drafts(
            torch,
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
