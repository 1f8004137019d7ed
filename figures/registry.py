"""The list of figures, and what a figure is.

A figure, or a table of a paper, is a function that computes its data, in the folder of its paper or
in `beyond`.  Its docstring is the title and the caption.  A decorator says what the numbers are,
and makes the function a `DataFigure`, whose `drawing` takes the function that draws:

    @theory
    def figure_4() -> Table: ...

    @figure_4.drawing
    def draw_figure_4(table: Table) -> Figure: ...

To add a figure, write these two functions and add a line to `FIGURES`: the tests, the command and
the page pick it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from figures.records import where
from figures.table import Table
from otm._core.drawing import journal_style
from otm._core.numbers import check_name
from otm.errors import UnknownMethodError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = Callable[..., Table]

FIGURES = {
    "leviathan_figure_1": "leviathan.traces",
    "leviathan_figure_2": "leviathan.curves",
    "leviathan_figure_3": "leviathan.curves",
    "leviathan_figure_4": "leviathan.curves",
    "leviathan_figure_5": "leviathan.traces",
    "leviathan_table_1": "leviathan.printed",
    "leviathan_table_2": "leviathan.measured",
    "leviathan_table_3": "leviathan.acceptance",
    "leviathan_table_4": "leviathan.printed",
    "leviathan_table_4_measured": "leviathan.measured",
    "leviathan_table_5": "leviathan.acceptance",
    "leviathan_numbers_in_text": "leviathan.printed",
    "spectr_figure_1": "spectr.iterations",
    "spectr_figure_2": "spectr.iterations",
    "spectr_figure_3": "spectr.iterations",
    "spectr_figure_4": "spectr.acceptance",
    "spectr_figure_5": "spectr.acceptance",
    "spectr_figure_6": "spectr.acceptance",
    "spectr_table_1": "spectr.measured",
    "spectr_table_2": "spectr.measured",
    "spectr_table_3": "spectr.measured",
    "spectr_table_4": "spectr.block_efficiency",
    "wagner_table_1": "wagner.texts",
    "wagner_table_2": "wagner.scales",
    "wagner_table_3": "wagner.chains",
    "wagner_table_4": "wagner.texts",
    "wagner_table_5": "wagner.texts",
    "wagner_table_6": "wagner.texts",
    "wagner_table_7": "wagner.scales",
    "wagner_table_8": "wagner.acceptance",
    "wagner_figure_3": "wagner.chains",
    "wagner_figure_4": "wagner.chains",
    "wagner_figure_5": "wagner.chains",
    "beyond_two_bars": "beyond.two_bars",
    "beyond_real_text": "beyond.real_text",
    "beyond_acceptance_by_rule": "beyond.acceptance_by_rule",
    "beyond_lossy_frontier": "beyond.lossy_frontier",
    "beyond_lossy_texts": "beyond.lossy_texts",
    "beyond_gain_by_ratio": "beyond.gain_by_ratio",
    "beyond_solve_time": "beyond.solve_time",
    "beyond_block_optimum": "beyond.block_optimum",
    "beyond_block_rules": "beyond.block_rules",
    "beyond_one_walk": "beyond.one_walk",
    "beyond_trees": "beyond.trees",
    "beyond_drafters": "beyond.drafters",
    "beyond_watermarks": "beyond.watermarks",
}
"""By name, in the order of the page, the module below `figures` that a figure is in."""

_CITED = {
    "leviathan2023": "Leviathan et al. 2023",
    "sun2023": "Sun et al. 2023",
    "wagner2024": "Wagner et al. 2024",
}
"""How captions cite an entry of docs/references.bib."""


OUR_GPTS = "our byte-level GPTs"


class Kind(StrEnum):
    """What the numbers of a figure are."""

    THEORY = "theory"
    """Exact: they must match what is printed, or a reason is given."""
    EXPERIMENT = "experiment"
    """Computed or sampled with our own models: the axes are the paper's, the numbers are not."""
    MEASUREMENT = "measurement"
    """Times or memory of a machine, which is named."""


@dataclass(eq=False)
class DataFigure:
    """A figure or a table: calling it computes its data, `draw` draws them.

    Parameters
    ----------
    kind : Kind
        What the numbers are.
    compute : callable
        Returns the data; of a measurement, from the list of what its records hold.
    seed : int, optional
        What random numbers are drawn from.
    full : callable, optional
        Returns the arguments of `compute` for a longer, slower version of the data.
    record, command : str, optional
        Of a measurement, the pattern of its records' names, such as "kernels-*", and the command
        that makes them.
    models : str, optional
        What was computed or measured with, for the line above a picture.
    """

    kind: Kind
    compute: Data
    seed: int | None = None
    full: Callable[[], dict[str, Any]] | None = None
    record: str = ""
    command: str = ""
    models: str = ""
    title: str = field(init=False)
    paragraphs: list[str] = field(init=False)

    def __post_init__(self) -> None:
        parts = [" ".join(part.split()) for part in (self.compute.__doc__ or "").split("\n\n")]
        self.title, *self.paragraphs = [_plain(part) for part in parts if part]
        self.title = self.title.rstrip(".")

    def __call__(self, *arguments: Any, **options: Any) -> Table:
        """Compute the data; of a measurement with the machine that it was made on."""
        table = self.compute(*arguments, **options)
        if self.kind == Kind.MEASUREMENT and not {"device", "machine"} & set(table.names):
            places = "; ".join(dict.fromkeys(map(where, arguments[0])))
            table = Table((*table.names, "machine"), tuple((*row, places) for row in table.rows))
        return table

    def caption(self, table: Table) -> str:
        """Title above the data that were drawn; it says so where a CPU stands for GPUs."""
        return f"{self.title}, here on a CPU" if of_cpus(table) else self.title

    def origin(self, table: Table) -> str:
        """Say whose numbers a picture shows."""
        if "verdict" in table.names:
            return "printed: the paper's; computed: ours, exact by its formulas"
        if self.kind == Kind.THEORY:
            return "computed exactly, here"
        if self.kind == Kind.EXPERIMENT:
            return f"computed here with {self.models}"
        places = [name for name in ("device", "machine") if name in table.names]
        machine = "; ".join(dict.fromkeys(table[places[0]].tolist()))
        said = f"measured here{' with ' if self.models else ''}{self.models}: {machine}"
        return f"{said}; no comparison with the paper's GPUs" if of_cpus(table) else said

    def drawing(self, draw: Callable[[Table], Figure]) -> Callable[[Table], Figure]:
        """Take the function that draws the data."""
        self._draw = draw
        return draw

    def draw(self, table: Table) -> Figure:
        """Draw data that were computed, or read back, below a line that says whose they are."""
        from figures.drawing.style import write_above

        with journal_style():
            figure = self._draw(table)
            write_above(figure, self.origin(table))
            return figure


def of_cpus(table: Table) -> bool:
    """Whether all of a paper's measurement on GPUs was made on CPUs."""
    return "kind" in table.names and set(table["kind"].tolist()) == {"cpu"}


def theory(compute: Data) -> DataFigure:
    """Make a figure of exact numbers."""
    return DataFigure(Kind.THEORY, compute)


def experiment(
    *, seed: int, models: str = OUR_GPTS, full: Callable[[], dict[str, Any]] | None = None
) -> Callable[[Data], DataFigure]:
    """Make a figure of numbers that are computed or sampled with our models."""
    return lambda compute: DataFigure(Kind.EXPERIMENT, compute, seed=seed, full=full, models=models)


def measurement(*, record: str, command: str, models: str = "") -> Callable[[Data], DataFigure]:
    """Make a figure of what benchmarks recorded."""
    return lambda compute: DataFigure(
        Kind.MEASUREMENT, compute, record=record, command=command, models=models
    )


of_papers = measurement(
    record="papers", command="python -m benchmarks.papers --save", models=OUR_GPTS
)
"""Decorator of the five tables of two papers that show the record of `benchmarks.papers`."""


def module_name(name: str) -> str:
    """Name of the module of a figure.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.

    Examples
    --------
    >>> module_name("spectr_figure_4")
    'figures.spectr.acceptance'
    """
    return f"figures.{FIGURES[check_name('figure', name, tuple(FIGURES))]}"


def load(name: str) -> DataFigure:
    """Import a figure; it loads matplotlib only when it draws.

    Raises
    ------
    UnknownMethodError
        If there is no figure of this name.

    Examples
    --------
    >>> load("spectr_figure_5").title
    "SpecTr's Figure 5: optimal acceptance for uniform distributions"
    """
    figure = getattr(import_module(module_name(name)), name.partition("_")[2])
    assert isinstance(figure, DataFigure)
    return figure


def _plain(text: str) -> str:
    """Write citations out and take the marks of code away."""
    named = re.sub(r"\[(\w+)\]_", lambda cited: _short(cited[1]), text)
    return re.sub(r"`+([^`]+)`+", r"\1", named)


def _short(key: str) -> str:
    if key not in _CITED:
        raise UnknownMethodError(
            f"a caption cites {key!r}, which has no short form; known ones are {', '.join(_CITED)}"
        )
    return _CITED[key]
