"""Rows for the figures that show traces: the fate of every token of a call of the target.

An iteration is a `Step`.  A draft is accepted if it agrees with the target's selected token, and
rejected otherwise; later drafts of the path are not verified.
"""

from __future__ import annotations

from figures.table import Cell, Table
from otm.decoding import Generation, Step
from otm.decoding.reading import Path

CONTEXT = "context"
ACCEPTED = "accepted"
REJECTED = "rejected"
NOT_REACHED = "not verified"
TARGET = "target"
PROMPT = "And it came to pass"


def context_of(generation: Generation, step: Step) -> Path:
    """Return the tokens before a step, including the prompt."""
    b = step.sequence
    return (generation.prompts[b] + generation.sequences[b])[: step.position]


def fates(path: Path, step: Step) -> list[str]:
    """Return for each draft of a path whether it was accepted, rejected or not verified.

    Parameters
    ----------
    path : tuple of int
        A path of the step.
    step : Step
        A step whose output was not cut off by an end token or a function.

    Examples
    --------
    >>> from otm.decoding import Seconds
    >>> drafts, seconds = ((7, 8, 9), (7, 5, 5)), Seconds(0, 0, 0)
    >>> step = Step(0, 0, 1, 3, drafts, (7, 8, 4), 2, None, seconds)
    >>> [fates(path, step) for path in drafts]
    [['accepted', 'accepted', 'rejected'], ['accepted', 'rejected', 'not verified']]
    """
    kinds: list[str] = []
    for i in range(len(path)):
        if path[: i + 1] == step.output[: step.accepted][: i + 1]:
            kinds.append(ACCEPTED)
        else:
            kinds.append(NOT_REACHED if REJECTED in kinds else REJECTED)
    return kinds


def token_rows(
    line: Cell, position: int, tokens: Path, kinds: list[str]
) -> list[tuple[Cell, Cell, Cell, Cell, Cell]]:
    """Make rows (line, position, kind, token, text) of consecutive tokens."""
    return [
        (line, position + i, kind, token, quoted(token))
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
    ]


def quoted(token: int) -> str:
    r"""Format a byte like Python, in quotes, so that a digit is not read as a number.

    Examples
    --------
    >>> print(quoted(55), quoted(10))
    '7' '\n'
    """
    return repr(bytes([token]))[1:]


def rows_of_iteration(generation: Generation, step: Step) -> Table:
    """List the tokens of a step: its context, its drafts, and its output."""
    context, own = context_of(generation, step), step.output[step.accepted :]
    rows = token_rows("context", 0, context, [CONTEXT] * len(context))
    for number, path in enumerate(step.drafts, start=1):
        name = f"draft {number}" if len(step.drafts) > 1 else "draft"
        rows += token_rows(name, step.position, path, fates(path, step))
    kinds = [ACCEPTED] * step.accepted + [TARGET] * len(own)
    rows += token_rows("output", step.position, step.output, kinds)
    return Table(("line", "position", "kind", "token", "text"), tuple(rows))
