"""Block efficiency from recorded drafts and laws, without decoding.

How many tokens a step adds depends on its drafts and on the verifier's coins.  The mean over the
coins is computed (`expected_tokens`), so that contexts and drafts are the only noise; and all
rules, numbers of drafts and lengths see the same drafts, so that most of this noise is gone from
their differences.

With one chain, K = 1, every rule that is optimal for one draft is the chain verification of
Leviathan et al. (2023), and traversal is block verification.

End tokens and a longest length, which cut steps short, are left out of account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Law
from otm._core.checks import as_draft_count
from otm._core.numbers import as_level
from otm._core.sparse import align
from otm.coupling.build import PLANS, PlanBuilder, build_plan, named_rules
from otm.decoding.drafting import Branching, DraftNode, as_branching
from otm.decoding.policies import as_gamma
from otm.decoding.verification import TargetProbs
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.expected_tokens import tokens_by_rule, tokens_by_traversal
from otm.gain.paired_means import PairedMeans, Setup
from otm.gain.recording import Recording, pruned
from otm.problem import Problem

Rules = Iterable[str] | Mapping[str, PlanBuilder | None]
"""Names of rules; or functions from a problem to a plan by name, with None for traversal."""

Judge = Callable[[DraftNode, TargetProbs, int], Law]
"""From drafts, the target's laws and a depth to the mean number of tokens for each γ up to it."""

WITH_TRAVERSAL: dict[str, PlanBuilder | None] = {**PLANS, "traversal": None}
"""Rules by name; None stands for traversal, which judges whole paths."""


def block_efficiency(
    recordings: Sequence[Recording],
    rules: Rules = ("k-Seq", "optimal", "traversal"),
    ks: Iterable[Branching] | None = None,
    gammas: Iterable[int] | None = None,
    *,
    level: float = 0.95,
) -> PairedMeans:
    """Mean number of tokens of a step, for each rule, number of drafts and length.

    The block efficiency of [sun2023]_, section 7; given the drafts it is computed, not simulated
    (`otm.gain.expected_tokens`).

    Parameters
    ----------
    recordings : sequence of Recording
        From `record`.
    rules : names, or mapping from names to rules, optional
        Names in `otm.coupling.RULES` of rules for i.i.d. drafts, or "traversal"; or functions from
        a problem to a plan.
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
        If a rule is no function, returns no plan or is for drafts that are not independent, nothing
        is asked for, or the level is not above 0 and below 1.

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
    _check(recordings, level)
    judges = {name: _judge(rule) for name, rule in named_rules(rules, WITH_TRAVERSAL).items()}
    widths = _widths(recordings)
    if not widths:
        raise InvalidInputError("nothing was drafted in these recordings; record deeper ones")
    recorded = tuple(widths) if max(widths[1:], default=1) > 1 else widths[0]
    given_ks = [recorded] if ks is None else [as_branching(k) for k in ks]
    given_gammas = [len(widths)] if gammas is None else [as_gamma(gamma) for gamma in gammas]
    if not (judges and given_ks and given_gammas):
        raise InvalidParameterError("there is nothing to compute; give at least one rule, K and γ")
    for k in given_ks:
        wanted = k if isinstance(k, tuple) else (k,)
        if len(wanted) > len(widths) or any(map(int.__gt__, wanted, widths)):
            raise InvalidInputError(
                f"k = {k}; the recordings have at most {tuple(widths)} drafts of a node at each "
                "level: record more, or ask for fewer"
            )
    if max(given_gammas) > len(widths):
        raise InvalidInputError(
            f"γ = {max(given_gammas)}; the recorded drafts have at most {len(widths)} tokens: "
            "record deeper ones, or ask for less"
        )
    values = {
        Setup(name, k, gamma): np.empty(len(recordings))
        for name in judges
        for k in given_ks
        for gamma in given_gammas
    }
    for r, recording in enumerate(recordings):
        for k in given_ks:
            tree = pruned(recording.tree, k, max(given_gammas))
            for name, judge in judges.items():
                tokens = judge(tree, recording.target.__getitem__, max(given_gammas))
                for gamma in given_gammas:
                    values[Setup(name, k, gamma)][r] = tokens[gamma]
    return PairedMeans("tokens of a step", values, _prompts(recordings), level)


def first_step_acceptance(
    recordings: Sequence[Recording],
    rules: Rules = ("k-Seq", "optimal"),
    ks: Iterable[int] = (1, 2, 4, 8),
    *,
    level: float = 0.95,
) -> PairedMeans:
    """Mean probability that a rule accepts one of the first drafts, exactly given the laws.

    Unlike `block_efficiency` it does not depend on what was drafted, so that any number of drafts
    can be asked for.

    Parameters
    ----------
    recordings : sequence of Recording
        From `record`.
    rules : names, or mapping from names to rules, optional
        Names in `otm.coupling.RULES`, or functions from a problem to a plan; "traversal", which
        judges whole paths, has no such probability and is left out.
    ks : iterable of int, optional
        Numbers of drafts, at least 1.
    level : float, optional
        Probability that an interval covers its mean, nearly.

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
        If there are no recordings.
    InvalidParameterError
        If a rule is no function or returns no plan, or the level is not above 0 and below 1.
    InvalidDraftCountError
        If a number of drafts is not an integer of at least 1.
    ProblemTooLargeError
        If a rule has no exact acceptance for so many drafts.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.models import TableModel
    >>> from otm.gain.recording import record
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> recordings = record(target, ModelDrafter(draft), [[[0]], [[1]]], depth=1)
    >>> print(first_step_acceptance(recordings, ["optimal"], ks=[1, 2]))
    acceptance of a first draft: mean ± half of the 95 % interval, 2 contexts of 2 prompts
    rule     K  γ = 1
    -------  -  -------------
    optimal  1  0.750 ± 0.000
    optimal  2  0.938 ± 0.000
    """
    _check(recordings, level)
    counts = [as_draft_count(k) for k in ks]
    known = named_rules(rules, WITH_TRAVERSAL)
    named = {name: rule for name, rule in known.items() if rule is not None}
    values = {Setup(name, k, 1): np.zeros(len(recordings)) for name in named for k in counts}
    for r, recording in enumerate(recordings):
        if recording.tree.children:
            _, draft, aim = align(recording.tree.checked_draft_probs(), recording.target[()])
            for k in counts:
                problem = Problem(draft, aim, k)
                for name, rule in named.items():
                    values[Setup(name, k, 1)][r] = build_plan(rule, problem).acceptance
    return PairedMeans("acceptance of a first draft", values, _prompts(recordings), level)


def _judge(rule: PlanBuilder | None) -> Judge:
    return tokens_by_traversal if rule is None else partial(tokens_by_rule, rule)


def _widths(recordings: Sequence[Recording]) -> list[int]:
    """Most children of a node at each level."""
    widths: dict[int, int] = {}
    for recording in recordings:
        for node in recording.tree.nodes():
            if node.children:
                level = len(node.path)
                widths[level] = max(widths.get(level, 0), len(node.children))
    return [widths[level] for level in sorted(widths)]


def _check(recordings: Sequence[Recording], level: float) -> None:
    as_level(level)
    if not recordings:
        raise InvalidInputError("there are no recordings; make some with `record`")


def _prompts(recordings: Sequence[Recording]) -> npt.NDArray[np.int64]:
    return np.array([recording.prompt for recording in recordings], dtype=np.int64)
