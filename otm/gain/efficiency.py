"""Block efficiency from recorded drafts and distributions, without decoding.

How many tokens a step adds depends on its drafts and on the verifier's coins.  The mean over the
coins is computed, so that contexts and drafts are the only noise; and all rules, numbers of drafts
and lengths see the same drafts, so that most of this noise is gone from their differences.

With one chain, K = 1, every rule that is optimal for one draft is the chain verification of
Leviathan et al. (2023), and traversal is block verification.

End tokens and a longest length, which cut steps short, are left out of account.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from otm._core.checks import as_draft_count
from otm._core.display.progress import Progress
from otm._core.display.text import shown
from otm._core.means import PairedMeans, Setup
from otm._core.numbers import as_level
from otm.coupling.build import PLANS, PlanBuilder, named_rules
from otm.coupling.compare.many_rows import compare_pairs
from otm.decoding.drafters.base import Branching, as_branching
from otm.decoding.policies import as_gamma
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.recording import Recording, pruned
from otm.gain.reports.pairs import Pairs
from otm.gain.reports.score_files import Source
from otm.gain.tokens_given_drafts import OF_WHOLE_PATHS, tokens_by_rule
from otm.problem import Problem

Rules = Iterable[str] | Mapping[str, PlanBuilder | None]
"""Names of rules; or functions from a problem to a plan by name, None for what the name says."""

KNOWN: dict[str, PlanBuilder | None] = {**PLANS, **dict.fromkeys(OF_WHOLE_PATHS)}
"""Rules by name; None stands for one that verifies whole trees."""


def block_efficiency(
    recordings: Sequence[Recording],
    rules: Rules = ("k-Seq", "optimal", "traversal", "walk and keep"),
    ks: Iterable[Branching] | None = None,
    gammas: Iterable[int] | None = None,
    *,
    level: float = 0.95,
) -> PairedMeans:
    """Mean number of tokens of a step, for each rule, number of drafts and length.

    The block efficiency of [sun2023]_, section 7; given the drafts it is computed, not simulated.

    Parameters
    ----------
    recordings : sequence of Recording
        From `record`.
    rules : names, or mapping from names to rules, optional
        Names in `otm.rules.RULES` of rules that have a plan for the drafts that were recorded (most
        are for i.i.d. ones), "traversal", "walk and keep", or of any tree "target-only";
        "module:name" of your own; or functions from a problem to a plan.
    ks : iterable of int or tuple of int, optional
        Numbers K of chains, or of children at the levels of a prefix tree; at most what was
        recorded, which is taken if they are left out.
    gammas : iterable of int, optional
        Lengths γ, at most the recorded one, which is taken if they are left out.
    level : float, optional
        Probability that an interval covers its mean, nearly.

    Returns
    -------
    PairedMeans
        For each `Setup` the mean with its interval; `difference` compares two of them.

    Raises
    ------
    UnknownMethodError
        If a rule is asked for by a name that does not exist.
    InvalidInputError
        If there are no recordings, or more drafts are asked for than were recorded.
    InvalidDraftCountError, ProblemTooLargeError
        If a number in `ks` is not an integer of at least 1, or has too many paths.
    InvalidParameterError
        If a rule is no function, returns no plan or is for drafts of another law, nothing is asked
        for, or the level is not above 0 and below 1.
    InvalidDraftsError
        If a rule that verifies whole paths gets drafts that are not i.i.d.

    Notes
    -----
    The contexts decide what is estimated: at those where the steps of a loop began
    (`contexts_from`) it is the block efficiency of that loop, and close to it that of one with
    other drafts; over all positions of a text it is too large.

    References
    ----------
    .. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS
       2023.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.models import TableModel
    >>> from otm.gain.recording import record
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> contexts = [[[0]] * 10] * 4
    >>> recordings = record(target, ModelDrafter(draft, 2), contexts, depth=2, seed=0)
    >>> print(block_efficiency(recordings, ["k-Seq", "traversal"], ks=[1, 2], gammas=[1, 2]))
    tokens of a step: mean ± half of the 95 % interval, 40 contexts of 4 prompts
    rule       K  γ = 1          γ = 2
    ---------  -  -------------  -------------
    k-Seq      1  1.758 ± 0.152  2.333 ± 0.288
    k-Seq      2  1.837 ± 0.111  2.516 ± 0.213
    traversal  1  1.758 ± 0.152  2.408 ± 0.200
    traversal  2  1.800 ± 0.137  2.504 ± 0.226
    """
    prompts = prompts_of(recordings, level)
    compared = named_rules(rules, KNOWN)
    chosen_ks, chosen_gammas = drafts_of(recordings, ks, gammas)
    if not compared:
        raise InvalidParameterError("there is nothing to compute; give at least one rule")
    depth = max(chosen_gammas)
    setups = itertools.product(compared, chosen_ks, chosen_gammas)
    values = {Setup(*setup): np.empty(len(recordings)) for setup in setups}
    for (r, recording), k in itertools.product(enumerate(recordings), chosen_ks):
        tree = pruned(recording.tree, k, depth)
        for name, rule in compared.items():
            means = partial(tokens_by_rule, rule) if rule else OF_WHOLE_PATHS[name]
            tokens = means(tree, recording.target.__getitem__, depth)
            for gamma in chosen_gammas:
                values[Setup(name, k, gamma)][r] = tokens[gamma]
    return PairedMeans("tokens of a step", values, prompts, level)


def first_step_acceptance(
    recordings: Sequence[Recording] | Source,
    rules: Rules = ("k-Seq", "optimal"),
    ks: Iterable[int] = (1, 2, 4, 8),
    *,
    sampling: SamplingParameters | None = None,
    level: float = 0.95,
    progress: Progress | None = None,
) -> PairedMeans:
    """Mean probability that a rule accepts one of the first drafts; exact, given the probs.

    Unlike `block_efficiency` it does not depend on what was drafted, so that any number of drafts
    can be asked for, and both models' distributions are enough.

    Parameters
    ----------
    recordings : sequence of Recording, or Source
        From `record`; or positions from `from_models` or `from_files`.
    rules : names, or mapping from names to rules, optional
        Names in `otm.rules.RULES`, "module:name" of your own, or functions from a problem to a
        plan; "traversal" and "walk and keep", which verify whole paths, have no such probability
        and are left out.
    ks : iterable of int, optional
        Numbers of drafts, at least 1.
    sampling : SamplingParameters, optional
        How to sample from both models of a `Source`; recordings were sampled already.
    level : float, optional
        Probability that an interval covers its mean, nearly.
    progress : callable, optional
        Called with what is worked on, the number of the context and of all; otherwise a terminal
        shows a line after two seconds.

    Returns
    -------
    PairedMeans
        For each `Setup` with γ = 1 the mean of `TransportPlan.acceptance`; 0 where nothing was
        drafted.

    Raises
    ------
    UnknownMethodError
        If a rule is asked for by a name that does not exist.
    InvalidInputError
        If there are no recordings or positions, or the source holds no whole distributions.
    InvalidParameterError
        If a rule is no function or returns no plan, the level is not above 0 and below 1, or a
        sampling is given beside recordings.
    InvalidDraftCountError
        If a number of drafts is not an integer of at least 1.
    ProblemTooLargeError
        If no rule has an exact acceptance for so many drafts.  If only some rules have none, the
        table leaves them out, and `left_out` has the reason.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.models import TableModel
    >>> from otm.gain.recording import record
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> recordings = record(target, ModelDrafter(draft), [[[0]], [[1]]], depth=1)
    >>> print(first_step_acceptance(recordings, ["optimal"], ks=[1, 2]))
    acceptance of a first draft: mean ± half of the 95 % interval, 2 contexts of 2 prompts
    rule     K = 1          K = 2
    -------  -------------  -------------
    optimal  0.750 ± 0.000  0.938 ± 0.000
    """
    counts = [as_draft_count(k) for k in ks]
    compared = named_rules(rules, KNOWN)
    named = {name: rule for name, rule in compared.items() if rule is not None}
    if isinstance(recordings, Sequence):
        if sampling is not None:
            raise InvalidParameterError(
                "recordings hold the distributions that were sampled from; give no sampling"
            )
        prompts = prompts_of(recordings, level)
        pairs: Iterator[Problem | None] = map(_first_pair, recordings)
    elif hasattr(recordings, "blocks"):
        prompts, pairs = recordings.prompts, _pairs_of(recordings, sampling)
    else:
        raise InvalidInputError(
            f"the recordings are {shown(recordings)}; give recordings as `record` makes them, or a "
            "source such as `from_models(...)` or `from_files(...)`"
        )
    means = compare_pairs(pairs, counts, named, prompts=prompts, level=level, progress=progress)
    return replace(means, quantity="acceptance of a first draft")


def _first_pair(recording: Recording) -> Problem | None:
    """Both distributions after the context of a recording, if anything was drafted there."""
    root = recording.tree
    return Problem(root.checked_draft_probs(), recording.target[()], 1) if root.children else None


def _pairs_of(source: Source, sampling: SamplingParameters | None) -> Iterator[Problem | None]:
    """Both distributions at each position of a source."""
    how = sampling or SamplingParameters()
    for block in source.blocks(source.bounds):
        if not isinstance(block, Pairs):
            raise InvalidInputError(
                f"{source.name} holds the most likely tokens alone; give whole distributions"
            )
        for _, (draft,), target in block.rows([how], how):
            yield Problem(draft, target, 1)


def drafts_of(
    recordings: Sequence[Recording],
    ks: Iterable[Branching] | None,
    gammas: Iterable[int] | None,
) -> tuple[list[Branching], list[int]]:
    """Numbers of drafts and lengths as asked for, or as recorded; refuses more than there are."""
    widths = _widths(recordings)
    if not widths:
        raise InvalidInputError("nothing was drafted in these recordings; record deeper ones")
    recorded = tuple(widths) if max(widths[1:], default=1) > 1 else widths[0]
    chosen_ks = [recorded] if ks is None else [as_branching(k) for k in ks]
    chosen_gammas = [len(widths)] if gammas is None else [as_gamma(gamma) for gamma in gammas]
    if not (chosen_ks and chosen_gammas):
        raise InvalidParameterError("there is nothing to compute; give at least one K and one γ")
    for k in chosen_ks:
        children = k if isinstance(k, tuple) else (k,)
        if len(children) > len(widths) or any(map(int.__gt__, children, widths)):
            raise InvalidInputError(
                f"k = {k}; the recordings have at most {tuple(widths)} drafts of a node at each "
                "level: record more, or ask for fewer"
            )
    if (depth := max(chosen_gammas)) > len(widths):
        raise InvalidInputError(
            f"γ = {depth}; the recorded drafts have at most {len(widths)} tokens: "
            "record deeper ones, or ask for less"
        )
    return chosen_ks, chosen_gammas


def _widths(recordings: Sequence[Recording]) -> list[int]:
    """Most children of a node at each level."""
    widths: defaultdict[int, int] = defaultdict(int)
    for recording in recordings:
        for node in recording.tree.nodes():
            widths[len(node.path)] = max(widths[len(node.path)], len(node.children))
    return [width for _, width in sorted(widths.items()) if width > 0]


def prompts_of(recordings: Sequence[Recording], level: float) -> npt.NDArray[np.int64]:
    """Prompts of recordings; refuses none, and a level that is no probability."""
    as_level(level)
    given: Sequence[object] = recordings
    if wrong := [each for each in given if not isinstance(each, Recording)]:
        raise InvalidInputError(
            f"the recordings hold {shown(wrong[0])}; give a list of recordings, as `record` makes "
            "them"
        )
    if not recordings:
        raise InvalidInputError("there are no recordings; make some with `record`")
    return np.array([recording.prompt for recording in recordings], dtype=np.int64)
