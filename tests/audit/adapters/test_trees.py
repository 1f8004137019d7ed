"""Right verifiers of trees and of several chains pass; wrong ones show with their drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from otm.audit import Instance, Report, chains, lossless, tree
from otm.audit.adapters.chains import PAIRS_OF_CHAINS
from otm.audit.adapters.tree_drafts import SIBLINGS
from otm.audit.instances import INSTANCES
from otm.errors import InvalidDraftCountError, InvalidParameterError, UnknownMethodError
from otm.models import TableModel
from otm.testing.sequences import output_distribution_of

pytestmark = pytest.mark.usefixtures("no_diagnosis")

NAMES = ("three tokens", "two drafts, two tokens", "pairs of three tokens", "pairs with zeros",
         "pairs, both rejected", "pairs of two drafts", "three of three tokens")  # fmt: skip
FEW = [*(INSTANCES[name] for name in NAMES), PAIRS_OF_CHAINS]


def draw(weights: Any, uniform: Any) -> int:
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, uniform * ends[-1], side="right"))


def normalised(weights: Any) -> Any:
    return weights / weights.sum() if weights.any() else weights


def same(draft: Any, token: int) -> Any:
    return draft


def without(draft: Any, token: int) -> Any:
    left = draft.copy()
    left[token] *= 0
    return normalised(left)


def certain(draft: Any, token: int) -> Any:
    one = 0 * draft
    one[token] += 1
    return one


def recursive(
    stated: Callable[[Any, int], Any] = same,  # the distribution that a sibling is drawn from
    after: Callable[[Any, int], Any] = same,  # and the next one, after it
    residual_row: Callable[[int, int], int] = lambda node, above: above + 1,
    fresh: bool = True,  # whether each level aims at a row of its own
    again: bool = False,  # whether each sibling is compared with the target itself
) -> Callable[..., Any]:
    """Verify by recursive rejection, of siblings one after another."""

    def verify(
        target_probs: Any, draft_probs: Any, tokens: Any, parents: Any, uniforms: Any
    ) -> Any:
        above, path, target = -1, list[int](), target_probs[0]
        while True:
            draft = draft_probs[above + 1]
            for node in np.flatnonzero(parents == above):
                x = tokens[node]
                shown = stated(draft, x)
                if uniforms[node] * shown[x] < target[x]:
                    break
                wrong = stated(draft_probs[residual_row(node, above)], x)
                left = np.maximum(target - (shown if residual_row(0, 7) == 8 else wrong), 0)
                target = target if again else normalised(left)
                draft = after(draft, x)
            else:
                return [*path, draw(target, uniforms[-1])]
            path.append(int(x))
            above, target = node, target_probs[node + 1] if fresh else target

    return verify


def naive(target_probs: Any, draft_probs: Any, tokens: Any, parents: Any, uniforms: Any) -> Any:
    """Draw from the target, and go on while drafts have what was drawn."""
    above, path = -1, list[int]()
    for uniform in uniforms:
        path.append(draw(target_probs[above + 1], uniform))
        below = [n for n in range(len(tokens)) if (parents[n], tokens[n]) == (above, path[-1])]
        if not below:
            break
        above = below[0]
    return path


def redraws(target_probs: Any, draft_probs: Any, tokens: Any, parents: Any, uniforms: Any) -> Any:
    """Draw from the target again for each sibling that was not drawn."""
    above, path = -1, list[int]()
    while True:
        for node in np.flatnonzero(parents == above):
            if draw(target_probs[above + 1], uniforms[node]) == tokens[node]:
                break
        else:
            return [*path, draw(target_probs[above + 1], uniforms[-1])]
        path.append(int(tokens[node]))
        above = node


RIGHT = {
    "independent": recursive(),
    "without replacement": recursive(after=without),
    "top-k": recursive(certain),
    "dynamic": recursive(certain),
    "merged": naive,
    "certain and drawn": naive,
}

WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "another row for the residual": (
        "independent", recursive(residual_row=lambda node, above: node + 1),
    ),
    "no residual": ("independent", recursive(again=True)),
    "the residual of the level above": ("independent", recursive(fresh=False)),
    "second sample after a mismatch": ("independent", redraws),
    "the same draft distribution after a rejection": ("without replacement", recursive()),
    "siblings taken for independent": ("top-k", recursive()),
    "the tree taken for sampled": ("dynamic", recursive(after=without)),
    "how often a token was drawn": ("merged", recursive()),
}  # fmt: skip


def audit(verify: Callable[..., Any], drafts: str, instances: Any = FEW) -> Report:
    return lossless(tree(verify, drafts=drafts), instances=instances, examples=0)


@pytest.mark.parametrize("drafts", SIBLINGS)
def test_right_verifiers_of_trees_are_lossless(drafts: str) -> None:
    """Bug: drafts that are not what they are said to be, or rows of other nodes."""
    for verify in (RIGHT[drafts], naive):
        report = audit(verify, drafts)
        assert report.verdict == "lossless on everything tried"
        assert (report.method, report.tv_distance, report.skipped) == ("exact paths", 0, 0)


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_verifiers_of_trees_are_found(mistake: str) -> None:
    drafts, verify = WRONG[mistake]
    report = audit(verify, drafts, [instance for instance in FEW if instance.k == 2])
    assert report.verdict == "not lossless"
    assert report.method == "exact paths"
    example = report.counterexample
    assert example is not None
    assert isinstance(example.drafts, dict)
    tokens, parents = example.drafts["tokens"], example.drafts["parents"]
    assert f"drafts: tokens {' '.join(map(str, tokens))}, parents -1" in str(report)
    assert len(tokens) == len(parents)
    assert all(above < node for node, above in enumerate(parents))


def test_counts_say_how_often_a_token_was_drawn() -> None:
    """Bug: counts of other nodes; drafts in different orders are treated as equal."""

    def in_any_order(tokens: Any, counts: Any, uniform: Any) -> Any:
        orders = sorted(set(permutations(np.repeat(tokens, counts).tolist())))
        return orders[
            int(np.searchsorted(np.arange(1, len(orders)), uniform * len(orders), "right"))
        ]

    def verifier(order: Callable[..., Any]) -> Callable[..., Any]:
        def verify(
            target_probs: Any,
            draft_probs: Any,
            tokens: Any,
            parents: Any,
            *,
            counts: Any,
            uniforms: Any,
        ) -> Any:
            root = np.flatnonzero(parents == -1)
            target = target_probs[0]
            for i, x in enumerate(order(tokens[root], counts[root], uniforms[-2])):
                if uniforms[i + 1] * draft_probs[0][x] < target[x]:
                    return [x]
                target = normalised(np.maximum(target - draft_probs[0], 0))
            return [draw(target, uniforms[0])]

        return verify

    few = [instance for instance in (*FEW, *tree(naive).more) if instance.gamma == 1]
    options: Any = {"drafts": "merged", "uniforms": lambda nodes: 7}
    assert lossless(tree(verifier(in_any_order), **options), instances=few, examples=0).lossless
    once = verifier(lambda tokens, counts, _: tokens.tolist())
    grouped = verifier(lambda tokens, counts, _: np.repeat(tokens, counts).tolist())
    for wrong in (once, grouped):
        report = lossless(tree(wrong, **options), instances=few, examples=0)
        assert not report.lossless
        assert "counts" in str(report.counterexample and report.counterexample.drafts)


def drawn(drafts: str, instance: Instance, **options: Any) -> dict[Any, Fraction]:
    """Distribution of the trees."""
    adapter = tree(naive, drafts=drafts, **options)
    return output_distribution_of(lambda source: tuple(adapter.drafted(instance, source).items()))


def test_the_distribution_of_the_trees() -> None:
    """Bug: drafts that are drawn from another distribution than the one that is said."""
    probs = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
    model = TableModel({(): probs})
    instance = Instance(model, model, gamma=1, k=2)
    for (tokens, _), probability in drawn("independent", instance).items():
        assert probability == probs[tokens[1][0]] * probs[tokens[1][1]]
    assert len(drawn("independent", instance)) == 9
    trees = drawn("without replacement", instance)
    assert len(trees) == 6
    for ((_, (a, b)), _), probability in trees.items():
        assert probability == probs[a] * probs[b] / (1 - probs[a])
    merged = Counter(len(tokens[1]) for tokens, _ in drawn("merged", instance))
    assert merged == {1: 3, 2: 6}
    assert drawn("top-k", instance) == {(("tokens", (0, 1)), ("parents", (-1, -1))): 1}


def test_trees_are_as_deep_and_wide_as_asked_for() -> None:
    """Bug: children under a wrong node, or a dynamic tree without the most probable nodes."""
    instance = INSTANCES["pairs of two drafts"]
    parents = {parents[1] for _, parents in drawn("independent", instance)}
    assert parents == {(-1, -1, 0, 0, 1, 1)}
    ((_, below),) = drawn("top-k", instance, branching=(2, 1))
    assert below == ("parents", (-1, -1, 0, 1))
    # draft probabilities 3/4, 1/4; after 0: 1/2, 1/2; after 1: 1/5, 4/5
    ((tokens, below),) = drawn("dynamic", instance)
    assert (tokens[1], below[1]) == ((0, 1, 0, 1), (-1, -1, 0, 0))


def test_a_tree_of_few_tokens_has_fewer_children() -> None:
    """Bug: a token that the draft model cannot give is drafted."""
    instance = INSTANCES["disjoint pairs"]
    draft = TableModel({(): [Fraction(x) for x in (0, 0, 1, 0)]})
    one = Instance(instance.target, draft, gamma=1, k=2)
    for drafts in ("without replacement", "top-k", "dynamic"):
        (((_, tokens), _),) = drawn(drafts, one)
        assert tokens == (2,)


def test_bad_options_of_trees() -> None:
    with pytest.raises(UnknownMethodError, match="way to draft 'beam'; there are independent"):
        tree(naive, drafts="beam")
    with pytest.raises(InvalidParameterError, match=r"level, such as \(2, 1\)"):
        tree(naive, branching=3)
    with pytest.raises(InvalidDraftCountError):
        tree(naive, branching=(2, 0))
    with pytest.raises(InvalidParameterError, match="it must have 4 parameters"):
        tree(lambda target_probs, draft_probs, tokens: [0])
    adapter = tree(naive, branching=(2, 1))
    assert adapter.supports(INSTANCES["pairs of two drafts"])
    assert not adapter.supports(INSTANCES["pairs"])
    assert lossless(adapter, examples=0).lossless


def of_chains(
    row_of: Callable[[int], int] = lambda chain: chain, residual: bool = True
) -> Callable[..., Any]:
    """Verify chains level by level, among those that have begun with what was accepted."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        k, gamma = draft_tokens.shape
        alive, path = list(range(k)), list[int]()
        for i in range(gamma):
            row = row_of(alive[0])
            target, draft = target_probs[row, i], draft_probs[row, i]
            for c in alive:
                x = int(draft_tokens[c, i])
                if uniforms[i * k + c] * draft[x] < target[x]:
                    break
                target = normalised(np.maximum(target - draft, 0)) if residual else target
            else:
                return [*path, draw(target, uniforms[-1])]
            path.append(x)
            alive = [c for c in alive if draft_tokens[c, i] == x]
        return [*path, draw(target_probs[row_of(alive[0]), gamma], uniforms[-1])]

    return verify


def test_several_chains() -> None:
    """Bug: rows of another chain, or chains that are not independent."""
    report = lossless(of_chains(), kind="chains", instances=FEW, examples=0)
    assert (report.verdict, report.tv_distance) == ("lossless on everything tried", 0)
    assert report.method == "exact paths"


@pytest.mark.parametrize(
    "wrong", [{"row_of": lambda chain: 0}, {"residual": False}], ids=["first rows", "no residual"]
)
def test_wrong_verifiers_of_several_chains(wrong: Any) -> None:
    """Catches the rows of the first chain after the second was accepted, and a second sample."""
    report = lossless(chains(of_chains(**wrong)), instances=[i for i in FEW if i.k > 1], examples=0)
    assert not report.lossless
    example = report.counterexample
    assert example is not None
    assert example.drafts is not None
    shown = " | ".join(" ".join(map(str, chain)) for chain in example.drafts)
    assert "|" in shown
    assert f"drafts: {shown}" in str(report)
    assert report.to_dict()["counterexample"]["drafts"] == [list(c) for c in example.drafts]
