"""Bound on the block efficiency of any memoryless lossless verifier, from recorded drafts.

If the output of a step, continued by the target, has the target's distribution, then the accepted
path goes through depth i with probability at most T_i(H) + Pr(some draft of i tokens is outside H),
for every set H of paths of i tokens: if it is in H it has the target's distribution T_i, and if not
it must have been drafted (docs/theory/block.md).  The best H holds the paths whose ratio T_i/D_i to
the draft's distribution is at most some threshold.  A verifier with a state can exceed the bound
(docs/theory/state.md).

Both terms are means over drafts.  T_i(H) is that of T_i/D_i on the drafts in H, so that the target
need not write texts of its own.  The last token of a draft is averaged over, not drawn; for i = 1
nothing is left to chance, and the bound is α_K of the context.  A threshold that was chosen where
it is used would make the bound too small: the drafts of each half of the prompts take the
thresholds that are best on the other half.  So the mean of what is computed is an upper bound, and
its interval covers it as any interval of a mean does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from otm._core.means import Floats, PairedMeans, Setup
from otm._core.probs.sparse import align
from otm._core.ratios.bins import RatioBins
from otm.decoding.draft_tree import DraftNode
from otm.decoding.drafters.base import Branching, children_at
from otm.decoding.verifiers.base import TargetProbs
from otm.errors import InvalidInputError
from otm.gain.efficiency import drafts_of, prompts_of
from otm.gain.recording import Recording, pruned
from otm.optimum.cut import optimal_value
from otm.problem import Problem

THRESHOLDS = 64
"""Thresholds that are tried at each depth."""

LEAST_THRESHOLD = 2.0**-12
"""The least of them but for 0, as a share of the largest, the number of drafts."""


def efficiency_bound(
    recordings: Sequence[Recording],
    ks: Iterable[Branching] | None = None,
    gammas: Iterable[int] | None = None,
    *,
    level: float = 0.95,
) -> PairedMeans:
    """Upper bound on `block_efficiency` for every memoryless lossless verifier, known or not.

    One plus the sum over depths i of the least T_i(H) + Pr(some draft of i tokens is outside H)
    over thresholds (docs/theory/block.md).

    Parameters
    ----------
    recordings : sequence of Recording
        From `record`, of two prompts or more.
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
        For each `Setup`, with "bound" for a rule, the mean and its interval.  ``means | bound``
        puts it beside rules on the same recordings, for a table and for differences.

    Raises
    ------
    InvalidInputError
        If the recordings are of fewer than two prompts, or have fewer drafts than are asked for.
    InvalidDraftCountError, ProblemTooLargeError
        If a number in `ks` is not an integer of at least 1, or has too many paths.
    InvalidParameterError
        If nothing is asked for, or the level is not above 0 and below 1.

    Notes
    -----
    The mean is at least the best block efficiency at these contexts; its interval takes prompts
    alone to be independent.  Thresholds of one half of the prompts come from the other half, so
    that they do not adapt to what they are applied to.  That a draft ends early may depend on its
    own tokens and on nothing else, as for `ModelDrafter`.

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
    tokens of a step: mean ± half of the 95 % interval, 40 contexts of 4 prompts
    rule     K  γ = 1          γ = 2
    -------  -  -------------  -------------
    optimal  2  1.933 ± 0.046  2.746 ± 0.095
    bound    2  1.938 ± 0.000  2.806 ± 0.215
    """
    prompts = prompts_of(recordings, level)
    chosen_ks, chosen_gammas = drafts_of(recordings, ks, gammas)
    names, index = np.unique(prompts, return_inverse=True)
    if names.size < 2:
        raise InvalidInputError(
            "these recordings are of one prompt; the bound chooses thresholds on one half of the "
            "prompts and applies them to the other: record at least two"
        )
    halves = [np.flatnonzero(index % 2 == half) for half in (0, 1)]
    values: dict[Setup, Floats] = {}
    depth = max(chosen_gammas)
    for k in chosen_ks:
        terms = np.array([_terms(recording, k, depth) for recording in recordings])
        accepted = np.empty(terms.shape[:2])  # [R, depth]
        for here, other in (halves, halves[::-1]):
            best = terms[other].mean(axis=0).argmin(axis=-1)
            accepted[here] = terms[here][:, np.arange(depth), best]
        tokens = 1 + np.cumsum(accepted, axis=1)
        values |= {Setup("bound", k, gamma): tokens[:, gamma - 1] for gamma in chosen_gammas}
    return PairedMeans("tokens of a step", values, prompts, level)


def _terms(recording: Recording, k: Branching, depth: int) -> Floats:
    """Bounds on the probability of i accepted drafts, for each depth i and threshold."""
    root, target_probs = pruned(recording.tree, k, depth), recording.target.__getitem__
    terms = np.zeros((depth, THRESHOLDS))
    if root.children:  # the first depth exactly, whatever the threshold
        _, draft, aim = align(root.checked_draft_probs(), target_probs(()))
        terms[0] = optimal_value(Problem(draft, aim, len(root.children)))
    nodes = children_at(k, 0)
    for i in range(1, depth):
        nodes *= children_at(k, i)
        if nodes:
            terms[i] = sum(cut_terms(root, target_probs, i, thresholds(nodes)))
    return terms


def thresholds(nodes: int) -> Floats:
    """Thresholds of a depth with so many drafts: none above can be best, as no slope of g is."""
    some = np.geomspace(nodes * LEAST_THRESHOLD, nodes, THRESHOLDS - 2)
    return np.concatenate([[0], some, [math.inf]])


def cut_terms(
    root: DraftNode, target_probs: TargetProbs, level: int, thresholds: Floats
) -> tuple[Floats, Floats]:
    """Estimate T_i(H), and the probability of a draft outside of H, for depth i = level + 1.

    H has the paths whose ratio is at most each threshold: arrays of their shape, whose means over
    the drafts above this depth are the two.
    """
    inside, none_outside = np.zeros(thresholds.shape), np.ones(thresholds.shape)

    def visit(node: DraftNode, ratio: float, share: float) -> None:
        """Add what follows a node with this ratio; its share is its weight among its level."""
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
        with np.errstate(divide="ignore", invalid="ignore"):  # a ratio of 0 is below all
            most = np.where(ratio > 0, thresholds / ratio, math.inf)
        below = bins.least.searchsorted(most, side="right")
        inside[...] += share * ratio * bins.target_below[below]
        none_outside[...] *= bins.draft_below[below] ** len(node.children)

    visit(root, 1.0, 1.0)
    return inside, 1 - none_outside
