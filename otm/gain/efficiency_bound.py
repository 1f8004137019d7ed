"""Upper bound on the block efficiency of every memoryless lossless verifier, from recorded drafts.

Suppose that the output of a step, continued by the target, has the target's distribution. Then the
accepted path passes depth i with probability at most T_i(H) + Pr(some draft of i tokens is outside
H), for every set H of paths of i tokens. A path in H has the target's distribution T_i; a path
outside H must have been drafted (docs/theory/block.md). The best H has the paths whose ratio
T_i/D_i to the draft's distribution is at most some threshold. A verifier with a state can exceed
the bound (docs/theory/state.md).

Both terms of the bound are means over drafts. T_i(H) is the mean of T_i/D_i over the drafts in H,
so the target need not sample texts. The last token of a draft is not sampled: the bound averages
over all values of this token. For i = 1 the bound is therefore exact: it is α_K of the context. If
a threshold were used on the drafts on which it was chosen, the bound would be too small. So each
half of the prompts uses the thresholds that are best on the other half. Then the expected value of
the computed bound is an upper bound, and the interval is the usual interval of a mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from otm._core.means import Floats, PairedMeans, Setup
from otm._core.probs.sparse import align
from otm._core.ratios.bins import RatioBins
from otm.decoding.draft_tree import DraftNode
from otm.decoding.drafters.base import Branching, children_at
from otm.decoding.verifiers.base import TargetProbs
from otm.errors import InvalidInputError
from otm.gain.compared_drafts import choose_drafts, prompts_of_recordings
from otm.gain.recording import Recording, prune_tree
from otm.optimum.cut import optimal_value
from otm.problem import Problem

THRESHOLDS = 64
"""Number of thresholds at each depth."""

LEAST_THRESHOLD = 2.0**-12
"""Ratio of the smallest positive threshold to the largest finite one (the number of drafts)."""


def efficiency_bound(
    recordings: Sequence[Recording],
    ks: Iterable[Branching] | None = None,
    gammas: Iterable[int] | None = None,
    *,
    level: float = 0.95,
) -> PairedMeans:
    """Return an upper bound on `block_efficiency` for every memoryless lossless verifier.

    The bound is one plus a sum over depths i. Each term is the minimum over thresholds of
    T_i(H) + Pr(some draft of i tokens is outside H) (docs/theory/block.md).

    Parameters
    ----------
    recordings : sequence of Recording
        Recordings from `record`, from two prompts or more.
    ks : iterable of int or tuple of int, optional
        Numbers K of chains, or numbers of children per level of a prefix tree. The default is the
        recorded number, which is also the largest allowed number.
    gammas : iterable of int, optional
        Lengths γ, at most the recorded length, which is the default.
    level : float, optional
        Approximate probability that an interval covers its mean.

    Returns
    -------
    PairedMeans
        The mean and its interval for each `Setup`, with "bound" as rule. ``means | bound`` adds
        the bound to the means of rules on the same recordings, for a table and for differences.

    Raises
    ------
    InvalidInputError
        If the recordings have fewer than two prompts, or fewer drafts than `ks` or `gammas` ask
        for.
    InvalidDraftCountError, ProblemTooLargeError
        If a number in `ks` is not an integer of at least 1, or leads to too many paths.
    InvalidParameterError
        If `ks` or `gammas` is empty, or `level` is not above 0 and below 1.

    Notes
    -----
    The expected value of the bound is at least the best block efficiency at these contexts. The
    interval treats only prompts as independent. Each half of the prompts uses thresholds from the
    other half, so thresholds do not adapt to the data that they are applied to. Whether a draft
    ends early may depend only on the draft's own tokens, as for `ModelDrafter`.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter
    >>> from otm.gain import block_efficiency, record
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> contexts = [[[0]] * 10] * 4
    >>> recordings = record(target, ModelDrafter(draft, 2), contexts, depth=2, seed=0)
    >>> means = block_efficiency(recordings, "optimal", gammas=[1, 2])
    >>> print(means | efficiency_bound(recordings, gammas=[1, 2]))
    tokens per step: mean ± half of the 95 % interval, 40 contexts of 4 prompts
    rule     K  γ = 1          γ = 2
    -------  -  -------------  -------------
    optimal  2  1.933 ± 0.046  2.746 ± 0.095
    bound    2  1.938 ± 0.000  2.806 ± 0.215
    """
    prompts = prompts_of_recordings(recordings, level)
    chosen_ks, chosen_gammas = choose_drafts(recordings, ks, gammas)
    values: dict[Setup, Floats] = {}
    for k in chosen_ks:
        terms = [bound_terms(recording, k, max(chosen_gammas)) for recording in recordings]
        values |= bounds_of_terms(np.array(terms), k, chosen_gammas, prompts)
    return PairedMeans("tokens per step", values, prompts, level)


def bounds_of_terms(
    terms: Floats, k: Branching, gammas: Sequence[int], prompts: npt.NDArray[np.int64]
) -> dict[Setup, Floats]:
    """Return the bound of each recording, from terms [R, depth, THRESHOLDS] of `bound_terms`."""
    names, index = np.unique(prompts, return_inverse=True)
    if names.size < 2:
        raise InvalidInputError(
            "these recordings have only one prompt; the bound splits the prompts into two halves, "
            "so record at least two prompts"
        )
    halves = [np.flatnonzero(index % 2 == half) for half in (0, 1)]
    accepted = np.empty(terms.shape[:2])  # [R, depth]
    for here, other in (halves, halves[::-1]):
        best = terms[other].mean(axis=0).argmin(axis=-1)
        accepted[here] = terms[here][:, np.arange(terms.shape[1]), best]
    tokens = 1 + np.cumsum(accepted, axis=1)
    return {Setup("bound", k, gamma): tokens[:, gamma - 1] for gamma in gammas}


def bound_terms(recording: Recording, k: Branching, depth: int) -> Floats:
    """Return bounds on the probability of i accepted drafts, by depth i and threshold."""
    root, target_probs = prune_tree(recording.tree, k, depth), recording.target.__getitem__
    terms = np.zeros((depth, THRESHOLDS))
    # the first depth is exact and needs no threshold
    if root.children:
        _, draft, aim = align(root.checked_draft_probs(), target_probs(()))
        terms[0] = optimal_value(Problem(draft, aim, len(root.children)))
    nodes = children_at(k, 0)
    for i in range(1, depth):
        nodes *= children_at(k, i)
        if nodes:
            terms[i] = sum(cut_terms(root, target_probs, i, thresholds(nodes)))
    return terms


def thresholds(nodes: int) -> Floats:
    """Return thresholds for a depth with `nodes` drafts; none above `nodes` is ever optimal."""
    some = np.geomspace(nodes * LEAST_THRESHOLD, nodes, THRESHOLDS - 2)
    return np.concatenate([[0], some, [math.inf]])


def cut_terms(
    root: DraftNode, target_probs: TargetProbs, level: int, thresholds: Floats
) -> tuple[Floats, Floats]:
    """Estimate T_i(H) and the probability of a draft outside H, at depth i = level + 1.

    For each threshold, H has the paths whose ratio is at most the threshold. The two returned
    arrays have the shape of `thresholds`. The estimates are unbiased: their mean over the random
    drafts of the first `level` depths is the exact value.
    """
    inside, all_inside_probability = np.zeros(thresholds.shape), np.ones(thresholds.shape)

    def visit(node: DraftNode, ratio: float, share: float) -> None:
        """Add the terms below a node with this ratio; `share` is the node's weight in its level."""
        if not node.children:
            return
        target = target_probs(node.path)
        if len(node.path) < level:
            draft = node.checked_draft_probs()
            for child in node.children:
                of_child = float(target.of(child.token)) / float(draft.of(child.token))
                visit(child, ratio * of_child, share / len(node.children))
            return
        _, draft_probs, probs = align(node.checked_draft_probs(), target)
        bins = RatioBins.of(draft_probs.astype(np.float64), probs.astype(np.float64))
        # a ratio of 0 is below every threshold
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(ratio > 0, thresholds / ratio, math.inf)
        below = bins.least.searchsorted(most, side="right")
        inside[...] += share * ratio * bins.target_below[below]
        all_inside_probability[...] *= bins.draft_below[below] ** len(node.children)

    visit(root, 1.0, 1.0)
    return inside, 1 - all_inside_probability
