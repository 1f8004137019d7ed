"""Decoding functions in which a seed or a key determines drafts and output together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from otm._core.checks import as_draft_count
from otm.coupled.rounds import CoupledVerifier
from otm.coupled.watermark import WatermarkVerifier
from otm.decoding.drafters.base import Branching, Drafter, as_branching, max_children
from otm.decoding.generate import as_drafter, decode
from otm.decoding.loop import DecodingOptions, Prompts
from otm.decoding.policies import GammaPolicy
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import Generation
from otm.errors import InvalidParameterError
from otm.models.base import LanguageModel


def decode_coupled(
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
    """Decode with drafts and output coupled by a seed; the text does not depend on the drafter.

    Draft model and target read the same exponential clocks, one for each list, position and token
    ([daliri2024]_; several lists: [rowan2025]_).  Only the seed, the number of lists and the target
    determine the text, so it is the same for every drafter and every γ.  No draft probabilities are
    needed.  Coupling accepts fewer drafts than the rules of `spectr`.

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel, Drafter or None
        A cheaper model with the same vocabulary, whose drafts read the clocks; another drafter,
        which draws as usual; or None to decode without drafts.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    k : int or tuple of int, optional
        For a draft model: number K of chains, or the numbers of children (k_1, …, k_L) at the
        levels of a prefix tree.  Chain m reads list m; in a tree, child m of a node reads list m.
    lists : int, optional
        Number of lists; by default the largest number of drafts of a token in `k`.  The texts
        depend on the number of lists.
    gamma : int or GammaPolicy, optional
        Length of the chains, or depth of the tree.
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
    InvalidDraftCountError, ProblemTooLargeError
        If a number in k or `lists` is not an integer of at least 1, or the tree has more than 2^16
        paths.
    InvalidInputError, InvalidParameterError
        As for `stream`.  Raised also if there are fewer lists than drafts of a token, or if `k` or
        `draft_sampling` is combined with a drafter.
    InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
        While decoding, as for `stream`.

    Notes
    -----
    Rounding of the models can change a text, because it can swap two nearly equal clock times.
    Scores that are computed one token at a time differ in their last digits from scores that are
    computed for several tokens at once.  Clocks are floats, even if the models return fractions.
    If the models return tensors on a GPU, the GPU verifies chains and drafts of `PromptLookup`,
    without draft probabilities; its clocks equal those of the host bit by bit.

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
    >>> texts = [decode_coupled(target, drafter, [[0]], k=2, max_tokens=8, seed=0)
    ...          for drafter in (None, draft, target)]
    >>> [text.sequences[0] for text in texts]
    [(0, 0, 0, 0, 0, 1, 0, 1), (0, 0, 0, 0, 0, 1, 0, 1), (0, 0, 0, 0, 0, 1, 0, 1)]
    >>> [len(text.steps) for text in texts]
    [8, 2, 3]
    """
    drafts = max_children(as_branching(k))
    count = drafts if lists is None else as_draft_count(lists)
    if count < drafts:
        raise InvalidParameterError(
            f"lists = {count} for {drafts} drafts of a token; use at least one list per draft"
        )
    drafter = None
    if draft is not None:
        of_model = isinstance(draft, LanguageModel) or k != 1
        drafter = as_drafter(draft, 1, draft_sampling, options, k=k if of_model else None)
    return decode(target, prompts, drafter, CoupledVerifier(count), gamma=gamma, options=options)


def decode_watermarked(
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
    """Decode a text that `detect_watermark` recognises with a key.

    Over random keys, each text has exactly the target's distribution.  With "coupled", the text is
    the same for every draft model and without a draft model.  Every token of "coupled" reveals as
    much about the key as possible, but "coupled" accepts fewer drafts than "rejection".

    Parameters
    ----------
    target : LanguageModel
        The model to sample from.
    draft : LanguageModel, Drafter or None
        A cheaper model with the same vocabulary, or a ModelDrafter of one sampled chain; "coupled"
        accepts any drafter.  If None, decode without drafts.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    key : int or sequence of int
        One key for all prompts, or one key per prompt, from 0 to 2^64 − 1.  Texts with the same key
        are not independent: equal prompts get equal texts.
    method : {"coupled", "rejection", "keyed rejection"}, optional
        "coupled" is `decode_coupled` with one list ([aaronson2022]_, [daliri2024]_).  "rejection"
        and "keyed rejection" use chain verification, with one list of clocks for drafts and another
        for recovered tokens ([hu2024]_).  The uniforms that decide acceptance come from the seed
        for "rejection", and from the key for "keyed rejection" ([he2026]_).  Without drafts, all
        methods are equal.
    gamma : int or GammaPolicy, optional
        Number of drafts γ of a step.
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model; by default in the same way as from the target.
    **options
        See `DecodingOptions`; only "rejection" uses the seed.

    Returns
    -------
    Generation
        The new tokens and all steps.

    Raises
    ------
    UnknownMethodError
        If there is no such method.
    InvalidInputError, InvalidParameterError
        As for `stream`.  Raised also if a key is outside its range, the number of keys differs from
        the number of prompts, or `draft_sampling` is combined with a drafter.
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
    >>> from otm.coupled import detect_watermark
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.25] * 4}), TableModel({(): [0.4, 0.2, 0.2, 0.2]})
    >>> for method in ("coupled", "rejection", "keyed rejection"):
    ...     options = {"key": 7, "method": method, "max_tokens": 90, "seed": 0}
    ...     made = decode_watermarked(target, draft, [[0]], **options)
    ...     found = detect_watermark(made.sequences[0], 7, start=1, method=method)
    ...     print(f"{method}: {made.block_efficiency:.1f} tokens a step, p = {found.p_value:.0e}")
    coupled: 3.1 tokens a step, p = 2e-13
    rejection: 3.9 tokens a step, p = 3e-07
    keyed rejection: 3.6 tokens a step, p = 5e-13
    """
    verifier = WatermarkVerifier(key, method)
    drafter = None if draft is None else as_drafter(draft, 1, draft_sampling, options)
    return decode(target, prompts, drafter, verifier, gamma=gamma, options=options)
