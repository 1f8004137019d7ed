"""Every known bug is a bug, and nothing but its few lines makes it one."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from otm.audit import NOT_LOSSLESS, lossless
from otm.audit.adapters.base import Adapter, Instance, max_tokens
from otm.audit.adapters.processed import prepared
from otm.audit.adapters.tree_drafts import FIRST_EXCLUDED, SELDOM_DRAWN
from otm.audit.diagnose import diagnosis
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, SUSPECTED, KnownBug
from otm.audit.diagnose.known_bugs.caches import CACHES
from otm.audit.diagnose.known_bugs.size_and_place import SIZED, TREES
from otm.audit.diagnose.known_bugs.steps import Block, Chain, Loop, Siblings
from otm.audit.diagnose.known_bugs.walks import WALKS, Walk
from otm.audit.instances import INSTANCES
from otm.audit.larger_instances import larger_instances
from otm.audit.observe import exact
from otm.audit.observe.exact import observe_by_paths
from otm.audit.runs import Runner
from otm.decoding.reading import Path
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

RIGHT = (Chain(), Block(), Loop(), Siblings(), Walk(), *SUSPECTED)


def pair(
    target: dict[Path, list[int]], draft: dict[Path, list[int]], *, gamma: int = 1, k: int = 1
) -> Instance:
    """Models from whole weights."""
    models = (
        TableModel({after: [Fraction(w, sum(row)) for w in row] for after, row in rows.items()})
        for rows in (target, draft)
    )
    return Instance(*models, gamma=gamma, k=k)


BLOCK = pair({(): [1, 1, 0], (1,): [1, 1, 2]}, {(): [0, 1, 0], (1,): [0, 2, 1]}, gamma=2)
SIBLINGS = pair({(): [1, 1, 3]}, {(): [0, 1, 1]}, k=2)
# The most probable pair of drafts is not greedy, and the first ratio of a block may exceed 1.
PROBABLE = pair(
    {(): [2, 1, 0], (0, 0): [1, 4, 5]},
    {(): [3, 2, 0], (0, 0): [1, 1, 1], (1,): [0, 1, 0]},
    gamma=2,
)
FEW = [
    *(INSTANCES[name] for name in ("zeros", "ties", "four tokens", "two drafts, two tokens")),
    BLOCK,
    PROBABLE,
    SIBLINGS,
]
"""Each bug that needs no large vocabulary shows on at least one of these instances."""


observed = functools.cache(observe_by_paths)


@pytest.fixture(autouse=True, scope="module")
def _each_law_once() -> Iterator[None]:
    """Keep the distributions of known bugs, with which every report compares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosis, "observe_by_paths", observed)
        # The audits of this module never reach their deadline.
        patch.setattr(exact, "observe_by_paths", lambda runner, each, _: observed(runner, each))
        yield


def tv(adapter: Adapter, instance: Instance) -> Fraction:
    """Exact distance of what is output, continued by the target, from the target's distribution."""
    length = max_tokens(adapter, instance)
    law = output_distribution_of(lambda source: adapter.output(instance, source))
    found = continued_distribution(law, instance.target, instance.prompt, length)
    wanted = sequence_distribution(instance.target, instance.prompt, length)
    off = (abs(found.get(p, 0) - wanted.get(p, 0)) for p in {**found, **wanted})
    return sum(off, start=Fraction(0)) / 2


def instances_of(adapter: Adapter) -> list[Instance]:
    return [instance for instance in FEW if adapter.supports(instance)]


def instances_for(bug: KnownBug) -> list[Instance]:
    sized = bug in (*SIZED, *CACHES, *TREES)
    larger = [*larger_instances().values(), INSTANCES["three of three tokens"]] if sized else []
    if bug in WALKS:
        larger = [FIRST_EXCLUDED, SELDOM_DRAWN, INSTANCES["pairs with zeros"]]
    return [*instances_of(bug.verifier), *filter(bug.verifier.supports, larger)]


@pytest.mark.parametrize("adapter", RIGHT, ids=lambda adapter: adapter.name)
def test_right_versions_of_the_same_steps_are_lossless(adapter: Adapter) -> None:
    """Catches a bug that comes from the steps, and not from the lines that say what is wrong."""
    rng = np.random.default_rng(5)
    drawn = [
        Instance(TableModel.random(n, 2, rng), TableModel.random(n, 2, rng), gamma, k)
        for n, gamma, k in [(2, 2, 1), (3, 1, 1), (3, 1, 2)]
    ]
    for instance in [*instances_of(adapter), *filter(adapter.supports, drawn)]:
        seen = observe_by_paths(Runner(adapter), instance)
        assert tv(adapter, instance) == seen.tv_distance == 0
        assert seen.impossible is None
    for instance in filter(adapter.supports, larger_instances().values()):
        seen = observed(Runner(adapter), instance)
        assert seen.tv_distance == 0
        assert seen.impossible is None


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_every_bug_changes_the_law(bug: KnownBug) -> None:
    """Catches a control that controls nothing."""
    instances = [prepared(bug.verifier, instance) for instance in instances_for(bug)]
    seen = [observed(Runner(bug.verifier), instance) for instance in instances]
    distances = [each.tv_distance for each in seen]
    if bug.isolated:
        assert max(distances) == 0
        impossible = [each.probs[each.impossible] for each in seen if each.impossible is not None]
        assert impossible
        assert not any(impossible), "a token that is impossible, if only at isolated values"
    else:
        assert max(distances) > Fraction(1, 200)


def test_one_distance_by_hand() -> None:
    """As in huggingface/transformers #32867, (3/4, 1/4) comes out in place of (3/5, 2/5)."""
    (greedy,) = (bug for bug in KNOWN_BUGS if "transformers #32867" in str(bug))
    instance = pair({(): [3, 2]}, {(): [4, 1]})
    law = observe_by_paths(Runner(greedy.verifier), instance).probs
    first = Counter[int]()
    for path, probability in law.items():
        assert isinstance(path, tuple)
        first[path[0]] += probability  # type: ignore[assignment]
    assert first == {0: Fraction(3, 4), 1: Fraction(1, 4)}


def test_a_block_by_hand() -> None:
    """Draft 0 comes with ratio 1/2, which a first ratio of 2 does not make up for: 1/2 · 2/9."""
    (uncapped,) = (bug for bug in KNOWN_BUGS if "2601.05724" in bug.summary)
    instance = pair({(): [1, 2]}, {(): [2, 1]}, gamma=2)
    assert observed(Runner(uncapped.verifier), instance).tv_distance == Fraction(1, 9)


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_the_audit_finds_every_bug_and_names_it(bug: KnownBug) -> None:
    report = lossless(bug.verifier, instances=instances_for(bug), examples=0)
    assert report.verdict == NOT_LOSSLESS
    assert [diagnosis.name for diagnosis in report.diagnoses] == [bug.name]
    for thread in bug.threads:
        assert thread in str(report)


def test_a_loop_that_cuts_its_text_has_the_same_name() -> None:
    """Bug: a loop that drafts γ tokens near the limit too, and cuts, has no name."""
    (bug,) = (bug for bug in KNOWN_BUGS if bug.name == "seeded before each draw")
    assert isinstance(bug.verifier, Loop)
    cutting = dataclasses.replace(bug.verifier, cut=True)
    instance = INSTANCES["two drafts"]
    assert (
        observed(Runner(cutting), instance).probs != observed(Runner(bug.verifier), instance).probs
    )
    report = lossless(cutting, instances=[*FEW, instance], examples=0)
    assert [diagnosis.name for diagnosis in report.diagnoses] == [bug.name]


def test_what_is_said_of_bugs() -> None:
    """Catches two of one name, and a summary or thread that does not read as such."""
    names = [bug.name for bug in KNOWN_BUGS]
    assert len(set(names)) == len(names)
    for bug in KNOWN_BUGS:
        assert bug.summary.endswith(".")
        assert bug.summary.count(". ") == 0
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+ #\d+", thread) for thread in bug.threads)
        assert str(bug).startswith(f"{bug.name}: {bug.summary}")
