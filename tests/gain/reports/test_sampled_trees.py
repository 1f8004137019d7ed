"""Trees that engines draft, in a report: their tokens per step, and what they are compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otm._core.means import PairedMeans, Setup
from otm.decoding import BestFirstDrafter, Drafter, DrawnTreeDrafter, SamplingParameters
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.gain import Recording, Settings, block_efficiency, from_files, from_models, record, report
from otm.gain.reports.draft_sampler import SEED, DraftSampler
from otm.gain.reports.sampled_tables import sampled_tables
from otm.gain.reports.sampled_trees import BEST, DRAWN, tokens_of_trees, tree_setups
from otm.models import TableModel
from tests.gain.reports.instruct import write_model

# The next token depends on the last one, so contexts differ.
DRAFT = TableModel({(): [0.5, 0.25, 0.25], (1,): [0.25, 0.5, 0.25], (2,): [0.125, 0.125, 0.75]})
TARGET = TableModel({(): [0.25, 0.25, 0.5], (1,): [0.125, 0.25, 0.625], (2,): [0.5, 0.125, 0.375]})
CONTEXTS = [[(0,), (0, 1)], [(2,)], [(1,), (1, 2), (1, 2, 0)]]


class CountedDrafts(DraftSampler):
    """A sampler that keeps the number of drafts of each tree."""

    def stream(self, drafter: Drafter, depth: int) -> Iterator[Recording]:
        vars(self)["counts"] = counts = []
        for recording in super().stream(drafter, depth):
            counts.append(sum(1 for _ in recording.tree.nodes()) - 1)
            yield recording


@pytest.mark.parametrize("kind", [BEST, DRAWN])
@pytest.mark.parametrize(("nodes", "gamma"), [(1, 2), (5, 2), (6, 3)])
def test_tokens_are_those_of_block_efficiency_at_each_context(
    kind: str, nodes: int, gamma: int
) -> None:
    """Catches another verifier, contexts in another order, trees above the budget, deep trees."""
    sampler = CountedDrafts(TARGET, DRAFT, Settings(), CONTEXTS)
    tokens = tokens_of_trees(sampler, Setup(kind, nodes, gamma))
    drafter = (BestFirstDrafter if kind == BEST else DrawnTreeDrafter)(DRAFT, nodes)
    rule = "target-only" if kind == BEST else "walk and keep"
    recordings = record(TARGET, drafter, CONTEXTS, gamma, seed=SEED)
    means = [block_efficiency([recording], [rule]).values for recording in recordings]
    assert tokens.tolist() == [next(iter(values.values())).item() for values in means]
    assert len(set(tokens.tolist())) > 1
    assert max(vars(sampler)["counts"]) <= nodes
    assert kind == DRAWN or max(vars(sampler)["counts"]) == nodes


def test_a_draft_without_chance_draws_no_child() -> None:
    """Catches a second kind of tree with equal numbers at temperature 0, and a chain for both."""
    settings = Settings(sampling=SamplingParameters(temperature=0), nodes=(4,))
    assert tree_setups(settings, (1, 2)) == [Setup(BEST, 4, 1), Setup(BEST, 4, 2)]
    sampler = CountedDrafts(TARGET, DRAFT, settings, CONTEXTS)
    tokens_of_trees(sampler, Setup(BEST, 4, 2))
    assert set(vars(sampler)["counts"]) == {4}


def tables_of(path_rules: tuple[str, ...], nodes: int) -> dict[str, list[dict[str, Any]]]:
    """Return the tables for trees of depth 4 beside K chains with K tokens, or 8 with block."""
    settings = Settings(ks=(1, 2, 4), rules=("optimal",), path_rules=path_rules, nodes=(nodes,))
    values = {Setup(rule, k, 4): k for rule in ("optimal", *path_rules) for k in (1, 2, 4)}
    values = {setup: k for setup, k in values.items() if setup.rule != "block" or k == 1}
    values |= {Setup("block", 1, 4): 8} if "block" in path_rules else {}
    values |= {Setup(BEST, nodes, 4): 16, Setup(DRAWN, nodes, 4): 18, Setup("bound", 1, 4): 32}
    sampled = {setup: np.array([x, x + 0.5]) for setup, x in values.items()}
    return sampled_tables(PairedMeans("tokens", sampled, np.arange(2)), settings)


@pytest.mark.parametrize(
    ("path_rules", "nodes", "rule", "k"),
    [
        (("branch and keep", "walk and keep"), 8, "branch and keep", 2),
        (("branch and keep", "walk and keep"), 11, "branch and keep", 2),
        (("traversal",), 16, "traversal", 4),
        (("traversal",), 3, "traversal", 1),
        (("block",), 16, "block", 1),
        ((), 8, "optimal", 2),
    ],
)
def test_trees_are_compared_with_chains_of_as_few_drafts(
    path_rules: tuple[str, ...], nodes: int, rule: str, k: int
) -> None:
    """Catches chains with more drafts than the tree, a weaker rule, and a sign."""
    rows = tables_of(path_rules, nodes)["tree_differences"]
    chains = 8 if rule == "block" else k
    found = [(row["of"], row["less"], row["K"], row["mean"].mean) for row in rows]
    assert found == [
        (BEST, rule, k, 16 - chains), (DRAWN, rule, k, 18 - chains), (DRAWN, BEST, None, 2)
    ]  # fmt: skip
    # Each context has the same difference, so the interval of the paired difference is a point.
    assert all(row["mean"].high == row["mean"].mean for row in rows)


def test_each_number_has_one_table() -> None:
    """Catches a bound or a tree that is listed as a rule of chains."""
    tables = tables_of(("walk and keep",), 8)
    assert {row["rule"] for row in tables["sampled_drafts"]} == {"optimal", "walk and keep"}
    assert [row["nodes"] for row in tables["sampled_trees"]] == [8, 8]
    assert [row["bound"].mean for row in tables["sampled_bounds"]] == [32.25]


def test_a_report_without_rules_of_paths_has_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches trees that are left out, missing on the page, or drafted again in each run."""
    for package in ("joblib", "jinja2", "matplotlib", "transformers"):
        pytest.importorskip(package)
    monkeypatch.setattr("otm.gain.reports.report.pictures", lambda _: {})
    draft, target = (write_model(tmp_path / str(width), width) for width in (8, 16))
    (tmp_path / "text.txt").write_text("in the beginning\n\ngod created", encoding="utf-8")
    pair = from_models(draft, target, tmp_path / "text.txt", window=9)
    settings = Settings(ks=(1, 2), rules=("greedy",), contexts=4, nodes=(pair.vocabulary, 3))
    summary = report(pair, tmp_path / "out", settings, gammas=(1, 2))
    rows = {(r["rule"], r["nodes"], r["gamma"]): r["mean"] for r in summary.sampled_trees}
    assert len(rows) == 8
    assert not summary.sampled_drafts
    # A tree of all tokens has the next one; the smaller tree may miss it.
    assert rows[BEST, pair.vocabulary, 1].mean == pytest.approx(2)
    assert 1 < rows[BEST, 3, 1].mean < 1.9
    # There are no chains to compare with, only the other tree.
    assert {row["less"] for row in summary.tree_differences} == {BEST}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    written = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    for table in ("sampled_trees", "tree_differences"):
        for row, stored in zip(getattr(summary, table), written[table], strict=True):
            assert str(row["mean"]) in page
            assert stored["mean"]["mean"] == row["mean"].mean
    monkeypatch.setattr("otm.gain.reports.draft_sampler.stream_recordings", None)
    again = Settings(ks=(1, 2), rules=("greedy",), contexts=4, nodes=(3,))
    assert report(pair, tmp_path / "out", again, gammas=(2,)).sampled_trees == [
        row for row in summary.sampled_trees if row["nodes"] == 3 and row["gamma"] == 2
    ]


def test_recorded_scores_have_no_trees(tmp_path: Path) -> None:
    """Catches an option that is ignored."""
    for name in ("draft", "target"):
        np.save(tmp_path / f"{name}.npy", np.zeros((3, 4), dtype=np.float32))
    source = from_files(tmp_path / "draft.npy", tmp_path / "target.npy")
    with pytest.raises(InvalidParameterError, match=r"trees .* need drafts, .* two models"):
        report(source, tmp_path / "out", Settings(nodes=(8,)))


@pytest.mark.parametrize(
    ("nodes", "error"), [(0, InvalidParameterError), (10**4, ProblemTooLargeError)]
)
def test_budgets_are_checked_when_they_are_given(nodes: int, error: type[Exception]) -> None:
    """Catches an error after all positions are measured."""
    with pytest.raises(error):
        Settings(nodes=(8, nodes))
