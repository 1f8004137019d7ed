"""Beam search, and the same beam search with fewer calls of the target model.

A hypothesis is a sequence of new tokens.  The score of a hypothesis is its probability after the
prompt: the product of the probabilities of its tokens under the sampling parameters, without a
length penalty.  The search begins with the empty hypothesis.  Each step keeps the finished
hypotheses of the beam, and extends the other hypotheses by every token of positive probability.
The w hypotheses of largest score are the next beam ([meister2020]_, Algorithm 1).  Ties go to the
lexicographically smaller sequence of tokens.  An end token finishes a hypothesis.  The search ends
when all hypotheses of the beam are finished, or at the maximum length.

With fractions, scores are products and are compared exactly.  With floats, scores are sums of
logarithms, added from the first token to the last, so all search functions round alike.

`speculative_beam_search` implements the speculative beam of [leviathan2023]_, appendix A.4.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
.. [meister2020] Meister, Vieira and Cotterell, "Best-First Beam Search", TACL 8, 2020.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm.decoding.checks import as_end, check_draft, check_task
from otm.decoding.hypotheses import EMPTY, Beam, Block, best_continuations
from otm.decoding.loop import Prompts
from otm.decoding.policies import as_gamma
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import Seconds
from otm.errors import InvalidParameterError
from otm.models.base import LanguageModel


@dataclass(frozen=True)
class Beams(ShortRepr):
    """Result of a beam search for a batch of prompts.

    Attributes
    ----------
    prompts : tuple of tuple of int
        The prompts of the batch.
    hypotheses : tuple of tuple of Hypothesis
        The last beam of each prompt in descending order of score: w hypotheses, or fewer if fewer
        exist.
    steps : int
        Number of search steps, summed over prompts.  Plain beam search calls the target once per
        step.
    target_calls : int
        Number of calls of the target model, summed over prompts.
    seconds : Seconds
        Time of the search.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> beams = beam_search(TableModel({(): [0.75, 0.25]}), [[0]], width=2, max_tokens=3)
    >>> [hypothesis.tokens for hypothesis in beams.hypotheses[0]], beams.steps_per_call
    ([(0, 0, 0), (0, 0, 1)], 1.0)
    """

    prompts: tuple[Context, ...]
    hypotheses: tuple[Beam, ...]
    steps: int
    target_calls: int
    seconds: Seconds

    @property
    def steps_per_call(self) -> float:
        """Mean number of search steps per call of the target model, between 1 and γ + 1."""
        return self.steps / self.target_calls


def beam_search(
    target: LanguageModel,
    prompts: Prompts,
    width: int = 4,
    *,
    max_tokens: int = 64,
    eos_token_id: int | Collection[int] | None = None,
    sampling: SamplingParameters | None = None,
) -> Beams:
    """Search for probable continuations with a beam; the module page defines the scores.

    [meister2020]_, Algorithm 1.

    Parameters
    ----------
    target : LanguageModel
        The model to search with.
    prompts : sequence of sequences of int
        Tokens to continue, at least one per prompt; a single prompt is passed as [prompt].
    width : int, optional
        Width w of the beam.
    max_tokens : int, optional
        Maximum number of new tokens.
    eos_token_id : int or collection of int, optional
        Tokens that finish a hypothesis.
    sampling : SamplingParameters, optional
        Sampling parameters of the scored distribution.  With truncation, or a temperature other
        than 1, the scored distribution differs from the model's.

    Returns
    -------
    Beams
        The hypotheses of the last beam, and statistics of the search.

    Raises
    ------
    InvalidInputError
        If a prompt is empty or does not contain tokens, or if prompt and new tokens exceed the
        context length of the model.
    InvalidParameterError
        If a parameter is outside its range.

    Notes
    -----
    Without an end token, Hugging Face's `generate(num_beams=w, length_penalty=0)` finds the same
    beams.  With an end token, `generate` moves finished hypotheses out of the beam, continues with
    w unfinished hypotheses, and stops by its own rule (`early_stopping`).  `generate` finishes a
    hypothesis only if the end token is among the w best continuations of a step.

    References
    ----------
    .. [meister2020] Meister, Vieira and Cotterell, "Best-First Beam Search", TACL 8, 2020.

    Examples
    --------
    The most likely first token does not begin the most likely pair:

    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.5, 0.5, 0], (2,): [0.6, 0.4, 0], (1,): [0, 1, 0]})
    >>> [beam_search(model, [[2]], w, max_tokens=2).hypotheses[0][0].tokens for w in (1, 2)]
    [(0, 0), (1, 1)]
    """
    options: Any = {"max_tokens": max_tokens, "eos_token_id": eos_token_id}
    return _search(Reader(target, sampling), None, prompts, width, width, gamma=0, **options)


def speculative_beam_search(
    target: LanguageModel,
    draft: LanguageModel,
    prompts: Prompts,
    width: int = 4,
    *,
    draft_width: int | None = None,
    gamma: int = 5,
    draft_sampling: SamplingParameters | None = None,
    max_tokens: int = 64,
    eos_token_id: int | Collection[int] | None = None,
    sampling: SamplingParameters | None = None,
) -> Beams:
    """Find the beams of `beam_search` with fewer calls of the target ([leviathan2023]_, A.4).

    The draft model continues the beam by γ steps of beam search of width u, starting from the
    target's scores.  One call of the target then gives its distributions after every hypothesis of
    the draft beams, and the target's own search continues with these distributions.  The target
    makes another step while the draft beams contain all unfinished hypotheses of its beam, at most
    γ + 1 steps in total.  So every call makes at least one step.

    Parameters
    ----------
    target, prompts, width, max_tokens, eos_token_id, sampling
        As for `beam_search`.
    draft : LanguageModel
        A cheaper model with the same vocabulary.
    draft_width : int, optional
        Width u ≥ w of the draft beam; 2w by default.
    gamma : int, optional
        Number γ of draft steps before each call of the target.
    draft_sampling : SamplingParameters, optional
        Sampling parameters of the draft model; by default those of the target.

    Returns
    -------
    Beams
        The hypotheses of `beam_search`, in the same order and with the same scores.  If a model
        rounds differently from batch to batch, two hypotheses of almost equal score may swap.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        As for `beam_search`, and if the vocabularies differ or u < w.

    Notes
    -----
    A call of the target scores up to w + uγ hypotheses instead of w.  The paper requires that the
    drafts contain the w best hypotheses of the target.  Here the drafts need not contain finished
    hypotheses, because the target scores no tokens after them.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> target = TableModel({(): [0.6, 0.4], (0,): [0.3, 0.7], (1,): [0.75, 0.25]})
    >>> draft = TableModel({(): [0.5, 0.5], (0,): [0.4, 0.6], (1,): [0.8, 0.2]})
    >>> found = speculative_beam_search(target, draft, [[0]], 2, gamma=3, max_tokens=8)
    >>> found.hypotheses == beam_search(target, [[0]], 2, max_tokens=8).hypotheses
    True
    >>> found.steps, found.target_calls
    (8, 2)
    """
    u = 2 * as_positive(width, "width") if draft_width is None else draft_width
    check_draft(draft, LanguageModel)
    drafter = Reader(draft, sampling if draft_sampling is None else draft_sampling)
    options: Any = {"gamma": gamma, "max_tokens": max_tokens, "eos_token_id": eos_token_id}
    return _search(Reader(target, sampling), drafter, prompts, width, u, **options)


def _search(
    target: Reader,
    draft: Reader | None,
    prompts: Prompts,
    width: int,
    draft_width: int,
    *,
    gamma: int,
    max_tokens: int,
    eos_token_id: int | Collection[int] | None,
) -> Beams:
    """Run a beam search, with a speculative beam unless `draft` is None."""
    start = time.perf_counter()
    partner = None if draft is None else draft.model
    checked_prompts, limit = check_task(target.model, partner, prompts, max_tokens, LanguageModel)
    ends = as_end(eos_token_id, target.model.vocabulary)
    w, u = as_positive(width, "width"), as_positive(draft_width, "draft_width")
    max_gamma = as_gamma(gamma)
    if u < w:
        raise InvalidParameterError(
            f"draft_width = {u} is below width = {shown(w)}; a narrower draft beam never contains "
            "all hypotheses that the target keeps, so give at least the width"
        )

    def growing(beam: Beam) -> set[Path]:
        """Return those hypotheses of a beam that the next step extends."""
        return {h.tokens for h in beam if len(h.tokens) < limit and not h.finished(ends)}

    beams: list[Beam] = [(EMPTY,)] * len(checked_prompts)
    steps = calls = 0
    block = Block(checked_prompts, [growing(beam) for beam in beams])
    while block.contexts:
        drafted = {b: growing(beams[b]) for b in block.lengths}
        if draft is not None:
            depths = {b: min(max_gamma, limit - 1 - length) for b, length in block.lengths.items()}
            ahead = list(beams)
            for depth in range(max(depths.values())):
                level = {b: growing(ahead[b]) for b in depths if depth < depths[b]}
                probs = block.read(draft, level, first=depth == 0, whole=False)
                for b in level:
                    ahead[b] = best_continuations(ahead[b], partial(probs, b), u, ends)
                    drafted[b] |= growing(ahead[b])
        probs = block.read(target, drafted, first=True, whole=True)
        for b, known in drafted.items():
            calls += 1
            to_extend = known
            # Continue while the distributions after all unfinished hypotheses are known.
            while to_extend and to_extend <= known:
                beams[b] = best_continuations(beams[b], partial(probs, b), w, ends)
                steps += 1
                to_extend = growing(beams[b])
        block = Block(checked_prompts, [growing(beam) for beam in beams], block)

    in_draft = 0.0 if draft is None else draft.seconds
    other = time.perf_counter() - start - in_draft - target.seconds
    return Beams(
        checked_prompts, tuple(beams), steps, calls, Seconds(in_draft, target.seconds, other)
    )
