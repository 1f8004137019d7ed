"""Traces of decoding as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from otm.decoding import Seconds, Step, spectr, speculative, stream
from otm.decoding.rendering import render_trace, trace_legend
from otm.errors import InvalidInputError
from otm.models import TableModel

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def letters(tokens: Sequence[int]) -> str:
    return "".join(chr(97 + token) for token in tokens)


def step(drafts: Any, output: tuple[int, ...], accepted: int, **others: Any) -> Step:
    fields: Any = {
        "sequence": 0,
        "call": 0,
        "position": 1,
        "gamma": 3,
        "finish_reason": None,
        "seconds": Seconds(1, 2, 1),
    }
    return Step(drafts=drafts, output=output, accepted=accepted, **(fields | others))


def lines(*steps: Step, **options: Any) -> list[str]:
    return list(render_trace(steps, [(25,)], letters, **options))


@pytest.mark.parametrize(
    ("drafts", "output", "accepted", "shown"),
    [
        ((), (0,), 0, "z|+a+"),
        (((0, 1, 2),), (0, 3), 1, "z|a[bc]+d+"),
        (((0, 1, 2),), (3,), 0, "z|[abc]+d+"),
        (((0, 1, 2),), (0, 1, 2, 3), 3, "z|abc+d+"),
        # cut off at an end token: what came behind was not judged
        (((0, 1, 2),), (0, 1), 2, "z|ab"),
        # a residual distribution may draw again what was rejected
        (((0, 1),), (0, 1), 1, "z|a[b]+b+"),
    ],
)
def test_a_chain_is_one_line(drafts: Any, output: Any, accepted: int, shown: str) -> None:
    """Fails if drafts that nobody judged look rejected, or a bonus token accepted."""
    assert lines(step(drafts, output, accepted)) == [f"   0 {shown}"]


def test_several_drafts_stand_under_the_place_where_they_begin() -> None:
    """SpecTr, Figure 3: the drafts that agree with the output stay, those that part drop out."""
    drafts = ((0, 1, 2), (0, 3, 3), (4, 1, 2), (0, 1, 4))
    assert lines(step(drafts, (0, 1, 3), 2)) == [
        "   0 z|ab+d+",
        "       ab[c]",
        "       a[dd]",
        "       [ebc]",
        "       ab[e]",
    ]


def test_the_text_so_far_grows_and_is_shortened_from_the_left() -> None:
    steps = [step(((0,),), (0, 1), 1, call=call) for call in range(12)]
    shown = lines(*steps, width=20)
    assert shown[1] == "   1 zab|a+b+"
    assert shown[11] == "  11 …babababab|a+b+"
    assert {len(line) for line in shown[5:]} == {20}


def test_sequences_of_a_batch_are_told_apart() -> None:
    """Fails if one sequence is continued by the tokens of another."""
    steps = [step((), (b,), 0, sequence=b, call=call) for call in range(2) for b in range(2)]
    assert list(render_trace(steps, [(24,), (25,)], letters)) == [
        " 0:0 y|+a+",
        " 1:0 z|+b+",
        " 0:1 ya|+a+",
        " 1:1 zb|+b+",
    ]


def test_colours_add_to_the_marks_and_change_nothing_else() -> None:
    target = TableModel({(): [0.2, 0.3, 0.5], (0,): [0.6, 0.4, 0]})
    draft = TableModel({(): [0.3, 0.3, 0.4], (1,): [0.6, 0.4, 0]})
    for generation in (
        speculative(target, draft, [[0]], max_tokens=30, seed=0),
        spectr(target, draft, [[0], [1]], k=3, gamma=3, max_tokens=30, seed=0),
    ):
        plain = list(render_trace(generation.steps, generation.prompts, letters))
        coloured = list(render_trace(generation.steps, generation.prompts, letters, colour=True))
        assert [ESCAPE.sub("", line) for line in coloured] == plain
        text = "\n".join(coloured)
        assert all(f"\x1b[{code}m" in text for code in ("2", "32", "31", "1;34", "0"))
    assert ESCAPE.sub("", trace_legend(colour=True)) == trace_legend() != trace_legend(colour=True)


def test_a_trace_says_all_that_is_output() -> None:
    """Fails if a token of the output is missing: parts outside brackets are the sequence."""
    target = TableModel({(): [0.2, 0.3, 0.5], (0,): [0.6, 0.4, 0]})
    draft = TableModel({(): [0.3, 0.3, 0.4], (1,): [0.6, 0.4, 0]})
    generation = speculative(target, draft, [[0]], max_tokens=40, seed=1)
    added = [line.split("|")[1] for line in render_trace(generation.steps, [[0]], letters)]
    assert re.sub(r"\[.*?\]|\+", "", "".join(added)) == letters(generation.sequences[0])


def test_steps_are_shown_as_they_are_made() -> None:
    """Fails if the trace waits for the end of the decoding."""
    made = []

    def steps() -> Any:
        for one in stream(TableModel({(): [0.5, 0.5]}), [[0]], max_tokens=5, seed=0):
            made.append(one)
            yield one

    shown = render_trace(steps(), [[0]], letters)
    next(shown)
    assert len(made) == 1


def test_no_text_of_a_model_reaches_the_terminal_as_a_command() -> None:
    r"""Fails if an escape sequence or a line end that a model wrote is passed on."""
    (line,) = render_trace(
        [step(((0,),), (0, 0), 1)], [[0]], lambda tokens: "\x1b[2J\n" * len(tokens)
    )
    assert line == r"   0 \x1b[2J\n|\x1b[2J\n+\x1b[2J\n+"


def test_what_does_not_belong_together_is_refused() -> None:
    """Bug: a trace with too few prompts ends in an error of Python's."""
    with pytest.raises(InvalidInputError, match="prompt 1, but the number of prompts is 1"):
        lines(step((), (1,), 0, sequence=1))
