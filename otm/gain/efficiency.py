"""Block efficiency from recorded drafts and distributions, without decoding.

The number of tokens per step depends on the drafts and on the verifier's random numbers. The mean
over the random numbers is computed exactly, so only contexts and drafts cause noise. All rules,
numbers of drafts and lengths see the same drafts, which removes most noise from their differences.

For K = 1, every rule that is optimal for one draft equals the chain verification of Leviathan et
al. (2023), and traversal equals block verification.

End tokens and maximum lengths, which shorten steps, are ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from otm._core.checks import as_draft_count
from otm._core.display.progress import Progress
from otm._core.display.text import shown
from otm._core.means import Floats, PairedMeans, Setup
from otm.coupling.build import PLANS, PlanBuilder, named_rules
from otm.coupling.compare.many_rows import compare_pairs
from otm.decoding.drafters.base import Branching
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.compared_drafts import ComparedDrafts, prompts_of_recordings
from otm.gain.efficiency_bound import bound_terms, bounds_of_terms
from otm.gain.recording import Recording, prune_tree
from otm.gain.reports.pairs import Pairs
from otm.gain.reports.score_files import Source
from otm.gain.tokens_given_drafts import OF_WHOLE_PATHS, tokens_by_rule
from otm.problem import Problem

Rules = Iterable[str] | Mapping[str, PlanBuilder | None]
"""Names of rules, or a mapping from names to plan builders, or to None as in `KNOWN`."""

KNOWN: dict[str, PlanBuilder | None] = {**PLANS, **dict.fromkeys(OF_WHOLE_PATHS)}
"""Rules by name; None marks a rule that verifies whole trees."""


def block_efficiency(
    recordings: Iterable[Recording],
    rules: Rules = ("k-Seq", "optimal", "traversal", "walk and keep"),
    ks: Iterable[Branching] | None = None,
    gammas: Iterable[int] | None = None,
    *,
    bound: bool = False,
    level: float = 0.95,
) -> PairedMeans:
    """Return the mean tokens per step, by rule, number of drafts and length.

    The mean is the block efficiency of [sun2023]_, section 7, computed from the recorded drafts
    without simulation.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings from `record`, or the iterator of `stream_recordings`, which keeps one recording
        at a time in memory.
    rules : names, or mapping from names to rules, optional
        Names in `otm.rules.RULES` of rules that have a plan for the recorded drafts (most plans are
        for i.i.d. drafts), or "traversal", "walk and keep" or "target-only", which verify any tree.
        Your own rules are given as "module:name" or as functions from a problem to a plan.
    ks : iterable of int or tuple of int, optional
        Numbers K of chains, or numbers of children per level of a prefix tree. The default is the
        recorded number, which is also the largest allowed number. An iterator has no default.
    gammas : iterable of int, optional
        Lengths γ, at most the recorded length, which is the default, except for an iterator.
    bound : bool, optional
        Whether to add the bound of `efficiency_bound`, which also needs the recordings.
    level : float, optional
        Approximate probability that an interval covers its mean.

    Returns
    -------
    PairedMeans
        The mean and its interval for each `Setup`; `difference` compares two setups.

    Raises
    ------
    UnknownMethodError
        If a rule name is unknown.
    InvalidInputError
        If there are no recordings, or they have fewer drafts than `ks` or `gammas` ask for, or
        `bound` is true and they have fewer than two prompts.
    InvalidDraftCountError, ProblemTooLargeError
        If a number in `ks` is not an integer of at least 1, or has too many paths.
    InvalidParameterError
        If a rule is not a function, returns no plan, or needs drafts of another distribution. The
        same error is raised if `rules`, `ks` or `gammas` is empty or missing, or `level` is not
        above 0 and below 1.
    InvalidDraftsError
        If a rule that verifies whole paths gets drafts that are not i.i.d.

    Notes
    -----
    What the mean estimates depends on the contexts. Use the contexts at which the steps of a
    decoding loop began (`contexts_from`). For these contexts, the mean estimates the block
    efficiency of the loop that they come from, and approximately that of loops with other drafts.
    A mean over all positions of a text is larger than the block efficiency.

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
    tokens per step: mean ± half of the 95 % interval, 40 contexts of 4 prompts
    rule       K  γ = 1          γ = 2
    ---------  -  -------------  -------------
    k-Seq      1  1.758 ± 0.152  2.333 ± 0.288
    k-Seq      2  1.837 ± 0.111  2.516 ± 0.213
    traversal  1  1.758 ± 0.152  2.408 ± 0.200
    traversal  2  1.800 ± 0.137  2.504 ± 0.226
    """
    drafts = ComparedDrafts(recordings, ks, gammas, level)
    compared = named_rules(rules, KNOWN)
    if not compared:
        raise InvalidParameterError("`rules` is empty; give at least one rule")
    depth = max(drafts.gammas)
    setups = [Setup(*setup) for setup in itertools.product(compared, drafts.ks, drafts.gammas)]
    rows: dict[Setup, list[float]] = {setup: [] for setup in setups}
    terms: dict[Branching, list[Floats]] = {k: [] for k in drafts.ks if bound}
    for recording in drafts:
        for k in drafts.ks:
            tree = prune_tree(recording.tree, k, depth)
            for name, rule in compared.items():
                means = partial(tokens_by_rule, rule) if rule else OF_WHOLE_PATHS[name]
                tokens = means(tree, recording.target.__getitem__, depth)
                for gamma in drafts.gammas:
                    rows[Setup(name, k, gamma)].append(float(tokens[gamma]))
            if bound:
                terms[k].append(bound_terms(recording, k, depth))
    prompts = drafts.prompts
    values = {setup: drafts.sort(row) for setup, row in rows.items()}
    for k, of_recordings in terms.items():
        values |= bounds_of_terms(drafts.sort(of_recordings), k, drafts.gammas, prompts)
    return PairedMeans("tokens per step", values, prompts, level)


def first_step_acceptance(
    recordings: Sequence[Recording] | Source,
    rules: Rules = ("k-Seq", "optimal"),
    ks: Iterable[int] = (1, 2, 4, 8),
    *,
    sampling: SamplingParameters | None = None,
    level: float = 0.95,
    progress: Progress | None = None,
) -> PairedMeans:
    """Return the mean probability that a rule accepts one of the first drafts.

    The mean is computed exactly from the distributions. Unlike `block_efficiency`, this mean does
    not depend on the sampled drafts. So `ks` may exceed the number of recorded drafts, and
    `recordings` may be a source that has only distributions.

    Parameters
    ----------
    recordings : sequence of Recording, or Source
        Recordings from `record`, or positions from `from_models` or `from_files`.
    rules : names, or mapping from names to rules, optional
        Names in `otm.rules.RULES`, "module:name" for your own rule, or functions from a problem to
        a plan. Rules that verify whole paths, such as "walk and keep", have no first-step
        acceptance and are skipped.
    ks : iterable of int, optional
        Numbers of drafts, at least 1.
    sampling : SamplingParameters, optional
        Sampling parameters of both models, for a `Source` only. In recordings, `record` has already
        applied the sampling parameters.
    level : float, optional
        Approximate probability that an interval covers its mean.
    progress : callable, optional
        Function that receives a description, the number of the context and the number of contexts.
        If omitted, a terminal shows a progress line after two seconds.

    Returns
    -------
    PairedMeans
        For each `Setup` with γ = 1, the mean of `TransportPlan.acceptance`. A context without
        drafts has the value 0.

    Raises
    ------
    UnknownMethodError
        If a rule name is unknown.
    InvalidInputError
        If there are no recordings or positions, or the source has only the most probable tokens.
    InvalidParameterError
        If a rule is not a function or returns no plan, `level` is not above 0 and below 1, or
        `sampling` is given together with recordings.
    InvalidDraftCountError
        If a number of drafts is not an integer of at least 1.
    ProblemTooLargeError
        If no rule has an exact acceptance for any number of drafts in `ks`.  If only some rules
        have no exact acceptance, the table leaves these rules out, and `left_out` has the reason.

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
                "recordings already fix the sampling parameters; omit `sampling`"
            )
        prompts = prompts_of_recordings(recordings, level)
        pairs: Iterator[Problem | None] = map(_first_pair, recordings)
    elif hasattr(recordings, "blocks"):
        prompts, pairs = recordings.prompts, _pairs_of(recordings, sampling)
    else:
        raise InvalidInputError(
            f"the recordings are {shown(recordings)}; give recordings from `record`, or a source "
            "such as `from_models(...)` or `from_files(...)`"
        )
    means = compare_pairs(pairs, counts, named, prompts=prompts, level=level, progress=progress)
    return replace(means, quantity="acceptance of a first draft")


def _first_pair(recording: Recording) -> Problem | None:
    """Return both distributions after the context of a recording; None without drafts."""
    root = recording.tree
    return Problem(root.checked_draft_probs(), recording.target[()], 1) if root.children else None


def _pairs_of(source: Source, sampling: SamplingParameters | None) -> Iterator[Problem | None]:
    """Yield both distributions at each position of a source."""
    how = sampling or SamplingParameters()
    for block in source.blocks(source.bounds):
        if not isinstance(block, Pairs):
            raise InvalidInputError(
                f"{source.name} has only the most probable tokens; give whole distributions"
            )
        for _, (draft,), target in block.rows([how], how):
            yield Problem(draft, target, 1)
