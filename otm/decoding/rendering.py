"""Traces of decoding as text: what was drafted, and what became of it.

A trace looks like [leviathan2023]_, Figure 1, and for several drafts like [sun2023]_, Figure 3.
Marks say what became of a token, and optional colours say it again: a bar ends the text so far
(faint), accepted drafts are plain (green), [rejected drafts] stand in brackets (red), +tokens of
the target+ between plus signs (blue).

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from otm.decoding.reading import Path
from otm.decoding.trace import Step
from otm.errors import InvalidInputError
from otm.models.base import common_length

Decode = Callable[[Sequence[int]], str]
"""From token ids to text; called with single parts of a sequence."""


class _Kind(NamedTuple):
    """How a kind of text is marked, and its colour as parameters of an ANSI escape sequence."""

    before: str
    after: str
    colour: str


CONTEXT = _Kind("", "|", "2")  # faint
ACCEPTED = _Kind("", "", "32")  # green
REJECTED = _Kind("[", "]", "31")  # red
TARGETS = _Kind("+", "+", "1;34")  # blue; bold, since it is dark on black

LABEL = 5
"""Characters in front of a step: its number."""

LEAST_CONTEXT = 10
"""Characters of the context that are shown even if the line becomes too long."""


def _marked(text: str, kind: _Kind, colour: bool) -> str:
    """Write a text with its marks, and in its colour."""
    marked = kind.before + text + kind.after if text else ""
    return f"\x1b[{kind.colour}m{marked}\x1b[0m" if colour and marked else marked


def render_trace(
    steps: Iterable[Step],
    prompts: Sequence[Sequence[int]],
    decode: Decode,
    *,
    width: int = 100,
    colour: bool = False,
) -> Iterator[str]:
    r"""Write what happened in each step, one line for each call of the target.

    A line has the number of the step, the end of the text so far, the accepted drafts, of a single
    chain the rejected ones, and the token of the target.  Where several paths were drafted, these
    stand below, each under the place where it begins: what was accepted of it, and the rest.

    Parameters
    ----------
    steps : iterable of Step
        The steps of a `Generation`, or of `stream` while they are made.
    prompts : sequence of sequences of int
        The prompts that they continue.
    decode : callable
        From token ids to text.  It is called with the drafts by themselves, so that a character of
        several tokens shows as a replacement character where it is cut.
    width : int, optional
        Characters of a line, for which the text so far is shortened.
    colour : bool, optional
        Whether to add colours, as ANSI escape sequences.

    Yields
    ------
    str
        A line, without its end.  Characters of the texts that do not print, and line ends, are
        written as Python writes them in strings.

    Raises
    ------
    InvalidInputError
        If a step continues a prompt that is not there.

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> from otm.models import TableModel
    >>> target = TableModel({(): [0.1, 0.9, 0], (0,): [0.2, 0.2, 0.6]})
    >>> draft = TableModel({(): [0.3, 0.7, 0], (0,): [0.5, 0.3, 0.2]})
    >>> generation = speculative(target, draft, [[0]], gamma=3, max_tokens=9, seed=0)
    >>> def decode(tokens):
    ...     return "".join("abc"[token] for token in tokens)
    >>> for line in render_trace(generation.steps, generation.prompts, decode):
    ...     print(line)
       0 a|cbb+b+
       1 acbbb|b[ac]+b+
       2 acbbbbb|[aa]+b+
       3 acbbbbbb|b+b+
    """

    def written(parts: Iterable[tuple[Path, _Kind]], colour: bool = colour) -> str:
        return "".join(_marked(_printable(decode(part)), kind, colour) for part, kind in parts)

    so_far = [tuple(prompt) for prompt in prompts]
    for step in steps:
        if step.sequence >= len(so_far):
            raise InvalidInputError(
                f"a step continues prompt {step.sequence} and {len(so_far)} were given; give those "
                "of the generation"
            )
        before = so_far[step.sequence]
        so_far[step.sequence] = before + step.output
        name = f"{step.sequence}:{step.call}" if len(so_far) > 1 else f"{step.call}"
        parts = _output_parts(step)
        space = width - LABEL - 1 - len(written(parts, colour=False))
        context = _ending(_printable(decode(before)), max(space, LEAST_CONTEXT))
        yield f"{name:>{LABEL - 1}} " + _marked(context, CONTEXT, colour) + written(parts)
        if len(step.drafts) > 1:
            indent = " " * (LABEL + len(_marked(context, CONTEXT, colour=False)))
            for path in step.drafts:
                yield indent + written(_draft_parts(path, step))


def _output_parts(step: Step) -> list[tuple[Path, _Kind]]:
    """List the accepted drafts, of a single chain the rejected ones too, and the last token."""
    accepted, last = step.output[: step.accepted], step.output[step.accepted :]
    drafts = [(accepted, ACCEPTED)]
    if len(step.drafts) == 1:
        drafts = _draft_parts(step.drafts[0], step)
    return [*drafts, (last, TARGETS)]


def _draft_parts(path: Path, step: Step) -> list[tuple[Path, _Kind]]:
    """Split a path into what was accepted of it and what was not.

    Drafts behind an end token are neither: nobody knows what would have become of them.
    """
    agreed = common_length(path, step.output[: step.accepted])
    rest = () if agreed == len(step.output) else path[agreed:]
    return [(path[:agreed], ACCEPTED), (rest, REJECTED)]


def trace_legend(*, colour: bool = False) -> str:
    """Explain the marks of a trace by a line of one.

    Parameters
    ----------
    colour : bool, optional
        Whether to add colours, as ANSI escape sequences.

    Returns
    -------
    str
        A line, without its end.

    Examples
    --------
    >>> trace_legend()
    'text so far|accepted drafts[rejected drafts]+token of the target+'
    """
    parts = {
        "text so far": CONTEXT,
        "accepted drafts": ACCEPTED,
        "rejected drafts": REJECTED,
        "token of the target": TARGETS,
    }
    return "".join(_marked(text, kind, colour) for text, kind in parts.items())


def _printable(text: str) -> str:
    r"""Write what does not print, such as \n or an escape sequence, as in a string of Python."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _ending(text: str, length: int) -> str:
    """Shorten a text to its end."""
    return text if len(text) <= length else "…" + text[len(text) - length + 1 :]
