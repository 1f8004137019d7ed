"""Verifiers of trees of certain and drawn drafts pass the audit; their slips are named."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Instance, lossless, tree
from otm.audit.adapters.otm_trees import TreeAdapter, tree_kernel, tree_verifier
from otm.audit.adapters.tree_drafts import CERTAIN_AND_DRAWN, FIRST_EXCLUDED, SELDOM_DRAWN
from otm.audit.diagnose import diagnosis
from otm.audit.diagnose.known_bugs.size_and_place import TREES
from otm.audit.diagnose.known_bugs.walks import WALKS
from otm.audit.instances import INSTANCES
from otm.coupling.optimal.certain import CertainDrafts
from otm.decoding import verify_walk_and_keep
from otm.decoding.draft_tree import DraftNode
from otm.errors import UnknownMethodError
from otm.kernels import verify_tree_probs
from otm.models import TableModel
from otm.testing.sequences import output_distribution_of
from tests.decoding.verifiers.test_certain_and_drawn import (
    DrawnAlwaysWins,
    ResidualWithoutTheCertain,
    WithoutTheMinimum,
)

REJECTION = "recursive rejection without replacement"
FEW = [FIRST_EXCLUDED, SELDOM_DRAWN, INSTANCES["pairs with zeros"], INSTANCES["rows differ"]]


@pytest.fixture(autouse=True)
def _few_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare only with the mistakes of trees, which saves time."""
    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", (*TREES, *WALKS))


def audited(adapter: Any, instances: list[Instance]) -> Any:
    adapter.more = ()
    return lossless(adapter, instances=instances, examples=0)


RIGHT: dict[str, Callable[[], TreeAdapter]] = {
    "verifier": lambda: tree_verifier(verify_walk_and_keep),
    "independent drafts": lambda: tree_verifier(verify_walk_and_keep, drafts="independent"),
    "kernel": tree_kernel,
    "kernel of recursive rejection": lambda: tree_kernel(REJECTION),
    "without replacement": lambda: tree_kernel(REJECTION, drafts="without replacement"),
}


@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
def test_verifiers_of_trees_are_lossless(make: Callable[[], TreeAdapter]) -> None:
    """Bug: rows, marks or kinds of other nodes."""
    report = audited(make(), FEW)
    assert (report.verdict, report.method) == (LOSSLESS, "exact paths"), str(report)
    assert (report.tv_distance, report.skipped) == (0, 0)


@pytest.mark.parametrize(("backend", "logits"), [("torch", False), ("numpy", True)])
def test_kernels_in_floats_are_lossless(backend: str, logits: bool) -> None:
    """Bug: arrays of another order than those of the reference, or padded trees."""
    pytest.importorskip("torch")
    report = audited(tree_kernel(backend=backend, logits=logits), [INSTANCES["rows differ"]])
    assert (report.verdict, report.method) == (LOSSLESS, "breakpoints"), str(report)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_padded_trees_of_a_batch_are_decided_as_alone(backend: str) -> None:
    pytest.importorskip("torch")
    adapter = tree_kernel(backend=backend, drafts="without replacement", rule=REJECTION)
    rows = np.random.default_rng(3).random((40, 30))
    instance = INSTANCES["pairs with zeros"]
    alone = [adapter.outputs(instance, row[None])[0] for row in rows]
    assert adapter.outputs(instance, rows) == alone


@pytest.mark.parametrize(
    ("slip", "name"),
    [
        (DrawnAlwaysWins, "winner of excluded certain drafts"),
        (ResidualWithoutTheCertain, "residual without the certain drafts"),
        (WithoutTheMinimum, "weights above one"),
    ],
)
def test_slips_of_the_verifier_are_found_and_named(
    slip: type[CertainDrafts], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otm.decoding.verifiers.walk_and_keep.CertainDrafts", slip)
    report = audited(tree_verifier(verify_walk_and_keep), FEW)
    assert report.verdict == NOT_LOSSLESS
    assert [each.name for each in report.diagnoses] == [name]


def by_kernel(prunes: bool) -> Any:
    """Return the adapter of a user's function that verifies trees with a kernel."""

    def verify(
        target_probs: Any,
        draft_probs: Any,
        tokens: Any,
        parents: Any,
        *,
        sampled: Any,
        uniforms: Any,
    ) -> Any:
        tokens, parents = tokens.copy(), parents.copy()
        if prunes:
            for node in np.flatnonzero(sampled):
                below = draft_probs[parents[node] + 1].copy()
                siblings = (parents == parents[node]) & ~sampled
                below[tokens[siblings]] *= 0
                if below[tokens[node]] < below.max():
                    tokens[node] = -1
            # Nodes below a pruned node are pruned, too.
            for node in range(tokens.size):
                if parents[node] >= 0 and tokens[parents[node]] < 0:
                    tokens[node] = -1
        arrays = target_probs, draft_probs, tokens, parents, uniforms.reshape(-1, 4)
        found = verify_tree_probs(
            *(array[None] for array in arrays), sampled=sampled[None], rule="walk and keep",
            validate=False,
        )  # fmt: skip
        return found.tokens[0]

    return tree(verify, drafts=CERTAIN_AND_DRAWN, uniforms=lambda nodes: 4 * (nodes + 1))


def test_functions_learn_which_nodes_were_drawn() -> None:
    assert audited(by_kernel(prunes=False), FEW[:3]).verdict == LOSSLESS


def test_a_drawn_draft_that_is_pruned_by_its_value_is_named() -> None:
    report = audited(by_kernel(prunes=True), FEW[:3])
    assert report.verdict == NOT_LOSSLESS
    assert [each.name for each in report.diagnoses] == ["drawn draft pruned by its value"]


def test_the_trees_have_certain_and_drawn_nodes() -> None:
    """The most probable token is certain; another is drawn, and no child of it is drawn."""
    probs = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    model = TableModel({(): probs})
    adapter = tree(
        lambda target_probs, draft_probs, tokens, parents, sampled: [0],
        drafts=CERTAIN_AND_DRAWN,
        branching=(2, 2),
    )
    instance = Instance(model, model, gamma=2, k=2)
    found = output_distribution_of(lambda source: tuple(adapter.drafted(instance, source).items()))
    assert len(found) == 4
    for (tokens, parents, sampled), probability in found.items():
        assert tokens[1] == (0, tokens[1][1], 0, tokens[1][3], 0, 1)
        assert probability == (2 * probs[tokens[1][1]]) * (2 * probs[tokens[1][3]])
        assert parents[1] == (-1, -1, 0, 0, 1, 1)
        assert sampled == ("sampled", (False, True, False, True, False, False))


def test_kinds_of_nodes() -> None:
    kinds: list[Any] = []

    def verify(root: DraftNode, target_probs: Any, uniforms: Any) -> Any:
        kinds[:] = [(node.path, node.draft_kind) for node in root.nodes() if node.children]
        return (0,)

    tree_verifier(verify).output(SELDOM_DRAWN, lambda m: np.full(m, 0.5))
    assert kinds == [((), "Greedy"), ((0,), "IID"), ((1,), "Top")]


def test_bad_names_of_trees() -> None:
    with pytest.raises(UnknownMethodError, match="rule"):
        tree_kernel("chain")
    with pytest.raises(UnknownMethodError, match="backend"):
        tree_kernel(backend="triton")
    with pytest.raises(UnknownMethodError, match="way to draft"):
        tree_kernel(drafts="independent")
    with pytest.raises(UnknownMethodError, match="way to draft"):
        tree_verifier(verify_walk_and_keep, drafts="beam")
