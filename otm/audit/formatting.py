"""How reports write numbers, rows, tokens and drafts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm.audit.adapters.base import Drafts, Failure, Outcome
from otm.decoding.reading import Path

MAX_SHOWN = 12
"""Most rows of a model, and most tokens of a row, that are shown."""


def number(value: Number) -> str:
    """Write out a number; a float with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(value: Number) -> str:
    """Write out a number, but no fraction of many digits."""
    exact = number(value)
    return exact if len(exact) <= MAX_SHOWN else f"{float(value):.4g}"


def numbers(values: Iterable[Number]) -> str:
    """Write out numbers."""
    return ", ".join(map(number, values))


def probs(row: Probs) -> str:
    """Write out a row; of many tokens, those with a positive probability."""
    if row.size <= MAX_SHOWN:
        return f"({numbers(row.tolist())})"
    positive = np.flatnonzero(row > 0).tolist()
    shown = [f"{token}: {number(row[token])}" for token in positive[:MAX_SHOWN]]
    more = [f"{len(positive) - MAX_SHOWN} more"] if len(positive) > MAX_SHOWN else []
    return f"({', '.join([*shown, *more])})"


def tokens(path: Path) -> str:
    """Write out tokens."""
    return " ".join(map(str, path)) or "(none)"


def outcome(given: Outcome) -> str:
    """Write out an output, or how a run failed."""
    return given.text if isinstance(given, Failure) else tokens(given)


def drafts(given: Drafts) -> str:
    """Write out a chain, several, or a tree."""
    if isinstance(given, Mapping):
        return ", ".join(f"{name} {tokens(values)}" for name, values in given.items())
    chains = [part for part in given if isinstance(part, tuple)]
    return " | ".join(map(tokens, chains)) if chains else tokens(given)  # type: ignore[arg-type]


def table(rows: dict[Path, Probs]) -> str:
    """Write out the rows of a model, those after the shortest contexts first."""
    shown = [
        f"after {tokens(path)} {probs(row)}" if path else probs(row)
        for path, row in itertools.islice(rows.items(), MAX_SHOWN)
    ]
    more = [f"{len(rows) - MAX_SHOWN} rows more"] if len(rows) > MAX_SHOWN else []
    return "; ".join([*shown, *more])
