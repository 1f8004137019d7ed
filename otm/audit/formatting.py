"""Format numbers, rows, tokens and drafts for reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from otm._core.arithmetic import Number, Probs
from otm.audit.adapters.base import Drafts, Failure, Outcome
from otm.decoding.reading import Path

MAX_SHOWN = 12
"""Largest number of rows of a model, and of tokens of a row, that reports show."""


def number(value: Number) -> str:
    """Format a number; a float gets four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short(value: Number) -> str:
    """Format a number; replace a long fraction by a float."""
    exact = number(value)
    return exact if len(exact) <= MAX_SHOWN else f"{float(value):.4g}"


def numbers(values: Iterable[Number]) -> str:
    """Format numbers, separated by commas."""
    return ", ".join(map(number, values))


def probs(row: Probs) -> str:
    """Format a row; if it has many tokens, only its positive probabilities."""
    if row.size <= MAX_SHOWN:
        return f"({numbers(row.tolist())})"
    positive = np.flatnonzero(row > 0).tolist()
    shown = [f"{token}: {number(row[token])}" for token in positive[:MAX_SHOWN]]
    more = [f"{len(positive) - MAX_SHOWN} more"] if len(positive) > MAX_SHOWN else []
    return f"({', '.join([*shown, *more])})"


def tokens(path: Path) -> str:
    """Format tokens."""
    return " ".join(map(str, path)) or "(none)"


def outcome(value: Outcome) -> str:
    """Format the output of a run, or its failure."""
    return value.text if isinstance(value, Failure) else tokens(value)


def drafts(value: Drafts) -> str:
    """Format one chain, several chains or a tree."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {tokens(values)}" for name, values in value.items())
    chains = [part for part in value if isinstance(part, tuple)]
    return " | ".join(map(tokens, chains)) if chains else tokens(value)  # type: ignore[arg-type]


def table(rows: dict[Path, Probs]) -> str:
    """Format the rows of a model, sorted by the length of the context."""
    shown = [
        f"after {tokens(path)} {probs(row)}" if path else probs(row)
        for path, row in itertools.islice(rows.items(), MAX_SHOWN)
    ]
    more = [f"{len(rows) - MAX_SHOWN} rows more"] if len(rows) > MAX_SHOWN else []
    return "; ".join([*shown, *more])
