"""Acceptance of the rules for several drafts of several tokens, relative to the exact optimum."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import otm
from figures.progress import progress
from figures.registry import experiment
from figures.table import Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure
from otm._core.probs.sparse import SparseProbs
from otm.coupling import KSeq, OptimalPlan
from otm.decoding import DraftNode
from otm.decoding.reading import Path
from otm.gain.tokens_given_drafts import tokens_by_rule, tokens_by_traversal, tokens_by_walk

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEED = 0
INSTANCES = 5
SIZES = ((2, 2), (3, 2), (2, 3), (3, 3))
"""Pairs of the number of drafts K and the number of tokens per draft L."""

STRANGENESS = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Values of λ; the draft model is proportional to T^(1 − λ) R^λ, for unrelated T and R."""

VOCABULARY = 2
Laws = dict[Path, npt.NDArray[np.float64]]


def random_laws(rng: np.random.Generator, length: int) -> Laws:
    """Draw a Dirichlet(1) distribution after each path."""
    return {
        path: rng.dirichlet(np.ones(VOCABULARY))
        for depth in range(length)
        for path in itertools.product(range(VOCABULARY), repeat=depth)
    }


def between(target: Laws, other: Laws, share: float) -> Laws:
    """Return the distributions proportional to T^(1 − λ) R^λ."""
    weights = {path: target[path] ** (1 - share) * other[path] ** share for path in target}
    return {path: weight / weight.sum() for path, weight in weights.items()}


def all_drafts(draft: Laws, k: int, length: int) -> Iterator[tuple[float, DraftNode]]:
    """Yield all trees of K chains with their probabilities."""
    probs = {path: SparseProbs.from_dense(row) for path, row in draft.items()}
    chains = list(itertools.product(range(VOCABULARY), repeat=length))
    for drafted in itertools.product(chains, repeat=k):
        root, probability = DraftNode(), 1.0
        for chain in drafted:
            node = root
            for token in chain:
                probability *= float(draft[node.path][token])
                node.draft_probs = probs[node.path]
                node.children.append(DraftNode((*node.path, token)))
                node = node.children[-1]
        yield probability, root


def accepted(target: Laws, draft: Laws, k: int, length: int) -> dict[str, float]:
    """Compute the expected accepted drafts of the optimum, and of each rule by enumeration."""

    @cache
    def law(path: Path) -> SparseProbs:
        row = target.get(path)
        return SparseProbs.from_dense(np.full(VOCABULARY, 0.5) if row is None else row)

    found = dict.fromkeys(RULES, 0.0)
    for probability, root in all_drafts(draft, k, length):
        tokens = {
            "k-Seq": tokens_by_rule(KSeq, root, law, length),
            "recursion, optimal plan": tokens_by_rule(OptimalPlan, root, law, length),
            "traversal": tokens_by_traversal(root, law, length),
            "walk and keep": tokens_by_walk(root, law, length),
        }
        for rule, means in tokens.items():
            found[rule] += probability * (float(means[length]) - 1)
    best = otm.solve_block(draft.__getitem__, target.__getitem__, k, length)
    return found | {"optimum": float(best.accepted)}


@experiment(seed=SEED, models="random pairs of models", full=lambda: {"instances": 40})
def block_optimum(instances: int = INSTANCES, sizes: Sequence[tuple[int, int]] = SIZES) -> Table:
    """How near rules for several drafts of several tokens come to the exact optimum.

    Each rule attains a share of the largest expected number of accepted drafts, which
    `otm.solve_block` computes.  The share is exact for each pair of models, by enumeration of all
    drafts, and averaged over random pairs.  The models have two tokens, with a Dirichlet(1)
    distribution after each path.  The draft model equals the target for λ = 0, and is unrelated
    to it for λ = 1.
    """
    rng = np.random.default_rng(SEED)
    pairs = [tuple(random_laws(rng, 3) for _ in range(2)) for _ in range(instances)]
    cases = list(itertools.product(sizes, STRANGENESS))
    rows = []
    for (k, length), share in progress(cases, len(cases), "block_optimum"):
        shares: dict[str, list[float]] = {rule: [] for rule in RULES}
        for target, other in pairs:
            found = accepted(target, between(target, other, share), k, length)
            for rule in RULES:
                shares[rule].append(found[rule] / found["optimum"])
        rows += [
            (k, length, share, rule, float(np.mean(values)), float(np.min(values)))
            for rule, values in shares.items()
        ]
    return Table(("K", "L", "strangeness", "rule", "share", "least"), tuple(rows))


@block_optimum.drawing
def draw_block_optimum(table: Table) -> Figure:
    """Draw one panel per size and one line per rule."""
    figure = blank_figure(height=2.6, wide=True)
    panels = figure.subplots(1, len(SIZES), sharey=True)
    for axes, (k, length) in zip(panels, SIZES, strict=True):
        for rule, colour, marker in zip(RULES, COLOURS, MARKERS, strict=False):
            rows = table.where(K=k, L=length, rule=rule)
            axes.plot(
                rows["strangeness"], rows["share"],
                color=colour, marker=marker, markersize=3.5, label=rule,
            )  # fmt: skip
        axes.axhline(1, color="#444444", linewidth=0.8, linestyle="--")
        axes.set_title(f"$K = {k}$, $L = {length}$", fontsize=9)
        axes.set_xlabel("$\\lambda$ of the draft")
    panels[0].set_ylabel("share of the optimum")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


RULES = ("k-Seq", "recursion, optimal plan", "traversal", "walk and keep")
