"""Titles and captions of figures, from the docstrings of their modules."""

from __future__ import annotations

import re
from typing import NamedTuple

from otm.errors import UnknownMethodError
from otm.figures.registry import load

_SHORT = {
    "leviathan2023": "Leviathan et al. 2023",
    "sun2023": "Sun et al. 2023",
    "wagner2024": "Wagner et al. 2024",
}


class Caption(NamedTuple):
    """What is written beside a figure.

    Attributes
    ----------
    title : str
        One line, without a full stop.
    paragraphs : list of str
        Plain text.
    """

    title: str
    paragraphs: list[str]


def caption_of(name: str) -> Caption:
    """Take the caption of a figure from its module's docstring.

    Examples
    --------
    >>> caption_of("spectr_figure_5").title
    "SpecTr's Figure 5: optimal acceptance for uniform laws"
    """
    text = (load(name).__doc__ or "").partition("\nReferences\n")[0]
    title, *rest = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    return Caption(title.rstrip("."), [_plain(part) for part in rest if part])


def _short(key: str) -> str:
    if key not in _SHORT:
        raise UnknownMethodError(
            f"a caption cites {key!r}, which has no short form; known ones are {', '.join(_SHORT)}"
        )
    return _SHORT[key]


def _plain(text: str) -> str:
    """Write citations out and take the marks of code away."""
    named = re.sub(r"\[(\w+)\]_", lambda found: _short(found[1]), text)
    return re.sub(r"`+([^`]+)`+", r"\1", named)
