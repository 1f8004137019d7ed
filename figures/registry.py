"""The list of figures, and the class of a figure.

A figure, or a table of a paper, is a function that computes its data.  It is in the folder of its
paper or in `beyond`.  Its docstring is the title and the caption.  A decorator states the kind of
numbers and makes the function a `DataFigure`; its method `drawing` registers the function that
draws:

    @theory
    def figure_4() -> Table: ...

    @figure_4.drawing
    def draw_figure_4(table: Table) -> Figure: ...

To add a figure, write these two functions and add a line to `FIGURES`.  The tests, the command and
the page then include it.
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
    "beyond_overlap": "beyond.overlap",
    "real_tokens": "real.tokens",
    "real_speed": "real.speed",
    "real_iteration": "real.iteration",
}
"""Module in `figures` of each figure, by the figure's name, in the order of the page."""

_CITED = {
    "leviathan2023": "Leviathan et al. 2023",
    "sun2023": "Sun et al. 2023",
    "wagner2024": "Wagner et al. 2024",
}
"""Citations in captions, by the key in docs/references.bib."""


OUR_GPTS = "our byte-level GPTs"
REAL_MODELS = "SmolLM2-135M and Gemma 3 270M"
REAL_COMMAND = "make real"


class Kind(StrEnum):
    """Kind of a figure's numbers."""

    THEORY = "theory"
    """Exact numbers, which must match the printed ones unless a reason is given."""
    EXPERIMENT = "experiment"
    """Numbers computed or sampled with our models: only the axes are the paper's."""
    MEASUREMENT = "measurement"
    """Times or memory of a named machine."""


@dataclass(eq=False)
class DataFigure:
    """A figure or a table; a call computes its data, and `draw` draws them.

    Parameters
    ----------
    kind : Kind
        Kind of the numbers.
    compute : callable
        Returns the data.  For a measurement, its argument is the list of the records' contents.
    seed : int, optional
        Seed of random numbers.
    full : callable, optional
        Returns the arguments of `compute` for a longer, slower version of the data.
    record, command : str, optional
        For a measurement, the name pattern of its records, such as "kernels-*", and the command
        that makes the records.
    models : str, optional
        Models of the computation or measurement, for the line above a picture.
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
        """Compute the data; for a measurement, add a column with the machine."""
        table = self.compute(*arguments, **options)
        if self.kind == Kind.MEASUREMENT and not {"device", "machine"} & set(table.names):
            places = "; ".join(dict.fromkeys(map(where, arguments[0])))
            table = Table((*table.names, "machine"), tuple((*row, places) for row in table.rows))
        return table

    def caption(self, table: Table) -> str:
        """Return the title for drawn data, with a note if a CPU replaces GPUs."""
        return f"{self.title}, here on a CPU" if of_cpus(table) else self.title

    def origin(self, table: Table) -> str:
        """Return a line that states the origin of a picture's numbers."""
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
        """Register the function that draws the data."""
        self._draw = draw
        return draw

    def draw(self, table: Table) -> Figure:
        """Draw data, computed or read back, under a line that states their origin."""
        from figures.drawing.style import write_above

        with journal_style():
            figure = self._draw(table)
            write_above(figure, self.origin(table))
            return figure


def of_cpus(table: Table) -> bool:
    """Whether CPUs replaced all GPUs of a paper's measurement."""
    return "kind" in table.names and set(table["kind"].tolist()) == {"cpu"}


def theory(compute: Data) -> DataFigure:
    """Make a figure of exact numbers."""
    return DataFigure(Kind.THEORY, compute)


def experiment(
    *, seed: int, models: str = OUR_GPTS, full: Callable[[], dict[str, Any]] | None = None
) -> Callable[[Data], DataFigure]:
    """Make a figure of numbers computed or sampled with our models."""
    return lambda compute: DataFigure(Kind.EXPERIMENT, compute, seed=seed, full=full, models=models)


def measurement(*, record: str, command: str, models: str = "") -> Callable[[Data], DataFigure]:
    """Make a figure of records of the benchmarks."""
    return lambda compute: DataFigure(
        Kind.MEASUREMENT, compute, record=record, command=command, models=models
    )


of_papers = measurement(
    record="papers", command="python -m benchmarks.papers --save", models=OUR_GPTS
)
"""Decorator of the five tables that show the record of `benchmarks.papers`."""


def module_name(name: str) -> str:
    """Return the name of a figure's module.

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
    """Expand citations, and remove the backquotes of code."""
    named = re.sub(r"\[(\w+)\]_", lambda cited: _short(cited[1]), text)
    return re.sub(r"`+([^`]+)`+", r"\1", named)


def _short(key: str) -> str:
    if key not in _CITED:
        raise UnknownMethodError(
            f"a caption cites {key!r}, which has no short form; known ones are {', '.join(_CITED)}"
        )
    return _CITED[key]
