"""Recorded steps: right verifiers pass, bugs are found, and false alarms are bounded by proof."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest

from otm.audit import NOT_LOSSLESS, UNDECIDED, Instance, recorded
from otm.audit.adapters.base import Adapter, Source
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, SUSPECTED, KnownBug
from otm.audit.diagnose.known_bugs.caches import CACHES
from otm.audit.diagnose.known_bugs.rows import EARLIER, ROWS
from otm.audit.diagnose.known_bugs.size_and_place import SIZED, TREES
from otm.audit.diagnose.known_bugs.steps import Block, Chain, Loop, Repeated, Siblings
from otm.audit.diagnose.known_bugs.walks import WALKS
from otm.audit.diagnose.token_suspects import SUSPECTS, suspect_rows
from otm.audit.instances import INSTANCES
from otm.audit.larger_instances import larger_instances
from otm.audit.streams.recorded.audit import _add_output, _Series
from otm.audit.streams.recorded.row_evidence import (
    TOKEN_CLASSES,
    RowEvidence,
    TokenBatch,
    mark_classes,
)
from otm.audit.streams.recorded.steps import as_step
from otm.errors import InvalidInputError
from otm.models import TableModel
from otm.testing.exact import paths_of_source
from otm.testing.symbolic import MAX_UNIFORMS

RNG = np.random.default_rng(20)

MODELS = {
    gamma: Instance(TableModel.random(5, 2, RNG), TableModel.random(5, 2, RNG), gamma)
    for gamma in (1, 2, 3)
}


def with_drafts(adapter: Chain) -> tuple[Chain, list[tuple[int, ...]]]:
    """Return a copy of a verifier of chains, and where it puts the drafts of each run."""
    drafts: list[tuple[int, ...]] = []
    verify = adapter.verify

    def record(rows: Any, uniforms: Any) -> Any:
        drafts.append(tuple(rows.tokens))
        return verify(rows, uniforms)

    copy = dataclasses.replace(adapter)
    object.__setattr__(copy, "verify", record)
    return copy, drafts


def step_of(
    instance: Instance, prompt: tuple[int, ...], drafts: tuple[int, ...] | None, output: Any
) -> dict[str, Any]:
    """Write one step down, with drafts or with target rows along the output alone."""
    path = output[:-1] if drafts is None else drafts
    target = [instance.target.probs(prompt + path[:i]).astype(float) for i in range(len(path) + 1)]
    step = {"target_probs": target, "output": output}
    if drafts is not None:
        draft = [instance.draft.probs(prompt + path[:i]).astype(float) for i in range(len(path))]
        step |= {"drafts": drafts, "draft_probs": draft}
    return step


def single_chain(adapter: Adapter, instance: Instance) -> bool:
    """Whether its steps have drafts; not so the longest of several chains."""
    one = dataclasses.replace(instance, k=1)
    return isinstance(adapter, Chain) and not isinstance(adapter, Loop) and adapter.supports(one)


def text_of(
    adapter: Adapter, instance: Instance, count: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Decode a text in steps, with drafts where there is a single chain of them."""
    rng = np.random.default_rng(seed)
    drafts: list[tuple[int, ...]] = []
    if single_chain(adapter, instance):
        assert isinstance(adapter, Chain)
        adapter, drafts = with_drafts(adapter)
    prompt = instance.prompt
    for _ in range(count):
        here = dataclasses.replace(instance, prompt=prompt)
        output = adapter.output(here, Source(rng.random(MAX_UNIFORMS)))
        yield step_of(instance, prompt, drafts.pop() if drafts else None, output)
        prompt = (prompt + output)[-4:]


def paths(
    adapter: Adapter, instance: Instance
) -> Iterator[tuple[tuple[int, ...] | None, tuple[int, ...], Fraction]]:
    """Run a verifier along all its paths: drafts, output and probability of each."""
    drafts: list[tuple[int, ...]] = []
    if single_chain(adapter, instance):
        assert isinstance(adapter, Chain)
        adapter, drafts = with_drafts(adapter)

    def run(source: Any) -> Any:
        drafts.clear()
        output = adapter.output(instance, source)
        return (drafts[0] if drafts else None), output

    for (drafted, output), probability, *_ in paths_of_source(run):
        yield drafted, output, probability


def steps_of(adapter: Adapter, instance: Instance, count: int, seed: int) -> list[dict[str, Any]]:
    """Draw steps after one prompt from their exact distribution."""
    probs: dict[Any, Fraction] = defaultdict(Fraction)
    for drafts, output, probability in paths(adapter, instance):
        probs[drafts, output] += probability
    steps = [step_of(instance, instance.prompt, *run) for run in probs]
    drawn = np.random.default_rng(seed).choice(
        len(steps), size=count, p=np.array([*probs.values()], dtype=float)
    )
    return [steps[i] for i in drawn]


RIGHT = (Chain(), Block(), Siblings(), *SUSPECTED)
ALL = INSTANCES | larger_instances()
BUGS = {bug.name: bug for bug in KNOWN_BUGS}
RARE = 1e-9
"""Bound on the false alarms of a test."""

ELSEWHERE: dict[str, tuple[str, int]] = {
    "residual not clamped": ("zeros", 250),
    "softmax of the residual": ("zeros", 250),
    "draft and target swapped": ("two drafts", 250),
    "uniform where the residual is empty": ("two drafts", 700),
    "draft's noise draws the residual": ("two drafts", 250),
    "whole blocks accepted by their uncapped ratio": ("two drafts, two tokens", 800),
    "draft rows of the positions before": ("two drafts, two tokens", 250),
    "equal tokens pass": ("after a block", 400),
    "one coin for all drafts": ("three drafts", 700),
    "bonus from the draft model": ("four tokens", 250),
    "bonus of the row before": ("four tokens", 250),
    "most probable token of the residual": ("four tokens", 1000),
    "drafts of top-k reported without it": ("three drafts", 250),
    "draft probability underflows": ("four tokens", 250),
    "accepted end token drawn again": ("four tokens", 250),
    "draft's noise is the coin": ("four tokens", 250),
    "seeded before each use": ("four tokens", 250),
    "off by one in the cumulative distribution": ("four tokens", 250),
    "temperature of the drafts alone": ("after a block", 700),
    "blocks tested by their ratio": ("three drafts", 250),
    "siblings verified by the same target": ("pairs of two drafts", 700),
    "longest of several chains": ("pairs of two drafts", 700),
    "target without the rejected draft": ("four tokens", 700),
    "residual of the first draft row": ("four drafts", 250),
    "bonus of top-k": ("two drafts, two tokens", 250),
    "temperature of the bonus": ("equal at first", 900),
    "draft 3 always accepted": ("four drafts", 700),
    "temperature lost from position 2 on": ("four drafts", 700),
    "residual of its 3 largest tokens": ("40 tokens", 250),
    "sums of tiles of 8 tokens": ("40 tokens", 250),
    "sums of tiles of 64 tokens": ("300 tokens", 250),
    "sibling 2 always accepted": ("pairs", 700),
    "sibling 3 always accepted": ("four of two tokens", 700),
}
"""The instance on which a bug shows, and how many steps; else "after a block" and 250."""

SMALL = {
    "second sample after a mismatch": "two drafts",
    "residual of the first sibling": "pairs, both rejected",
    "most probable siblings verified as samples": "pairs of three tokens",
    "coin draws the residual": "four tokens",
    "uniforms of few bits": "four tokens",
    "residual of a token after a block": "after a block",
    "drafts sampled in low precision": "two drafts",
    "one uniform draws all siblings": "pairs, both rejected",
    "one coin for all siblings": "pairs, both rejected",
    "siblings drawn without replacement": "pairs of three tokens",
}
"""Bugs that thousands of steps show, and an instance: too many to draw in a test."""

NOT_IN_STEPS = {
    "u ≤ ratio": "has the right distribution; an impossible token comes once in 2^24 draws",
    "token of weight zero": "has the right distribution, as above",
    "padding accepted": "returns −1, which is not a token",
    "uniform beyond the last edge": "returns a token outside the vocabulary",
    "padded tail of the vocabulary": "returns a token outside the vocabulary",
    "seeded in each step": "is one of loops: a step by itself is right",
    "seeded before each draw": "as above",
    "cache fed twice": "as above",
    "caches of both models fed twice": "as above",
}


OTHER_SIZES = {bug.name for bug in (*SIZED, *CACHES, *TREES, *WALKS)} - {*ELSEWHERE, *SMALL} | {
    "one uniform for all draws of a verifier", "weights of a block not capped",
    "ratios of a block capped one by one", "prefixes tested by the row before",
    "prefixes tested by the residual mass", "last draft of a block dropped",
}  # fmt: skip
"""The same mistakes in other sizes and places, and others that need instances of their own."""


def tiny(gamma: int, k: int = 1) -> Instance:
    return dataclasses.replace(INSTANCES["two drafts"], gamma=gamma, k=k)


def deviations(adapter: Adapter, instance: Instance) -> list[Fraction]:
    """P(n > i, y a) − p_i(a) P(n > i, y) for all i, y and a."""
    reached: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    came: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for _, output, probability in paths(adapter, instance):
        for i in range(len(output)):
            reached[output[:i]] += probability
            came[output[: i + 1]] += probability
    return [
        came[*y, a] - p * mass
        for y, mass in reached.items()
        for a, p in enumerate(instance.target.probs(instance.prompt + y))
    ]


@pytest.mark.parametrize("adapter", RIGHT, ids=lambda adapter: adapter.name)
def test_tokens_of_lossless_verifiers_follow_their_rows_exactly(adapter: Adapter) -> None:
    """Catches a wrong theorem: what the whole audit rests on, in fractions."""
    instance = tiny(1, 2) if isinstance(adapter, Siblings) else tiny(2)
    assert not any(deviations(adapter, instance))


@pytest.mark.parametrize("name", ["no residual", "one coin for all drafts"])
def test_tokens_of_others_do_not(name: str) -> None:
    """Negative control of the test above."""
    assert any(deviations(BUGS[name].verifier, tiny(2)))


def e_values(adapter: Adapter, instance: Instance, *, rounding: float = 0.0) -> dict[str, Any]:
    """Exact means of the e-values after one step, over all paths."""
    by_class: Any = 0
    by_other: Any = 0
    growth: Any = 0
    for drafts, output, probability in paths(adapter, instance):
        series = _Series(RowEvidence(1 + len(SUSPECTS), 0, rounding, 0.0, 0.0))
        step = as_step(step_of(instance, instance.prompt, drafts, output), "here", 1e-9)
        _add_output(series, step, 0)
        series.flush()
        evidence = series.evidence
        by_class = by_class + float(probability) * np.exp(evidence.by_class)
        by_other = by_other + float(probability) * np.exp(evidence.by_other)
        growth = growth + float(probability) * evidence.by_class
    return {"classes": by_class, "others": by_other, "growth": growth.max()}


@pytest.mark.parametrize("adapter", [Chain(), Block()], ids=lambda adapter: adapter.name)
def test_e_values_of_lossless_verifiers_have_mean_one(adapter: Chain) -> None:
    """Catches a class that depends on the token itself or its draft, and a wrong normalisation."""
    means = e_values(adapter, tiny(2))
    np.testing.assert_allclose(means["classes"], 1, rtol=0, atol=1e-12)
    assert np.max(means["others"]) <= 1 + 1e-12
    assert np.max(means["others"]) > 0.9  # also of those that no impossible token wastes
    rounded = e_values(adapter, tiny(2), rounding=1e-3)
    assert np.max(rounded["classes"]) <= 1 / 1.001**2 + 1e-12


def test_e_values_of_others_grow() -> None:
    """Negative control of the test above."""
    assert np.max(e_values(Chain(), tiny(2))["others"]) < 1.0001
    means = e_values(BUGS["no residual"].verifier, tiny(2))
    assert np.max(means["others"]) > 1.05
    assert np.max(means["classes"]) > 1.01


@pytest.mark.parametrize("name", SUSPECTS)
@pytest.mark.parametrize("model", ["three tokens", "four tokens", "disjoint", "equal"])
def test_suspects_are_the_known_bugs_of_their_names(name: str, model: str) -> None:
    """Catches a wrong formula of a suspect, which would be named for what it is not."""
    instance, bug = INSTANCES[model], SUSPECTS[name].verifier
    size = instance.vocabulary
    truth: dict[tuple[int, ...], Any] = defaultdict(lambda: np.zeros(size))
    for _, output, probability in paths(bug, instance):  # of one draft
        if name != "bonus of the row before":
            truth[()][output[0]] += float(probability)
        elif len(output) == 2:
            truth[output[:1]][output[1]] += float(probability)
    for path, weights in truth.items():
        contexts = [instance.prompt + path[:i] for i in range(len(path) + 1)]
        target = np.array([instance.target.probs(c).astype(float) for c in contexts])
        draft = instance.draft.probs(instance.prompt).astype(float)[None]
        found = suspect_rows(target, draft, 1)[len(path), [*SUSPECTS].index(name)]
        np.testing.assert_allclose(found, weights / weights.sum(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("adapter", RIGHT, ids=lambda adapter: adapter.name)
def test_lossless_verifiers_are_not_refused(adapter: Adapter) -> None:
    """Catches what enumeration of one step cannot: classes that depend on the steps before."""
    several = isinstance(adapter, Siblings)
    instance = dataclasses.replace(MODELS[1], k=2) if several else MODELS[3]
    report = recorded(text_of(adapter, instance, 400, 1), false_alarms=RARE)
    assert report.verdict == UNDECIDED
    assert report.output.follow
    assert report.output.impossible == 0
    assert not report.diagnoses
    honest = adapter.name != "greedy drafts and equality"
    assert report.drafts is None if several else report.drafts.follow == honest  # type: ignore[union-attr]


def test_enough_steps_are_lossless_on_everything_tried() -> None:
    report = recorded(text_of(Chain(), MODELS[2], 600, 2), delta=0.2)
    assert report.lossless
    assert report.delta < 0.2
    assert "evidence, not a proof" in str(report)
    assert report.drafts is not None
    assert report.drafts.tokens == 1200
    assert abs(report.accepted - report.expected_by_chain) < 0.05 * report.reached


@pytest.mark.parametrize(
    "bug",
    [
        bug
        for bug in KNOWN_BUGS
        if bug.name not in {*NOT_IN_STEPS, *SMALL, *OTHER_SIZES}
        and not isinstance(bug.verifier, Repeated)
        and bug not in (*ROWS, *EARLIER)
    ],
    ids=lambda bug: bug.name,
)
def test_bugs_are_found(bug: KnownBug) -> None:
    """Catches classes and suspects that miss a known bug; none is named for another."""
    name, count = ELSEWHERE.get(bug.name, ("after a block", 250))
    report = recorded(steps_of(bug.verifier, ALL[name], count, 1))
    assert report.verdict == NOT_LOSSLESS
    assert report.output.decided_at is not None
    names = [diagnosis.name for diagnosis in report.diagnoses]
    if bug.name in SUSPECTS:
        assert names[0] == bug.name
        assert bug.mistake in str(report)


@pytest.mark.parametrize("name", SMALL)
def test_small_deviations_grow(name: str) -> None:
    """Catches classes that miss them: the logarithm of an e-value grows by so much a step."""
    growth = e_values(BUGS[name].verifier, ALL[SMALL[name]])["growth"]
    needed = math.log(2e6) + math.log(2 * RowEvidence(1, 0, 0.0, 0.0).by_class.size)
    assert needed / growth < 50_000


@pytest.mark.parametrize("adapter", [Chain(), Block(), Siblings()], ids=lambda each: each.name)
def test_no_e_value_of_a_lossless_verifier_grows(adapter: Adapter) -> None:
    """Negative control of the test above."""
    assert e_values(adapter, tiny(1, 1 + isinstance(adapter, Siblings)))["growth"] <= 0


def test_every_bug_is_accounted_for() -> None:
    assert set(NOT_IN_STEPS) | set(SMALL) | set(ELSEWHERE) <= set(BUGS)
    assert not set(NOT_IN_STEPS) & set(ELSEWHERE)
    loops = {bug.name for bug in KNOWN_BUGS if isinstance(bug.verifier, Loop)}
    assert loops <= set(NOT_IN_STEPS)


def test_outputs_that_are_no_tokens_are_errors() -> None:
    for name in ("padding accepted", "padded tail of the vocabulary"):
        with pytest.raises(InvalidInputError, match=r"step 0: .*token"):
            recorded(steps_of(BUGS[name].verifier, INSTANCES["four tokens"], 250, 1))


def test_the_deviation_that_is_stated_is_seen() -> None:
    """Catches a power that is overstated: a class that is likelier by `delta` must show."""
    count, limit = 2000, math.log(2e6)
    rng = np.random.default_rng(7)
    row = np.array([0.3, 0.2, 0.5])

    def evidence(deviation: float) -> RowEvidence:
        tokens, where = [], np.array([[True, False, True, False]])
        drawn = rng.choice(3, size=count, p=row + np.array([0, -deviation, deviation]))
        for step, token in enumerate(drawn.tolist()):
            members = mark_classes(row[None], None, [token], (False, -1))
            tokens.append(TokenBatch.of_step(row[None, None], members, [token], where, step))
        seen = RowEvidence(1, 0, 1e-5, 0.0, limit)
        seen.add(TokenBatch.joined(tokens))
        return seen

    honest = evidence(0)
    delta = honest.detectable()
    assert not honest.decided
    assert 0.05 < delta < 0.12
    for _ in range(5):
        assert evidence(delta).decided
    assert not evidence(delta / 4).decided  # the control


def test_impossible_tokens_decide_unless_rounding_may_have_made_them() -> None:
    step = {"target_probs": [[0.5, 0.5, 0.0]], "output": [2]}
    report = recorded([step])
    assert report.verdict == NOT_LOSSLESS
    assert report.output.impossible == 1
    assert "tokens of probability 0: 1, the first is 2 at position 0 of step 0" in str(report)
    assert recorded([step], rounding=0.01).verdict == UNDECIDED
    assert recorded([step] * 20, rounding=0.01).verdict == NOT_LOSSLESS


def test_rounding_keeps_the_mean_of_every_factor_below_one() -> None:
    """Catches a rounding that pays: rows that are off by as much as is allowed, zeros too."""
    true, row, rounding = np.array([0.49, 0.5, 0.01]), np.array([0.495, 0.505, 0.0]), 0.01
    means: Any = 0
    for token, probability in enumerate(true):
        seen = RowEvidence(2, 0, rounding, rounding)
        rows = np.array([[row, [0.1, 0.9, 0.0]]])
        members, where = mark_classes(rows[:, 0], None, [token], (False, -1)), np.ones((1, 4), bool)
        seen.add(TokenBatch.of_step(rows, members, [token], where, 0))
        means = means + probability * np.exp(seen.logs)
    assert means.max() <= 1
    assert means.max() > 0.95  # and no more is given away than needed


def test_a_rounding_that_is_allowed_is_no_alarm() -> None:
    """Bug: rows in low precision are held against tokens that follow the precise ones."""
    precise, rows = np.array([0.5, 0.3, 0.2]), np.array([0.497, 0.303, 0.2])
    tokens = np.random.default_rng(3).choice(3, size=3000, p=precise)
    steps = [{"target_probs": [rows], "output": [token]} for token in tokens]
    assert recorded(steps, rounding=0.02).output.log10_e_value < 1


def test_the_report_is_plain_and_says_where() -> None:
    bug = BUGS["greedy drafts reported as softmax"].verifier
    report = recorded(steps_of(bug, INSTANCES["two drafts"], 300, 1), name="engine")
    text = str(report)
    assert text.startswith("engine: not lossless on 300 recorded steps with ")
    assert "output does not follow the target rows: e-value 10^" in text
    assert "drafts do not follow the draft rows: e-value 10^" in text
    assert "worst: " in text
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    names = {name.replace("other model", "draft") for name in TOKEN_CLASSES}
    assert plain["output"]["counts"][0]["tokens"] in names
    assert not report.lossless


def test_progress_counts_the_steps() -> None:
    told: list[tuple[str, int, int]] = []
    steps = islice(text_of(Chain(), MODELS[1], 5, 1), 3)
    recorded(steps, progress=lambda *line: told.append(line))
    assert told == [("recorded: step", number, 0) for number in (1, 2, 3)]
