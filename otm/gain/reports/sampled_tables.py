"""Rows of a report about the drafts that it sampled: rules, bounds, trees and their differences."""

from __future__ import annotations

from typing import Any

from otm._core.means import PairedMeans, Setup
from otm.gain.reports.sampled_drafts import BOUND
from otm.gain.reports.sampled_trees import BEST, DRAWN, VERIFIERS
from otm.gain.reports.settings import PATH_RULES, Settings

TableRow = dict[str, Any]


def sampled_tables(sampled: PairedMeans, settings: Settings) -> dict[str, list[TableRow]]:
    """Return the rows of each table, by the name of its attribute in `Summary`."""
    main = {"draft temperature": settings.draft_temperatures[0]}
    tables: dict[str, list[TableRow]] = {
        name: [] for name in ("sampled_drafts", "sampled_bounds", "sampled_trees")
    }
    for setup in sampled:
        rule, k, gamma = setup
        mean = sampled[setup]
        if rule in VERIFIERS:
            row = {"rule": rule, "nodes": k, "gamma": gamma, "mean": mean}
            tables["sampled_trees"].append(main | row)
        elif rule == BOUND:
            tables["sampled_bounds"].append(main | {"K": k, "gamma": gamma, "bound": mean})
        else:
            row = {"rule": rule, "K": k, "gamma": gamma, "mean": mean}
            tables["sampled_drafts"].append(main | row)
    differences = [main | row for row in _tree_differences(sampled, settings)]
    return {**tables, "tree_differences": differences}


def _tree_differences(sampled: PairedMeans, settings: Settings) -> list[TableRow]:
    """Return the paired differences of trees to chains, then of both kinds of trees."""
    trees = [setup for setup in sampled if setup.rule in VERIFIERS]
    pairs = [(tree, _most_chains(sampled, settings, tree)) for tree in trees]
    pairs += [(tree, Setup(BEST, tree.k, tree.gamma)) for tree in trees if tree.rule == DRAWN]
    return [
        {
            "of": tree.rule,
            "nodes": tree.k,
            "less": other.rule,
            "K": None if other.rule in VERIFIERS else other.k,
            "gamma": tree.gamma,
            "mean": sampled.difference(tree, other),
        }
        for tree, other in pairs
        if other is not None
    ]


def _most_chains(sampled: PairedMeans, settings: Settings, tree: Setup) -> Setup | None:
    """Return the best rule with the most chains that have at most as many drafts as a tree.

    If no number of chains has so few drafts, return the rule with one chain.
    """
    rules = sorted(settings.path_rules, key=PATH_RULES.index)[-1:] or settings.capped_rules[:1]
    chains = {
        setup.k: setup
        for setup in sampled
        if setup.rule in rules and setup.gamma == tree.gamma and isinstance(setup.k, int)
    }
    assert isinstance(tree.k, int)
    most = max(1, tree.k // tree.gamma)
    return chains[max(k for k in chains if k <= most)] if chains else None
