"""The ways to decode a batch of prompts: each is the loop with one drafter and one verifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from otm.coupling.rules import RULES, Rule
from otm.decoding.branching import Branching
from otm.decoding.drafting import Drafter, ModelDrafter
from otm.decoding.loop import Options, Prompts, stream
from otm.decoding.models.base import LanguageModel
from otm.decoding.policies import GammaPolicy
from otm.decoding.standardize import Standardization
from otm.decoding.trace import Generation, Step
from otm.decoding.verification import Verifier, spectr_verifier, verify_chain, verify_traversal
from otm.errors import InvalidParameterError, UnknownMethodError

__all__ = ["autoregressive", "spectr", "speculative", "verifier_of"]

CHAIN_VERIFIERS = {"chain": verify_chain, "block": verify_traversal}
"""How a chain is judged; on a chain, traversal verification is block verification."""


def autoregressive(
    target: LanguageModel, prompts: Prompts, **options: Unpack[Options]
) -> Generation:
    """Decode without drafts, one token for each run of the target model.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    **options
        See `Options`.

    Returns
    -------
    Generation
        The new tokens, and all steps.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        As for `stream`.

    Examples
    --------
    >>> from otm.decoding.models import TableModel
    >>> model = TableModel({(): [0, 1, 0], (1,): [0.25, 0.25, 0.5]})
    >>> autoregressive(model, [[0], [2]], max_tokens=4, end=2, seed=0).sequences
    ((1, 1, 2), (1, 0, 1, 1))
    """
    return _collect(prompts, stream(target, prompts, gamma=0, **options))


def speculative(
    target: LanguageModel,
    draft: LanguageModel | Drafter,
    prompts: Prompts,
    *,
    gamma: int | GammaPolicy = 5,
    verification: str = "chain",
    draft_sampling: Standardization | None = None,
    **options: Unpack[Options],
) -> Generation:
    """Decode with one chain of drafts in each step ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel or Drafter
        A cheaper model on the same vocabulary, or anything that drafts a chain.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    gamma : int or GammaPolicy, optional
        Number of drafts γ of a step.
    verification : {"chain", "block"}, optional
        Accept drafts up to the first that is rejected (Algorithm 1), or judge them together, which
        accepts at least as much on average ([sun2024block]_).
    draft_sampling : Standardization, optional
        How to sample from the draft model, if not as from the target.
    **options
        See `Options`.

    Returns
    -------
    Generation
        The new tokens, whose law is that of `autoregressive`, and all steps.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        As for `stream`.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.

    Examples
    --------
    >>> from otm.decoding.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> generation = speculative(target, draft, [[0]], gamma=3, max_tokens=1000, seed=0)
    >>> 2.5 < generation.block_efficiency < 3  # 1 + α + α² + α³ = 2.73 for α = 3/4
    True
    """
    if verification not in CHAIN_VERIFIERS:
        raise UnknownMethodError(
            f"there is no verification {verification!r}; there are {', '.join(CHAIN_VERIFIERS)}"
        )
    verifier = CHAIN_VERIFIERS[verification]
    drafter = _as_drafter(draft, 1, draft_sampling, options)
    return _collect(prompts, stream(target, prompts, drafter, verifier, gamma=gamma, **options))


def spectr(
    target: LanguageModel,
    draft: LanguageModel | Drafter,
    prompts: Prompts,
    *,
    k: Branching = 8,
    gamma: int | GammaPolicy = 5,
    rule: str | Rule = "k-Seq",
    draft_sampling: Standardization | None = None,
    **options: Unpack[Options],
) -> Generation:
    """Decode with K chains, or a prefix tree, of drafts in each step ([sun2023]_, Algorithm 3).

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel or Drafter
        A cheaper model on the same vocabulary, or anything that drafts i.i.d. at every node.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    k : int or tuple of int, optional
        Number K of chains, or the numbers of children (k_1, …, k_L) at the levels of a prefix tree
        ([sun2023]_, Algorithm 4), which is then at most L deep.  A drafter that is given has its
        own.
    gamma : int or GammaPolicy, optional
        Length of the chains, or depth of the tree.
    rule : str or callable, optional
        How one of the drafts of a node is selected: a name in `otm.coupling.RULES`, such as "k-Seq"
        or "optimal"; a function from a `MembershipProblem` to a plan, such as a lenient one; or
        "traversal", which judges whole paths, from the leaves to the root ([weng2025]_).
    draft_sampling : Standardization, optional
        How to sample from the draft model, if not as from the target.
    **options
        See `Options`.

    Returns
    -------
    Generation
        The new tokens, whose law is that of `autoregressive` if the rule is lossless, and all
        steps.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.
    InvalidInputError, InvalidParameterError
        As for `stream`, and if the rule is for drafts that are not independent.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023.
    .. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.

    Examples
    --------
    >>> from otm.decoding.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> generation = spectr(target, draft, [[0]], k=4, gamma=3, max_tokens=1000, seed=0)
    >>> 3.2 < generation.block_efficiency < 3.6
    True
    """
    verifier = verifier_of(rule)
    drafter = _as_drafter(draft, k, draft_sampling, options)
    return _collect(prompts, stream(target, prompts, drafter, verifier, gamma=gamma, **options))


def verifier_of(rule: str | Rule) -> Verifier:
    """Return the verifier of trees that a name, or a rule, stands for.

    Raises
    ------
    UnknownMethodError
        If there is no rule of this name.
    """
    if not isinstance(rule, str):
        return spectr_verifier(rule)
    if rule == "traversal":
        return verify_traversal
    if rule not in RULES:
        raise UnknownMethodError(
            f"there is no rule {rule!r}; there are traversal, {', '.join(RULES)}"
        )
    return spectr_verifier(RULES[rule])


def _collect(prompts: Prompts, steps: Iterator[Step]) -> Generation:
    made = tuple(steps)
    return Generation(tuple(tuple(map(int, prompt)) for prompt in prompts), made)


def _as_drafter(
    draft: LanguageModel | Drafter,
    branching: Branching,
    sampling: Standardization | None,
    options: Options,
) -> Drafter:
    if isinstance(draft, Drafter):
        if sampling is not None:
            raise InvalidParameterError(
                "`draft_sampling` is given beside a drafter, which has its own; give it there"
            )
        return draft
    return ModelDrafter(draft, branching, sampling or options.get("sampling"))
