"""The list of figures.

A figure, or a table of a paper, is a module in the folder of its paper, or in `beyond`.  Its
docstring is its title and its caption, and it has

- ``KIND``, a `Kind`: what the numbers are;
- ``data() -> Table``, which computes them; with a constant ``SEED`` where anything is drawn;
- ``draw(table) -> matplotlib.figure.Figure``.

A longer, slower version of the data is ``full_data() -> Table``.  A figure of measurements has a
constant ``RECORDED``, a pattern of file names, and ``COMMAND``, which makes these files; its
``data`` takes the list of what they hold (`otm.figures.measurements`).  To add a figure, write its
file and add its name here: the tests, the command and the gallery pick it up.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from types import ModuleType

from otm._core.numbers import check_name


class Kind(StrEnum):
    """What the numbers of a figure are."""

    THEORY = "theory"
    """Exact: they must match what is printed, or a reason is given."""
    EXPERIMENT = "experiment"
    """Computed or sampled with our own models: the axes are the paper's, the numbers are not."""
    MEASUREMENT = "measurement"
    """Times or memory of a machine, which is named."""


FIGURES = (
    "leviathan_figure_1",
    "leviathan_figure_2",
    "leviathan_figure_3",
    "leviathan_figure_4",
    "leviathan_figure_5",
    "leviathan_table_1",
    "leviathan_table_2",
    "leviathan_table_3",
    "leviathan_table_4",
    "leviathan_table_4_measured",
    "leviathan_table_5",
    "leviathan_numbers_in_text",
    "spectr_figure_1",
    "spectr_figure_2",
    "spectr_figure_3",
    "spectr_figure_4",
    "spectr_figure_5",
    "spectr_figure_6",
    "spectr_table_1",
    "spectr_table_2",
    "spectr_table_3",
    "spectr_table_4",
    "wagner_table_1",
    "wagner_table_2",
    "wagner_table_3",
    "wagner_table_4",
    "wagner_table_5",
    "wagner_table_6",
    "wagner_table_7",
    "wagner_table_8",
    "wagner_figure_3",
    "wagner_figure_4",
    "wagner_figure_5",
    "beyond_real_text",
    "beyond_acceptance_by_rule",
    "beyond_lossy_frontier",
    "beyond_gain_by_ratio",
    "beyond_solve_time",
)


def module_name(name: str) -> str:
    """Name of the module of a figure.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.

    Examples
    --------
    >>> module_name("spectr_figure_4")
    'otm.figures.spectr.figure_4'
    """
    paper, _, item = check_name("figure", name, FIGURES).partition("_")
    return f"otm.figures.{paper}.{item}"


def load(name: str) -> ModuleType:
    """Import the module of a figure; it loads matplotlib only when it draws.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.
    """
    return import_module(module_name(name))
