"""Figures of traces: what their tables say is what decoding did."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.timeline import Call, TimedModel, decode
from figures.iterations import ACCEPTED, CONTEXT, NOT_REACHED, REJECTED, TARGET
from figures.leviathan import traces
from figures.spectr import iterations
from figures.table import Table
from otm.decoding import Generation, Step, autoregressive, speculative
from otm.models import TableModel

DRAFT_ORDER = {ACCEPTED: 0, REJECTED: 1, NOT_REACHED: 2}


@pytest.fixture(scope="module")
def trace() -> tuple[Table, Generation]:
    return traces.figure_1(40), traces.generation(40)


@pytest.fixture(scope="module")
def chains() -> tuple[Table, Step]:
    return iterations.figure_2(), iterations.chains()[1]


def tokens_of(table: Table, *kinds: str) -> list[int]:
    return [row[table.names.index("token")] for row in table.rows if row[2] in kinds]


def test_what_a_trace_keeps_is_what_was_decoded(trace: tuple[Table, Generation]) -> None:
    """Bug: a rejected draft or the prompt counted as output, or a token of the target lost."""
    table, generation = trace
    assert tuple(tokens_of(table, ACCEPTED, TARGET)) == generation.sequences[0]
    assert tuple(tokens_of(table, CONTEXT)) == generation.prompts[0]
    kept = [row[1] for row in table.rows if row[2] in (CONTEXT, ACCEPTED, TARGET)]
    assert kept == list(range(len(kept))), "positions follow each other over the lines"


def test_a_trace_has_a_line_for_each_run_of_the_target(trace: tuple[Table, Generation]) -> None:
    """Bug: lines numbered from 0 run into the prompt's, or a run without drafts is left out."""
    table, generation = trace
    assert sorted(set(table["line"].tolist())) == list(range(len(generation.steps) + 1))
    assert len(table.where(kind=TARGET).rows) == len(generation.steps)


def test_drafts_behind_a_rejected_one_are_not_judged(
    trace: tuple[Table, Generation], chains: tuple[Table, Step]
) -> None:
    """Bug: a draft behind a rejected one that happens to agree is shown as accepted."""
    for table in (trace[0], chains[0], iterations.figure_1()):
        for line in dict.fromkeys(table["line"].tolist()):
            kinds = table.where(line=line)["kind"].tolist()
            drafts = [DRAFT_ORDER[kind] for kind in kinds if kind in DRAFT_ORDER]
            assert drafts == sorted(drafts), line
            assert drafts.count(1) <= 1, line
            assert kinds[-1] == TARGET or TARGET not in kinds


def test_texts_are_the_tokens(trace: tuple[Table, Generation]) -> None:
    """Bug: a digit in the text is read back as a number, or a token shown as another one."""
    table = Table.from_csv(trace[0].to_csv())
    assert table == trace[0]
    for *_, token, text in table.rows:
        assert ast.literal_eval(f"b{text}") == bytes([token])


@pytest.mark.parametrize(
    ("figure", "iteration"),
    [(iterations.figure_1, iterations.chain), (iterations.figure_2, iterations.chains)],
)
def test_an_iteration_shows_all_its_drafts_and_its_output(figure: Any, iteration: Any) -> None:
    """Bug: a draft left out, the output of another step, or a step that shows no rejection."""
    table, (generation, step) = figure(), iteration()
    lines = list(dict.fromkeys(table["line"].tolist()))
    found = {line: tuple(table.where(line=line)["token"].tolist()) for line in lines}
    assert [found[line] for line in lines if line.startswith("draft")] == list(step.drafts)
    assert found["output"] == step.output
    whole = generation.prompts[0] + generation.sequences[0]
    assert found["context"] + found["output"] == whole[: step.position + len(step.output)]
    assert {ACCEPTED, REJECTED, TARGET} <= set(table["kind"].tolist())


def test_a_draft_stays_while_it_agrees_with_the_selection(chains: tuple[Table, Step]) -> None:
    """Bug: drafts dropped too late, or counted by what they became and not by their beginning."""
    step = chains[1]
    table = iterations.figure_3()
    for i, selected in enumerate(step.output, start=1):
        now = table.where(step=i)
        judged = [row for row in now.rows if row[-1] in (ACCEPTED, REJECTED)]
        agreeing = [path for path in step.drafts if path[: i - 1] == step.output[: i - 1]]
        offered = [path[i - 1] for path in agreeing]
        assert sorted(token for *_, token, _, n, _ in judged for _ in range(n)) == sorted(offered)
        chosen = [row[3] for row in now.rows if row[-1] in (ACCEPTED, TARGET)]
        assert chosen == [selected], "one token a step"
    assert sum(row[5] for row in table.where(step=1).rows) == iterations.DRAFTS


def test_the_tree_has_one_node_for_each_beginning(chains: tuple[Table, Step]) -> None:
    """Bug: equal tokens behind different beginnings merged, or a node hung below another parent."""
    step = chains[1]
    table = iterations.figure_3()
    paths: dict[int, tuple[int, ...]] = {0: ()}
    for level, node, parent, token, _, drafts, kind in sorted(table.rows):
        paths[node] = (*paths[parent], token)
        assert len(paths[node]) == level
        if kind != TARGET:
            assert drafts == sum(path[:level] == paths[node] for path in step.drafts)
    assert len(set(paths.values())) == len(paths)
    beginnings = {path[:i] for path in step.drafts for i in range(len(path) + 1)}
    assert set(paths.values()) == beginnings | {step.output}


# The timeline: with models that are tables, so that its form is seen without measuring anything.

GAMMA, TOKENS = 3, 40
TARGET_LAW, DRAFT_LAW = [0.5, 0.5], [0.75, 0.25]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    models = TableModel({(): TARGET_LAW}), TableModel({(): DRAFT_LAW})
    ways = [decode(*models, gamma, [0, 1, 0], max_tokens=TOKENS, seed=4) for gamma in (GAMMA, 0)]
    return {"pairs": [{"pair": "tables", "ways": ways}]}


def test_calls_do_not_overlap(record: dict[str, Any]) -> None:
    """Bug: seconds for milliseconds, another origin of time, or a call timed inside of another."""
    table = traces.figure_5([record])
    for gamma in (GAMMA, 0):
        way = table.where(gamma=gamma)
        (whole,) = way.where(call=traces.WHOLE).rows
        calls = [row for row in way.rows if row != whole]
        times = np.array([row[3:5] for row in calls]).ravel()
        assert (np.diff(times) >= 0).all()
        assert times[0] >= 0
        assert times[-1] <= whole[4]


def test_each_block_is_gamma_drafts_and_one_run_of_the_target(record: dict[str, Any]) -> None:
    """Bug: a call left out or written twice, or the tokens of a run beside another one."""
    models = TableModel({(): TARGET_LAW}), TableModel({(): DRAFT_LAW})
    options: dict[str, Any] = {"max_tokens": TOKENS, "seed": 4}
    made = {
        GAMMA: speculative(*models, [[0, 1, 0]], gamma=GAMMA, **options),
        0: autoregressive(models[0], [[0, 1, 0]], **options),
    }
    table = traces.figure_5([record])
    for gamma, generation in made.items():
        way = table.where(gamma=gamma)
        expected = []
        for step in generation.steps:
            expected += [("draft", 0)] * step.drafted + [("target", len(step.output))]
        found = [(row[2], row[5]) for row in way.rows if row[2] in ("draft", "target")]
        assert found == expected
        assert all(step.drafted == gamma for step in generation.steps[:-GAMMA])
        prompts = [row[2] for row in way.rows if row[2].endswith("prompt")]
        assert prompts == ["target, prompt", "draft, prompt"][: 1 + (gamma > 0)]
        (whole,) = way.where(call=traces.WHOLE).rows
        assert whole[5] == TOKENS


def test_timing_changes_no_token() -> None:
    """Bug: the wrapped session drops a rewind, or tells of another vocabulary or kind of scores."""
    draft = TableModel({(): DRAFT_LAW, (0,): [0.2, 0.8]})
    target = TableModel({(): TARGET_LAW, (0,): [0.4, 0.6]})
    calls: list[Call] = []
    timed = TimedModel(target, "target", calls), TimedModel(draft, "draft", calls)
    options: dict[str, Any] = {"gamma": GAMMA, "max_tokens": TOKENS, "seed": 7}
    plain = speculative(target, draft, [[0]], **options)
    assert speculative(*timed, [[0]], **options).sequences == plain.sequences
    assert {call.call for call in calls} == {"target", "draft"}, "a prompt of one token is not read"
