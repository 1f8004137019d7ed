"""Make the adapter of a program from its command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from otm._core.display.text import shown
from otm._core.numbers import as_real, check_name
from otm.audit.adapters.base import Adapter
from otm.audit.programs.child import command_text
from otm.audit.programs.messages import Session
from otm.audit.programs.verifiers import (
    ProgramOfChains,
    ProgramOfLoops,
    Rows,
    SeededProgramOfChains,
)
from otm.errors import InvalidParameterError

KINDS = ("chain", "chains", "loop")
"""Kinds of programs."""

RANDOMNESS = ("uniforms", "seed")
"""Kinds of random numbers that a program can receive."""

DAY = 86_400.0
"""Largest time limit in seconds."""


def process(
    command: Sequence[str | os.PathLike[str]],
    *,
    kind: str = "chain",
    randomness: str = "uniforms",
    temperature: float | None = None,
    max_tokens: int | None = None,
    end: int | None = None,
    timeout: float = 10.0,
    start_timeout: float = 30.0,
    name: str | None = None,
) -> Adapter:
    """Return an adapter of a program in any language, for `lossless`.

    The program reads requests from standard input and writes answers to standard output: one JSON
    object per line, one answer per request, in order, each flushed.  It ends when its input ends.

    A verifier of a chain gets target rows [γ + 1][V], draft rows [γ][V], γ drafts and γ + 2
    uniforms, always with these keys in this order and without spaces.  It returns the accepted
    drafts and one more token::

        {"id":7,"target":[[0.5,0.5],[0.2,0.8]],"draft":[[0.9,0.1]],"tokens":[0],"uniforms":[…]}
        {"id":7,"tokens":[0,1]}

    A verifier of K chains gets rows [K][γ + 1][V] and [K][γ][V], drafts [K][γ] and K γ + 2
    uniforms.  A loop gets a prompt, asks for rows and uniforms as often as it likes, and returns
    exactly `max_tokens` tokens, or fewer if a text ends with `end`::

        {"id":3,"prompt":[0],"gamma":2,"max_tokens":3,"vocabulary":2}
        {"model":"draft","tokens":[0]}               asks for the row after a text
        {"probs":[0.9,0.1]}
        {"model":"target","tokens":[0,1,1],"rows":3} asks for the last 3 rows
        {"probs":[[0.5,0.5],[0.2,0.8],[0.3,0.7]]}
        {"uniforms":2}                               asks for uniforms
        {"uniforms":[0.25,0.75]}
        {"id":3,"tokens":[1,0,1]}                    ends the run

    Each float has enough digits to be read back exactly.  docs/audit.md describes the audit, which
    is our own design.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.  No shell interprets them.
    kind : str, optional
        "chain", "chains" (a verifier of several chains) or "loop".
    randomness : str, optional
        "uniforms", or "seed" for a program that draws its own random numbers.  Each request then
        has a "seed" from 0 to 2^31 − 1, and the audit samples.
    temperature : float, optional
        If given, rows are logits ("target_logits", "draft_logits", and "logits" for a loop).  The
        requests contain this "temperature", by which the program must divide the logits.  A logit
        of −10^30 stands for probability 0.
    max_tokens : int, optional
        Number of tokens of a text, as for `loop`.  A loop with fewer tokens is audited faster.
    end : int, optional
        Token that ends a text, as for `loop`.
    timeout : float, optional
        Number of seconds to wait for an answer; a loop must end each run within this time.
    start_timeout : float, optional
        Number of seconds to wait for the first answer, if more than `timeout`.
    name : str, optional
        Name in reports; by default the command.

    Returns
    -------
    Adapter
        A verifier for `lossless`.  The program starts at the first run, and `lossless` ends it.
        `lossless` raises `ProcessError` if the program does not start, ends early, answers late, or
        writes anything but answers.

    Raises
    ------
    InvalidParameterError
        If the command is empty or not a sequence of strings, or a number is out of range, or
        `max_tokens` or `end` is given without kind "loop".
    UnknownMethodError
        If `kind` or `randomness` is unknown.

    Examples
    --------
    >>> import sys
    >>> from otm.audit import lossless
    >>> program = '''
    ... import json, sys
    ... for line in sys.stdin:
    ...     request = json.loads(line)
    ...     tokens = request["tokens"] + [0]  # accepts every draft
    ...     print(json.dumps({"id": request["id"], "tokens": tokens}), flush=True)
    ... '''
    >>> verifier = process([sys.executable, "-c", program], name="accepts all")
    >>> lossless(verifier, slow=True).verdict
    'not lossless'
    """
    arguments = _as_command(command)
    check_name("kind of program", kind, KINDS)
    check_name("randomness", randomness, RANDOMNESS)
    if temperature is not None:
        temperature = as_real(temperature, "temperature", least=1e-3, most=1e3)
    if kind != "loop" and (max_tokens is not None or end is not None):
        raise InvalidParameterError(
            f"`max_tokens` and `end` are for loops, but the kind is {kind!r}; leave them out, or "
            'give kind="loop" (--kind loop)'
        )
    session = Session(
        arguments,
        as_real(timeout, "timeout", above=0, most=DAY),
        as_real(start_timeout, "start_timeout", above=0, most=DAY),
    )
    rows, seeded = Rows(temperature), randomness == "seed"
    label = name or command_text(arguments)
    if kind == "loop":
        return ProgramOfLoops(session, rows, label, seeded=seeded, max_tokens=max_tokens, end=end)
    adapter = SeededProgramOfChains if seeded else ProgramOfChains
    return adapter(session, rows, label, seeded=seeded, several=kind == "chains")


def _as_command(command: Any) -> list[str]:
    """Return the command as strings, or raise."""
    if isinstance(command, Sequence) and not isinstance(command, str | bytes) and command:
        parts = [os.fspath(part) for part in command if isinstance(part, str | os.PathLike)]
        if len(parts) == len(command) and all(isinstance(part, str) for part in parts) and parts[0]:
            return parts
    raise InvalidParameterError(
        f"the command is {shown(command)}; give a list with a program and its arguments, such as "
        '["node", "verifier.js"]'
    )
