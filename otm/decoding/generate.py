"""Functions that decode a batch of prompts: the decoding loop with one drafter and one verifier."""

from __future__ import annotations

from typing import Unpack

from otm.coupling.build import PlanBuilder
from otm.decoding.checks import as_prompts, check_draft, check_models
from otm.decoding.drafters.base import Branching, Drafter
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.loop import DecodingOptions, Prompts, stream
from otm.decoding.policies import GammaPolicy
from otm.decoding.rounds import AnyVerifier
from otm.decoding.sampling_parameters import SamplingParameters, ranking_parameters
from otm.decoding.trace import Generation
from otm.decoding.verifiers.by_rule import RuleVerifier, chain_rule, tree_verifier
from otm.errors import InvalidParameterError
from otm.models.base import LanguageModel
from otm.rules import RULES

CHAINS = 8
"""Default number of chains."""


def autoregressive(
    target: LanguageModel, prompts: Prompts, **options: Unpack[DecodingOptions]
) -> Generation:
    """Decode without drafts: each call of the target model yields one token.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens and all steps.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        As for `stream`.
    InvalidDistributionError, InvalidUniformsError
        While decoding, as for `stream`.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0, 1, 0], (1,): [0.25, 0.25, 0.5]})
    >>> autoregressive(model, [[0], [2]], max_tokens=4, eos_token_id=2, seed=0).sequences
    ((1, 1, 2), (1, 0, 1, 1))
    """
    verifier = RuleVerifier(RULES["chain"])
    return decode(target, prompts, None, verifier, gamma=0, options=options)


def speculative(
    target: LanguageModel,
    draft: LanguageModel | Drafter,
    prompts: Prompts,
    *,
    gamma: int | GammaPolicy = 5,
    rule: str = "chain",
    draft_sampling: SamplingParameters | None = None,
    **options: Unpack[DecodingOptions],
) -> Generation:
    """Decode with one chain of drafts in each step ([leviathan2023]_, Algorithm 1).

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel or Drafter
        A cheaper model with the same vocabulary, or a drafter of chains.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    gamma : int or GammaPolicy, optional
        Number of drafts γ of a step.
    rule : {"chain", "block", "greedy block"}, optional
        "chain" accepts drafts up to the first rejected one (Algorithm 1).  "block" verifies the
        drafts together, and on average accepts at least as many as "chain" ([sun2024block]_).
        "greedy block" accepts more drafts of one block but fewer of a text (`GreedyBlockVerifier`).
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model; by default in the same way as from the target.
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens, with the same distribution as those of `autoregressive`, and all steps.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.
    InvalidInputError, InvalidParameterError
        As for `stream`, and if `draft_sampling` is combined with a drafter.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        While decoding, as for `stream`, and if a drafter returns a tree that is not a chain.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [sun2024block] Sun et al., "Block Verification Accelerates Speculative Decoding", 2024.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> generation = speculative(target, draft, [[0]], gamma=3, max_tokens=1000, seed=0)
    >>> 2.5 < generation.block_efficiency < 3  # 1 + α + α² + α³ = 2.73 for α = 3/4
    True
    """
    verifier = RuleVerifier(chain_rule(rule))
    drafter = as_drafter(draft, 1, draft_sampling, options)
    return decode(target, prompts, drafter, verifier, gamma=gamma, options=options)


def spectr(
    target: LanguageModel,
    draft: LanguageModel | Drafter,
    prompts: Prompts,
    *,
    k: Branching | None = None,
    gamma: int | GammaPolicy = 5,
    rule: str | PlanBuilder | None = None,
    draft_sampling: SamplingParameters | None = None,
    **options: Unpack[DecodingOptions],
) -> Generation:
    """Decode with K chains of drafts, or a prefix tree, in each step ([sun2023]_, Algorithm 3).

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel or Drafter
        A cheaper model with the same vocabulary, or a drafter of trees that suit the rule.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    k : int or tuple of int, optional
        Number K of chains, or the numbers of children (k_1, …, k_L) at the levels of a prefix tree
        ([sun2023]_, Algorithm 4), which then has at most L levels.  The default is 8 chains.  With
        a drafter, which has its own number of chains, do not set `k`.
    gamma : int or GammaPolicy, optional
        Length of the chains, or depth of the tree.
    rule : str or callable, optional
        How the verifier selects one of the drafts of a node.  The default is the rule that accepted
        most in our benchmarks, "branch and keep".  Where the device of the models verifies, as on a
        GPU, the default is "grid walk and keep" for chains and "walk and keep" for other trees.

        - A name that `tree_rules` lists, such as "k-Seq" or "optimal".
        - A function from a `Problem` to a plan, such as a lenient one.
        - A rule that verifies whole paths: "traversal" goes from the leaves to the root
          ([weng2025]_); "walk and keep" goes down to the end of a path and up again
          (`verify_walk_and_keep`); "branch and keep" tries every drafted branch and usually
          accepts the most drafts (`verify_branch_and_keep`); "greedy multi-path" is for comparison
          (`verify_greedy_paths`).

        The rule also decides how a draft model draws the children of a node.  Nearly all rules use
        independent draws.  "recursive rejection without replacement" and "greedy" draw as their
        names say, and "target-only" takes the most probable tokens without sampling.

        On a GPU, the default, "grid k-Seq", "grid optimal" and "grid walk and keep" verify chains
        on the device.  "target-only", "greedy", "recursive rejection without replacement" and
        "walk and keep" verify trees of certain drafts, or with different tokens below each node,
        on the device, if the target reads trees and there is no logits processor.  All others copy
        scores to the host.  On the host, grid rules also verify prefix trees, whose shape must not
        depend on tokens.
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model; by default in the same way as from the target.
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens and all steps.  If the rule is lossless, the tokens have the same
        distribution as those of `autoregressive`.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.
    InvalidDraftCountError, ProblemTooLargeError
        If a number in k is not an integer of at least 1, or the tree has more than 2^16 paths.
    InvalidInputError, InvalidParameterError
        As for `stream`.  Raised also if the rule returns no plan or needs drafts that are not
        independent, or if `k` or `draft_sampling` is combined with a drafter.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        While decoding, as for `stream`.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023.
    .. [weng2025] Weng et al., "Traversal Verification for Speculative Tree Decoding", 2025.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> generation = spectr(target, draft, [[0]], k=4, gamma=3, max_tokens=1000, seed=0)
    >>> 3.6 < generation.block_efficiency < 4
    True
    """
    verifier = tree_verifier(rule)
    draft_kind = verifier.rule.drafts
    drafter = as_drafter(draft, CHAINS, draft_sampling, options, k=k, draft_kind=draft_kind)
    return decode(target, prompts, drafter, verifier, gamma=gamma, options=options)


def decode(
    target: LanguageModel,
    prompts: Prompts,
    drafter: Drafter | None,
    verifier: AnyVerifier,
    *,
    gamma: int | GammaPolicy,
    options: DecodingOptions,
) -> Generation:
    """Decode all sequences to their ends with a drafter and a verifier."""
    check_models(target, drafter)
    checked_prompts = as_prompts(prompts, target.vocabulary)
    gamma = 0 if drafter is None else gamma
    steps = stream(target, checked_prompts, drafter, verifier, gamma=gamma, **options)
    return Generation(checked_prompts, tuple(steps))


def as_drafter(
    draft: LanguageModel | Drafter,
    chains: int,
    sampling: SamplingParameters | None,
    options: DecodingOptions,
    *,
    k: Branching | None = None,
    draft_kind: str = "IID",
) -> Drafter:
    """Return `draft` if it is a drafter; from a model, make a drafter of k (or `chains`) chains."""
    if isinstance(draft, LanguageModel):
        chosen = options.get("sampling") if sampling is None else sampling
        chosen = ranking_parameters(chosen) if draft_kind == "Top" else chosen
        processor = options.get("logits_processor")
        return ModelDrafter(draft, chains if k is None else k, chosen, processor, draft_kind)
    check_draft(draft, LanguageModel, Drafter)
    for name, value in {"k": k, "draft_sampling": sampling}.items():
        if value is not None:
            raise InvalidParameterError(
                f"`{name}` has no effect on a drafter; set it when you create the drafter"
            )
    return draft
