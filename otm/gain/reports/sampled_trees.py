"""Tokens per step of the trees that engines draft, at contexts where steps begin.

The depth γ limits a tree. A tree of depth 8 that is cut to depth 4 has fewer nodes than a tree that
was drafted with this limit, so the report drafts a tree for each γ.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from otm._core.means import Floats, Setup
from otm.decoding.drafters.base import Drafter
from otm.decoding.drafters.drawn_trees import DrawnTreeDrafter
from otm.decoding.drafters.trees import BestFirstDrafter
from otm.decoding.sampling_parameters import ranking_parameters
from otm.gain.reports.draft_sampler import DraftSampler
from otm.gain.reports.settings import Settings
from otm.gain.tokens_given_drafts import OF_WHOLE_PATHS

BEST = "best-first, target-only"
DRAWN = "best-first with a drawn child, walk and keep"

VERIFIERS = {BEST: "target-only", DRAWN: "walk and keep"}
"""The rule that verifies each kind of tree."""


def tree_setups(settings: Settings, gammas: Sequence[int]) -> list[Setup]:
    """Return each kind of tree with each number of nodes and depth; K is the number of nodes."""
    kinds = [kind for kind in VERIFIERS if kind == BEST or settings.draft_temperatures[0] > 0]
    setups = itertools.product(settings.nodes, kinds, gammas)
    return [Setup(kind, nodes, gamma) for nodes, kind, gamma in setups]


def tokens_of_trees(sampler: DraftSampler, setup: Setup) -> Floats:
    """Return the mean tokens of a step after each context, averaged over the verifier's coins."""
    means = OF_WHOLE_PATHS[VERIFIERS[setup.rule]]
    prompts, tokens = [], []
    for recording in sampler.stream(_drafter(sampler, setup), setup.gamma):
        of_depths = means(recording.tree, recording.target.__getitem__, setup.gamma)
        prompts.append(recording.prompt)
        tokens.append(float(of_depths[-1]))
    # the prompts of a batch alternate in a stream
    return np.array(tokens)[np.argsort(prompts, kind="stable")]


def _drafter(sampler: DraftSampler, setup: Setup) -> Drafter:
    """Return the drafter that `AssistedDecoding` uses for a kind of tree."""
    assert isinstance(setup.k, int)
    if setup.rule == DRAWN:
        return DrawnTreeDrafter(sampler.draft, setup.k, sampling=sampler.draft_sampling)
    ranking = ranking_parameters(sampler.draft_sampling)
    return BestFirstDrafter(sampler.draft, setup.k, sampling=ranking)
