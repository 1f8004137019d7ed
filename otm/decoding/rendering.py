"""Decoding traces as text: which tokens were drafted, accepted and rejected.

A trace looks like Figure 1 of [leviathan2023]_; with several drafts, like Figure 3 of [sun2023]_.
Marks show the status of each token, and optional colours repeat it.  A bar follows the text so far
(faint).  Accepted drafts have no mark (green).  [Rejected drafts] are in brackets (red).  +Tokens
of the target+ are between plus signs (blue).

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
"""Function from token ids to text; it receives single parts of a sequence."""


class _Kind(NamedTuple):
    """Marks around one kind of text, and its colour as parameters of an ANSI escape sequence."""

    before: str
    after: str
    colour: str


# The colours are faint, green, red and bold blue; normal blue is too dark on black.
CONTEXT = _Kind("", "|", "2")
ACCEPTED = _Kind("", "", "32")
REJECTED = _Kind("[", "]", "31")
TARGETS = _Kind("+", "+", "1;34")

LABEL = 5
"""Width of the step number at the start of a line, in characters."""

LEAST_CONTEXT = 10
"""Number of context characters that a line always shows, even if it becomes too long."""


def _marked(text: str, kind: _Kind, colour: bool) -> str:
    """Return a text with the marks of its kind, and with its colour if `colour` is true."""
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
    r"""Yield one line for each step: its accepted drafts, its rejected drafts and its last token.

    A line has the step number, the end of the text so far, the accepted drafts, and the token of
    the target.  If there is only one draft path, the line also has the rejected drafts.  If there
    are several paths, one more line for each path shows its accepted and rejected drafts.

    Parameters
    ----------
    steps : iterable of Step
        The steps of a `Generation`, or the running iterator of `stream`.
    prompts : sequence of sequences of int
        The prompts of these steps.
    decode : callable
        Function from token ids to text.  The function receives the drafts without their context.
        Where a part of a line begins or ends within a character of several tokens, a replacement
        character appears.
    width : int, optional
        Maximum number of characters of a line; the text so far is shortened to fit.
    colour : bool, optional
        Whether to add colours, as ANSI escape sequences.

    Yields
    ------
    str
        A line without its newline.  Line ends and unprintable characters of the texts are escaped
        as in Python strings.

    Raises
    ------
    InvalidInputError
        If a step belongs to a prompt that is missing from `prompts`.

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

    def rendered(parts: Iterable[tuple[Path, _Kind]], colour: bool = colour) -> str:
        return "".join(_marked(_printable(decode(part)), kind, colour) for part, kind in parts)

    so_far = [tuple(prompt) for prompt in prompts]
    for step in steps:
        if step.sequence >= len(so_far):
            raise InvalidInputError(
                f"a step belongs to prompt {step.sequence}, but the number of prompts is "
                f"{len(so_far)}; pass all prompts of the generation"
            )
        before = so_far[step.sequence]
        so_far[step.sequence] = before + step.output
        name = f"{step.sequence}:{step.call}" if len(so_far) > 1 else f"{step.call}"
        parts = _output_parts(step)
        space = width - LABEL - 1 - len(rendered(parts, colour=False))
        context = _ending(_printable(decode(before)), max(space, LEAST_CONTEXT))
        yield f"{name:>{LABEL - 1}} " + _marked(context, CONTEXT, colour) + rendered(parts)
        if len(step.drafts) > 1:
            indent = " " * (LABEL + len(_marked(context, CONTEXT, colour=False)))
            for path in step.drafts:
                yield indent + rendered(_draft_parts(path, step))


def _output_parts(step: Step) -> list[tuple[Path, _Kind]]:
    """Return the parts of a line: accepted drafts, rejected drafts of a chain, the last token."""
    accepted, last = step.output[: step.accepted], step.output[step.accepted :]
    drafts = [(accepted, ACCEPTED)]
    if len(step.drafts) == 1:
        drafts = _draft_parts(step.drafts[0], step)
    return [*drafts, (last, TARGETS)]


def _draft_parts(path: Path, step: Step) -> list[tuple[Path, _Kind]]:
    """Split a path into its accepted and its rejected drafts.

    Drafts after an end token belong to neither part, because verification did not decide on them.
    """
    agreed = common_length(path, step.output[: step.accepted])
    rest = () if agreed == len(step.output) else path[agreed:]
    return [(path[:agreed], ACCEPTED), (rest, REJECTED)]


def trace_legend(*, colour: bool = False) -> str:
    """Return a line that explains the marks of a trace.

    Parameters
    ----------
    colour : bool, optional
        Whether to add colours, as ANSI escape sequences.

    Returns
    -------
    str
        A line without its newline.

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
    r"""Replace unprintable characters, such as a line break, by escapes, as in a Python string."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _ending(text: str, length: int) -> str:
    """Return the end of a text, at most `length` characters long."""
    return text if len(text) <= length else "…" + text[len(text) - length + 1 :]
