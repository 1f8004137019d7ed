"""How objects show themselves: arguments in brief, results as facts, in notebooks as tables.

Nobody wants to read a thousand numbers where a notebook shows the value of a line.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from otm._core.display.text import html_table, shown

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

FEW = 6
"""Most numbers of an array, and entries of a collection, that are written out."""

SHORT = 10**20
"""Denominators below it are written."""

NAME = 7
"""Least characters of the column of names."""

ROWS = 30
"""Most entries of a dictionary that a notebook shows."""

LONGEST = 200
"""Most characters of a part that writes itself in brief."""


def brief(value: Any) -> str:
    """Write a value for the text of a larger one: long arrays and collections by their sizes."""
    if isinstance(value, np.ndarray):
        if value.size <= FEW:
            return shown(value.tolist())
        kind = "fractions" if value.dtype == object else str(value.dtype)
        return f"{kind} [{' × '.join(f'{size:,}' for size in value.shape)}]"
    if isinstance(value, Brief):
        text = repr(value)
        return text if len(text) <= LONGEST else f"{type(value).__name__}(…)"
    if isinstance(value, Collection) and not isinstance(value, str | bytes) and len(value) > FEW:
        return f"{len(value):,} entries"
    return shown(value)


def number_text(value: Any) -> str:
    """Write a number or an interval with 12 digits, and a fraction behind it as it is if short."""
    if not isinstance(value, Fraction):
        return f"{value:.12g}"
    short = 1 < value.denominator < SHORT
    return f"{float(value):.12g}{f' = {value}' if short else ''}"


class Brief:
    """A dataclass that is written as its class and its fields, long ones cut."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # a dataclass keeps its own

    def __repr__(self) -> str:
        fields = (field.name for field in dataclasses.fields(self) if field.repr)  # type: ignore[arg-type]
        parts = (f"{name}={brief(getattr(self, name))}" for name in fields)
        return f"{type(self).__name__}({', '.join(parts)})"


class BriefDict(dict[_Key, _Value]):
    """A dictionary that is written with its first entries alone; a notebook shows a table."""

    def __repr__(self) -> str:
        first = {key: self[key] for key in itertools.islice(self, FEW)}
        rest = len(self) - len(first)
        return f"{first}" if not rest else f"{str(first)[:-1]}, … {rest:,} more}}"

    def _repr_html_(self) -> str:
        first = [(str(key), str(self[key])) for key in itertools.islice(self, ROWS)]
        rest = [("…", f"{len(self) - ROWS:,} more")] if len(self) > ROWS else []
        return html_table([*first, *rest])


class Facts(Brief):
    """A result that is shown as a title and facts below it, in a notebook as a table."""

    @property
    def _title(self) -> str:
        raise NotImplementedError

    def _lines(self) -> Sequence[tuple[str, str]]:
        """Names and texts."""
        raise NotImplementedError

    def __repr__(self) -> str:
        lines = self._lines()
        width = max(NAME, *(len(name) for name, _ in lines))
        return "\n".join([self._title, *(f"  {name:<{width}}  {text}" for name, text in lines)])

    def _repr_html_(self) -> str:
        from html import escape

        return html_table(self._lines(), escape(self._title))


class Printed(Brief):
    """A result whose text is laid out already; a notebook shows it as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"
