"""The ways to decode a batch of prompts: each is the loop with one drafter and one verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from otm._core.checks import as_draft_count
from otm.coupling.build import PlanBuilder
from otm.decoding.checks import as_prompts, check_draft, check_models
from otm.decoding.coupled import CoupledVerifier
from otm.decoding.drafting import (
    Branching,
    Drafter,
    ModelDrafter,
    as_branching,
    drafts_of_token,
)
from otm.decoding.loop import DecodingOptions, Prompts, stream
from otm.decoding.on_device import place_verifier
from otm.decoding.policies import GammaPolicy
from otm.decoding.sampling_parameters import SamplingParameters, ranked_by
from otm.decoding.trace import Generation
from otm.decoding.verification import (
    Verifier,
    chain_verifier,
    law_of,
    tree_verifier,
    verify_chain,
)
from otm.decoding.watermark import WatermarkVerifier
from otm.errors import InvalidParameterError
from otm.models.base import LanguageModel

CHAINS = 8
"""Number of chains if nothing else is said."""


def autoregressive(
    target: LanguageModel, prompts: Prompts, **options: Unpack[DecodingOptions]
) -> Generation:
    """Decode without drafts, one token for each call of the target model.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens, and all steps.

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
    return _decode(target, prompts, None, verify_chain, "chain", gamma=0, options=options)


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
        A cheaper model on the same vocabulary, or anything that drafts a chain.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    gamma : int or GammaPolicy, optional
        Number of drafts γ of a step.
    rule : {"chain", "block"}, optional
        Accept drafts up to the first that is rejected (Algorithm 1), or verify them together, which
        accepts at least as much on average ([sun2024block]_).
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model, if not as from the target.
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens, distributed as those of `autoregressive`, and all steps.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.
    InvalidInputError, InvalidParameterError
        As for `stream`, and if a `draft_sampling` is given beside a drafter.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        While decoding, as for `stream`, and if a drafter gives a tree where a chain is needed.

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
    verifier = chain_verifier(rule)
    drafter = _as_drafter(draft, 1, draft_sampling, options)
    return _decode(target, prompts, drafter, verifier, rule, gamma=gamma, options=options)


def spectr(
    target: LanguageModel,
    draft: LanguageModel | Drafter,
    prompts: Prompts,
    *,
    k: Branching | None = None,
    gamma: int | GammaPolicy = 5,
    rule: str | PlanBuilder = "k-Seq",
    draft_sampling: SamplingParameters | None = None,
    **options: Unpack[DecodingOptions],
) -> Generation:
    """Decode with K chains, or a prefix tree, of drafts in each step ([sun2023]_, Algorithm 3).

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel or Drafter
        A cheaper model on the same vocabulary, or anything that drafts trees as the rule needs.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    k : int or tuple of int, optional
        Number K of chains, or the numbers of children (k_1, …, k_L) at the levels of a prefix tree
        ([sun2023]_, Algorithm 4), which is then at most L deep; 8 chains if left out.  A drafter
        has its own.
    gamma : int or GammaPolicy, optional
        Length of the chains, or depth of the tree.
    rule : str or callable, optional
        How one of the drafts of a node is selected: a name (`tree_rules` lists them), such as
        "k-Seq" or "optimal"; a function from a `Problem` to a plan, such as a lenient one; or one
        that verifies whole paths: "traversal", from the leaves to the root ([weng2025]_), or "walk
        and keep", down to the end of a path and up again (`verify_walk_and_keep`).  The rule also
        says how a model's drafts of a node are drawn: nearly always independently, for "recursive
        rejection without replacement" and "greedy" as these say, for "target-only" not at all: the
        likeliest tokens are taken.  Of models on a GPU, "grid k-Seq", "grid optimal" and "grid walk
        and keep" (on the host the same as "walk and keep") run there; with several chains all
        others copy scores to the host.
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model, if not as from the target.
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens, distributed as those of `autoregressive` if the rule is lossless, and all
        steps.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.
    InvalidDraftCountError, ProblemTooLargeError
        If a number in k is not an integer of at least 1, or there would be more than 2^16 paths.
    InvalidInputError, InvalidParameterError
        As for `stream`, and if the rule returns no plan or is for drafts that are not independent,
        or `k` or a `draft_sampling` is given beside a drafter.
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
    >>> 3.2 < generation.block_efficiency < 3.6
    True
    """
    verifier = tree_verifier(rule)
    drafter = _as_drafter(draft, CHAINS, draft_sampling, options, k=k, law=law_of(rule))
    return _decode(target, prompts, drafter, verifier, rule, gamma=gamma, options=options)


def coupled(
    target: LanguageModel,
    draft: LanguageModel | Drafter | None,
    prompts: Prompts,
    *,
    k: Branching = 1,
    lists: int | None = None,
    gamma: int | GammaPolicy = 5,
    draft_sampling: SamplingParameters | None = None,
    **options: Unpack[DecodingOptions],
) -> Generation:
    """Decode with drafts and output coupled by a seed: a text that no drafter changes.

    Draft and target read the same exponential clocks, one for each list, position and token
    ([daliri2024]_; several lists: [rowan2025]_).  The text follows from the seed, the number of
    lists and the target alone: it is the same with any drafter, any γ and none.  No draft
    probabilities are needed.  In return fewer drafts are accepted than by the rules of `spectr`.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel, Drafter or None
        A cheaper model on the same vocabulary, whose drafts read the clocks; anything else that
        drafts, in its own way; or None, to decode without drafts.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    k : int or tuple of int, optional
        Of a model's drafts: number K of chains, or the numbers of children (k_1, …, k_L) at the
        levels of a prefix tree.  Chain m reads list m, child m of a node in a tree too.
    lists : int, optional
        Number of lists; the largest number of drafts of a token in `k` if left out.  Another number
        gives other texts.
    gamma : int or GammaPolicy, optional
        Length of the chains, or depth of the tree.
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model, if not as from the target.
    **options
        See `DecodingOptions`.

    Returns
    -------
    Generation
        The new tokens, distributed as those of `autoregressive`, and all steps.

    Raises
    ------
    InvalidDraftCountError, ProblemTooLargeError
        If a number in k or `lists` is not an integer of at least 1, or there would be more than
        2^16 paths.
    InvalidInputError, InvalidParameterError
        As for `stream`, if there are fewer lists than drafts of a token, or if `k` or a
        `draft_sampling` is given beside a drafter.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        While decoding, as for `stream`.

    Notes
    -----
    Rounding of the models can change a text: scores of one token at a time and of several differ in
    their last digits, and the first to ring of two nearly equal clocks with them.  Clocks are in
    floats, also for models in fractions.  Of models that return tensors on a GPU, chains and
    prompt lookup run there, without probabilities of drafts; the clocks are the same, to the bit.

    References
    ----------
    .. [daliri2024] Daliri, Musco and Suresh, "Coupling without Communication and Drafter-Invariant
       Speculative Decoding", arXiv 2408.07978.
    .. [rowan2025] Rowan, Phan and Khisti, "List-Level Distribution Coupling with Applications to
       Speculative Decoding and Lossy Compression", NeurIPS 2025.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> texts = [coupled(target, drafter, [[0]], k=2, max_tokens=8, seed=0)
    ...          for drafter in (None, draft, target)]
    >>> [text.sequences[0] for text in texts]
    [(0, 0, 0, 0, 0, 1, 0, 1), (0, 0, 0, 0, 0, 1, 0, 1), (0, 0, 0, 0, 0, 1, 0, 1)]
    >>> [len(text.steps) for text in texts]
    [8, 2, 3]
    """
    drafts = drafts_of_token(as_branching(k))
    count = drafts if lists is None else as_draft_count(lists)
    if count < drafts:
        raise InvalidParameterError(
            f"lists = {count} for {drafts} drafts of a token; each needs a list of its own"
        )
    drafter = None
    if draft is not None:
        of_model = isinstance(draft, LanguageModel) or k != 1
        drafter = _as_drafter(draft, 1, draft_sampling, options, k=k if of_model else None)
    check_models(target, drafter)
    given = as_prompts(prompts, target.vocabulary)
    verifier = CoupledVerifier(count)
    steps = stream(target, given, drafter, verifier, gamma=gamma if drafter else 0, **options)
    return Generation(given, tuple(steps))


def watermarked(
    target: LanguageModel,
    draft: LanguageModel | Drafter | None,
    prompts: Prompts,
    *,
    key: int | Sequence[int],
    method: str = "coupled",
    gamma: int | GammaPolicy = 5,
    draft_sampling: SamplingParameters | None = None,
    **options: Unpack[DecodingOptions],
) -> Generation:
    """Decode a text that whoever knows a key can tell from others, with `detect_watermark`.

    Over random keys each text has exactly the target's distribution.  By "coupled", whose text is
    the same with any draft model and none, every token shows as much of the key as it can; fewer
    drafts are accepted than by rejection.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel, Drafter or None
        A cheaper model on the same vocabulary, or a ModelDrafter of one sampled chain; "coupled"
        takes any drafter.  None to decode without drafts.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    key : int or sequence of int
        From 0 to 2^64 − 1: one for all prompts, or one for each.  Texts of one key are not
        independent: equal prompts get equal texts.
    method : {"coupled", "rejection", "keyed rejection"}, optional
        `coupled` with one list ([aaronson2022]_, [daliri2024]_); or chain verification with drafts
        by one list of clocks and recovered tokens by another ([hu2024]_), where the coins of
        acceptance are those of the seed, or also follow from the key ([he2026]_).  Without drafts
        all are the same.
    gamma : int or GammaPolicy, optional
        Number of drafts γ of a step.
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model, if not as from the target.
    **options
        See `DecodingOptions`; the seed is for the coins of "rejection" alone.

    Returns
    -------
    Generation
        The new tokens and all steps.

    Raises
    ------
    UnknownMethodError
        If there is no such method.
    InvalidInputError, InvalidParameterError
        As for `stream`, and if a key is outside its range, keys are not as many as prompts, or a
        `draft_sampling` is given beside a drafter.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        While decoding, as for `stream`.

    References
    ----------
    .. [aaronson2022] Aaronson, "My AI Safety Lecture for UT Effective Altruism", 2022.
    .. [daliri2024] Daliri, Musco and Suresh, "Coupling without Communication and Drafter-Invariant
       Speculative Decoding", arXiv 2408.07978.
    .. [hu2024] Hu and Huang, "Inevitable Trade-off between Watermark Strength and Speculative
       Sampling Efficiency for Language Models", NeurIPS 2024.
    .. [he2026] He, Li, Shen, Su and Long, "Improve the Trade-off Between Watermark Strength and
       Speculative Sampling Efficiency for Language Models", ICLR 2026, arXiv 2602.01428.

    Examples
    --------
    >>> from otm.decoding import detect_watermark
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25] * 4}), TableModel({(): [0.4, 0.2, 0.2, 0.2]})
    >>> for method in ("coupled", "rejection", "keyed rejection"):
    ...     made = watermarked(target, draft, [[0]], key=7, method=method, max_tokens=90, seed=0)
    ...     found = detect_watermark(made.sequences[0], 7, start=1, method=method)
    ...     print(f"{method}: {made.block_efficiency:.1f} tokens a step, p = {found.p_value:.0e}")
    coupled: 3.1 tokens a step, p = 2e-13
    rejection: 3.9 tokens a step, p = 3e-07
    keyed rejection: 3.6 tokens a step, p = 5e-13
    """
    verifier = WatermarkVerifier(key, method)
    drafter = None if draft is None else _as_drafter(draft, 1, draft_sampling, options)
    check_models(target, drafter)
    given = as_prompts(prompts, target.vocabulary)
    steps = stream(target, given, drafter, verifier, gamma=gamma if drafter else 0, **options)
    return Generation(given, tuple(steps))


def _decode(
    target: LanguageModel,
    prompts: Prompts,
    drafter: Drafter | None,
    verifier: Verifier,
    rule: str | PlanBuilder,
    *,
    gamma: int | GammaPolicy,
    options: DecodingOptions,
) -> Generation:
    check_models(target, drafter)
    given = as_prompts(prompts, target.vocabulary)
    placed = place_verifier(verifier, rule, target, drafter, options.get("sampling"))
    steps = stream(target, given, drafter, placed, gamma=gamma, **options)
    return Generation(given, tuple(steps))


def _as_drafter(
    draft: LanguageModel | Drafter,
    chains: int,
    sampling: SamplingParameters | None,
    options: DecodingOptions,
    *,
    k: Branching | None = None,
    law: str = "IID",
) -> Drafter:
    """Return a drafter as it is, or one of a model: of so many chains, unless k is given."""
    if isinstance(draft, LanguageModel):
        chosen = options.get("sampling") if sampling is None else sampling
        chosen = ranked_by(chosen) if law == "Top" else chosen
        processor = options.get("logits_processor")
        return ModelDrafter(draft, chains if k is None else k, chosen, processor, law)
    check_draft(draft, LanguageModel, Drafter)
    for name, value in {"k": k, "draft_sampling": sampling}.items():
        if value is not None:
            raise InvalidParameterError(
                f"`{name}` is given beside a drafter, which has its own; give it there"
            )
    return draft
