"""The list of figures.

A figure is a module of this folder with two functions: ``data() -> Table`` computes its numbers,
``draw(table) -> matplotlib.figure.Figure`` draws them.  A slower, longer version is a third one,
``full_data() -> Table``.  To add a figure, write its file and add its name here.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from otm.errors import UnknownMethodError

__all__ = ["FIGURES", "load"]

FIGURES = (
    "spectr_figure_4",
    "spectr_figure_5",
    "spectr_figure_6",
    "real_text",
)


def load(name: str) -> ModuleType:
    """Import the module of a figure; it loads matplotlib only when it draws.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.
    """
    if name not in FIGURES:
        raise UnknownMethodError(f"figure {name!r}; known figures are {', '.join(FIGURES)}")
    return import_module(f"otm.figures.{name}")
