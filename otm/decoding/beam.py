"""Beam search, and the same beam search with fewer calls of the target model.

A hypothesis is a sequence of new tokens; its score is its probability given the prompt, the product
of the probabilities that the sampling parameters leave its tokens, without a penalty for length.
From the empty hypothesis on, a step takes the finished hypotheses of the beam as they are, and all
continuations of the others by a token of positive probability; the w of largest score are the next
beam ([meister2020]_, Algorithm 1).  Of equal scores the lexicographically smaller sequence of
tokens wins.  A hypothesis is finished by an end token; the search is finished when all of the beam
is, or at the limit of the length.

In fractions scores are products, compared exactly.  In floats they are sums of logarithms, added
from the first token to the last, so that the ways to search round alike.

The speculative beam is that of [leviathan2023]_, appendix A.4: see `speculative_beam_search`.

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

from otm._core.display.reprs import Brief
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
class Beams(Brief):
    """Outcome of a beam search for a batch of prompts.

    Attributes
    ----------
    prompts : tuple of tuple of int
        What was given.
    hypotheses : tuple of tuple of Hypothesis
        For each prompt the last beam, the best first: w hypotheses, or all if there are fewer.
    steps : int
        Steps of all searches: the calls of the target model that plain beam search needs, counted
        for each prompt by itself.
    target_calls : int
        Calls of the target model, counted alike; the difference is saved.
    seconds : Seconds
        Where the time went.

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
        """Steps for each call of the target model, between 1 and γ + 1."""
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
    """Search for likely continuations; see the module for what is scored.

    [meister2020]_, Algorithm 1.

    Parameters
    ----------
    target : LanguageModel
        The model.
    prompts : sequence of sequences of int
        Tokens to go on from, at least one in each; a single prompt is given as [prompt].
    width : int, optional
        Width w of the beam.
    max_tokens : int, optional
        Most new tokens.
    eos_token_id : int or collection of int, optional
        Tokens that finish a hypothesis.
    sampling : SamplingParameters, optional
        From the model's scores to the probabilities that count: with a temperature other than
        1, or truncated, these are not the model's own.

    Returns
    -------
    Beams
        The hypotheses of the last beam, and how they were found.

    Raises
    ------
    InvalidInputError
        If a prompt is empty or holds no tokens, or the model cannot take prompt and new tokens.
    InvalidParameterError
        If a parameter is outside its range.

    Notes
    -----
    Hugging Face's `generate(num_beams=w, length_penalty=0)` finds the same beams as long as there
    is no end token.  With one it sets finished hypotheses aside, where they take no place in the
    beam, goes on with w unfinished ones, and stops by a rule of its own (`early_stopping`); it
    counts the end token among at most the w best continuations of a step.

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

    The draft model continues the beam, from the target's scores on, by γ steps of beam search of
    width u.  One call of the target gives its distributions after all hypotheses that were in one
    of these beams.  With these the target's own search goes on, for as many steps as they suffice:
    it makes another step if all unfinished hypotheses of its beam were drafted, and ends the block
    at the first beam that has others, or after step γ + 1.  So every call makes at least one step.

    Parameters
    ----------
    target, prompts, width, max_tokens, eos_token_id, sampling
        As for `beam_search`.
    draft : LanguageModel
        A cheaper model on the same vocabulary.
    draft_width : int, optional
        Width u ≥ w of the beam of drafts; 2w if left out.
    gamma : int, optional
        Steps γ that the draft model makes before each call of the target.
    draft_sampling : SamplingParameters, optional
        How to sample from the draft model, if not as from the target.

    Returns
    -------
    Beams
        The hypotheses of `beam_search`, in the same order and with the same scores.  Of a model
        whose probabilities round differently from batch to batch, two hypotheses of all but equal
        score may change places.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        As for `beam_search`, and if the vocabularies differ or u < w.

    Notes
    -----
    A call of the target reads up to w + uγ hypotheses in place of w.  The paper asks that the w
    best of the target be among the drafts; here finished ones need not be, since nothing is read
    after them.

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
    """Search with a speculative beam, or without drafts."""
    begun = time.perf_counter()
    partner = None if draft is None else draft.model
    given, limit = check_task(target.model, partner, prompts, max_tokens, LanguageModel)
    ends = as_end(eos_token_id, target.model.vocabulary)
    w, u = as_positive(width, "width"), as_positive(draft_width, "draft_width")
    most = as_gamma(gamma)
    if u < w:
        raise InvalidParameterError(
            f"draft_width = {u} is below width = {shown(w)}; a narrower beam of drafts never holds "
            "all that the target keeps, so give at least the width"
        )

    def growing(beam: Beam) -> set[Path]:
        """Hypotheses that a step of the search continues."""
        return {h.tokens for h in beam if len(h.tokens) < limit and not h.finished(ends)}

    beams: list[Beam] = [(EMPTY,)] * len(given)
    steps = calls = 0
    block = Block(given, [growing(beam) for beam in beams])
    while block.contexts:
        drafted = {b: growing(beams[b]) for b in block.lengths}
        if draft is not None:
            depths = {b: min(most, limit - 1 - length) for b, length in block.lengths.items()}
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
            left = known
            while left and left <= known:  # the distributions after all of them are known
                beams[b] = best_continuations(beams[b], partial(probs, b), w, ends)
                steps += 1
                left = growing(beams[b])
        block = Block(given, [growing(beam) for beam in beams], block)

    in_draft = 0.0 if draft is None else draft.seconds
    other = time.perf_counter() - begun - in_draft - target.seconds
    return Beams(given, tuple(beams), steps, calls, Seconds(in_draft, target.seconds, other))
