"""Text representations of objects: short for arguments, facts for results, tables in notebooks.

Notebooks show a summary of an object instead of thousands of numbers.
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
"""Largest number of array or collection entries that are written out."""

SHORT = 10**20
"""Denominators below this limit are written out."""

NAME = 7
"""Smallest width of the column of names, in characters."""

ROWS = 30
"""Largest number of dictionary entries that a notebook shows."""

LONGEST = 200
"""Largest number of characters in the text of a nested object."""


def brief(value: Any) -> str:
    """Write a value as part of a larger text; long arrays and collections appear as their sizes."""
    if isinstance(value, np.ndarray):
        if value.size <= FEW:
            return shown(value.tolist())
        kind = "fractions" if value.dtype == object else str(value.dtype)
        return f"{kind} [{' × '.join(f'{size:,}' for size in value.shape)}]"
    if isinstance(value, ShortRepr):
        text = repr(value)
        return text if len(text) <= LONGEST else f"{type(value).__name__}(…)"
    if isinstance(value, Collection) and not isinstance(value, str | bytes) and len(value) > FEW:
        return f"{len(value):,} entries"
    return shown(value)


def number_text(value: Any) -> str:
    """Write a number or interval with 12 digits; a short fraction follows in parentheses."""
    if not isinstance(value, Fraction):
        return f"{value:.12g}"
    short = 1 < value.denominator < SHORT
    return f"{float(value):.12g}{f' = {value}' if short else ''}"


class ShortRepr:
    """Base of dataclasses whose text has the class name and the fields, with long fields cut."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # A dataclass does not replace a `__repr__` that its class defines.
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        fields = (field.name for field in dataclasses.fields(self) if field.repr)  # type: ignore[arg-type]
        parts = (f"{name}={brief(getattr(self, name))}" for name in fields)
        return f"{type(self).__name__}({', '.join(parts)})"


class ShortDict(dict[_Key, _Value]):
    """A dictionary whose text has only the first entries; a notebook shows a table."""

    def __repr__(self) -> str:
        first = {key: self[key] for key in itertools.islice(self, FEW)}
        rest = len(self) - len(first)
        return f"{first}" if not rest else f"{str(first)[:-1]}, … {rest:,} more}}"

    def _repr_html_(self) -> str:
        first = [(str(key), str(self[key])) for key in itertools.islice(self, ROWS)]
        rest = [("…", f"{len(self) - ROWS:,} more")] if len(self) > ROWS else []
        return html_table([*first, *rest])


class FactsRepr(ShortRepr):
    """Base of results whose text is a title with lines of facts; a notebook shows a table."""

    @property
    def _title(self) -> str:
        raise NotImplementedError

    def _lines(self) -> Sequence[tuple[str, str]]:
        """Return the names and texts of the facts."""
        raise NotImplementedError

    def __repr__(self) -> str:
        lines = self._lines()
        width = max(NAME, *(len(name) for name, _ in lines))
        return "\n".join([self._title, *(f"  {name:<{width}}  {text}" for name, text in lines)])

    def _repr_html_(self) -> str:
        from html import escape

        return html_table(self._lines(), escape(self._title))


class TextRepr(ShortRepr):
    """Base of results that format their own text, which a notebook shows unchanged."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"
