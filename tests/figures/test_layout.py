"""The pictures of the committed data: complete, legible, and as they were last looked at."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from PIL import Image

from figures.committed import LARGEST_DIFFERENCE, picture_distance
from figures.drawing.style import save_pictures
from figures.drawing.tables import comparison_figure, table_figure
from figures.registry import FIGURES, Kind, load
from figures.table import Comparison, Table, comparison_table
from otm._core.drawing import COLUMN_WIDTH, PAGE_WIDTH, journal_style

FOLDER = Path(__file__).parents[2] / "figures" / "drawn"

Committed = Callable[[str], Table]

FOR_PRINT = ["leviathan_figure_5", "spectr_table_4", "wagner_table_1", "beyond_trees"]
"""Curves, a table below plots, a table and letters of formulas: one function writes them all."""


@pytest.fixture(scope="module", params=FIGURES)
def name(request: pytest.FixtureRequest) -> str:
    """Name a figure; the tests of one figure come together, so that it is drawn once."""
    return str(request.param)


@pytest.fixture(scope="module")
def drawn(name: str, committed: Committed) -> Figure:
    figure: Figure = load(name).draw(committed(name))
    figure.set_dpi(300)  # letters are set to whole pixels: coarse ones would overlap
    with warnings.catch_warnings(), journal_style():
        warnings.simplefilter("error")  # a glyph that the font lacks, a layout that does not fit
        FigureCanvasAgg(figure).draw()
    return figure


def texts_of(axes: Axes) -> list[tuple[str, Bbox]]:
    """Find where on the page the labels, numbers, notes and legend of a drawing are."""
    texts = [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, *axes.texts]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        # matplotlib keeps ticks outside of the view, and does not draw them
        if axis.get_visible() and axes.axison:
            texts += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_visible()]
    if legend := axes.get_legend():
        boxes.append(("legend", legend.get_window_extent()))
    return [(text, box) for text, box in boxes if text]


def boxes_of(figure: Figure) -> list[tuple[str, Bbox]]:
    boxes = [box for axes in figure.axes for box in texts_of(axes)]
    boxes += [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    boxes += [("legend", legend.get_window_extent()) for legend in figure.legends]
    return [(text, box) for text, box in boxes if text]


def check_boxes(figure: Figure) -> None:
    page = figure.bbox
    boxes = boxes_of(figure)
    assert boxes
    for text, box in boxes:
        assert page.x0 - 1 <= box.x0 <= box.x1 <= page.x1 + 1, f"{text!r} leaves the page"
        assert page.y0 - 1 <= box.y0 <= box.y1 <= page.y1 + 1, f"{text!r} leaves the page"
    low, high = np.array([[box.min, box.max] for _, box in boxes]).swapaxes(0, 1)
    common = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    overlap = np.tril(common.min(axis=2) > 0.01 * figure.dpi, -1)
    said = [f"{boxes[i][0]!r} on {boxes[j][0]!r}" for i, j in np.argwhere(overlap)]
    assert not said, said[0]


def test_nothing_is_cut_off_and_no_text_lies_on_text(drawn: Figure) -> None:
    """Bug: labels that leave the page or run into each other."""
    check_boxes(drawn)


def test_no_line_of_a_table_runs_through_letters(drawn: Figure) -> None:
    """Bug: a line between groups of rows on the feet of letters."""
    lines = [line for line in drawn.findobj(Line2D, include_self=False) if line.axes is None]
    for line in lines:
        if line.get_transform() == drawn.transSubfigure:
            (height,) = set(line.get_window_extent().get_points()[:, 1])
            for text, box in boxes_of(drawn):
                assert not box.y0 < height < box.y1, f"a line through {text!r}"


def test_each_picture_says_whose_numbers_it_shows(name: str, drawn: Figure) -> None:
    """Bug: a time of our CPU that is taken for one of the paper's GPU."""
    said = " ".join(drawn.texts[-1].get_text().split())
    figure = load(name)
    beginning = {
        Kind.THEORY: "(computed exactly, here|printed: the paper's)",
        Kind.EXPERIMENT: "computed here with .+",
        Kind.MEASUREMENT: "measured here.*: .*(Processor|EPYC|NVIDIA)",
    }
    assert re.match(beginning[figure.kind], said)
    assert ("no comparison with the paper's GPUs" in said) == name.startswith(
        (*(f"wagner_table_{i}" for i in (1, 3, 4, 5, 6)), "wagner_figure")
    )


def test_no_legend_and_no_note_covers_a_point(drawn: Figure) -> None:
    """Bug: a legend over the curve that it explains."""
    for axes in drawn.axes:
        lines = [line for line in axes.lines if line.get_transform() == axes.transData]
        if not lines or not axes.axison:
            continue
        shown = Bbox(axes.bbox.get_points())
        points = np.concatenate([axes.transData.transform(line.get_xydata()) for line in lines])
        for text, box in texts_of(axes):
            covered = [p for p in points if box.contains(*p) and shown.contains(*p)]
            assert not covered, f"{text!r} covers {covered[0]}"


def test_axes_are_named_and_the_figure_is_as_wide_as_a_column_or_a_page(
    drawn: Figure,
) -> None:
    """Bug: an axis without a name; a figure or a font that a journal would have to change."""
    width = drawn.get_size_inches()[0]
    assert min(abs(width - COLUMN_WIDTH), abs(width - PAGE_WIDTH)) < 1e-9
    assert drawn.get_size_inches()[1] <= 9
    plots = [axes for axes in drawn.axes if axes.axison]
    for axes in plots:
        row = [other for other in plots if abs(other.bbox.y0 - axes.bbox.y0) < 2]
        sharing = axes.get_shared_y_axes().get_siblings(axes)
        lanes = [label for label in axes.get_yticklabels() if label.get_text()[:1].isalpha()]
        named = lanes or any(other.get_ylabel() for other in [*row, *sharing])
        assert named or not axes.yaxis.get_visible()
    if plots:
        named = [axes.get_xlabel() for axes in plots] + [drawn._supxlabel]
        assert any(named)
    texts = list(drawn.texts)
    for axes in drawn.axes:
        texts += [*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()]
    assert min((text.get_fontsize() for text in texts if text.get_text()), default=8) >= 7.9


def test_the_picture_is_the_one_that_was_looked_at(
    name: str, drawn: Figure, need_pinned: Callable[[str], None], tmp_path: Path
) -> None:
    """Bug: a change of style or layout that nobody saw; `make figures UPDATE=1` takes it over."""
    need_pinned("matplotlib")
    looked_at, now = FOLDER / f"{name}.png", tmp_path / "now.png"
    assert isinstance(drawn.canvas, FigureCanvasAgg)
    with Image.open(looked_at) as picture:
        is_same = np.array_equal(np.asarray(picture), np.asarray(drawn.canvas.buffer_rgba()))
    if not is_same:  # to write it takes longer than to draw it
        save_pictures(drawn, tmp_path, "now", ["png"])
        assert picture_distance(looked_at, now) <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("name", FOR_PRINT, scope="module")
def test_pictures_for_print_hold_no_dates_and_embedded_fonts(
    name: str, drawn: Figure, tmp_path: Path
) -> None:
    """Bug: a date or a program's version in the metadata; Type 3 fonts, which print badly."""
    drawn.set_layout_engine("none")  # everything has its place
    save_pictures(drawn, tmp_path, name, ["pdf", "svg"])
    pdf = (tmp_path / f"{name}.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert b"/CreationDate" not in pdf
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    svg = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    assert "<svg " in svg
    assert "<dc:date>" not in svg
    assert "<text" not in svg


def test_a_moved_label_is_another_picture(tmp_path: Path) -> None:
    """Negative control: the comparison of pictures sees a line of text that moved."""
    for name, note in (("one", "\n\na note"), ("other", "a note\n\n")):
        with journal_style():
            figure = table_figure(["a", "b"], [["x", "1"], ["y", "2"]], note=note)
            figure.savefig(tmp_path / f"{name}.png")
    one, other = (tmp_path / f"{name}.png" for name in ("one", "other"))
    assert picture_distance(one, other) > LARGEST_DIFFERENCE
    assert picture_distance(one, one) == 0


def test_tables_choose_their_width_and_mark_what_differs() -> None:
    """Bug: cells that run into each other; a difference that looks like an agreement."""
    table = comparison_table(
        [Comparison("first", "2.5", 2.51), Comparison("second", "2.5", 2.7, "for a reason")]
    )
    assert table["verdict"].tolist() == ["agrees", "differs"]
    with journal_style():
        figure = comparison_figure(table, item="number")
        check_boxes(figure)
        assert figure.get_size_inches()[0] == COLUMN_WIDTH
        marked = {text.get_text() for text in figure.texts if text.get_color() != "black"}
        assert marked == {"second", "2.5", "2.70", "+0.20", "differs"}
        wide = table_figure(["x" * 80, "y"], [["1", "2"]])
        assert wide.get_size_inches()[0] == PAGE_WIDTH
        with pytest.raises(ValueError, match="inches wide"):
            table_figure(["x" * 200], [["1"]])


def test_the_layout_tests_see_overlaps() -> None:
    """Negative control: two texts in one place, and a text beyond the edge."""
    with journal_style():
        figure = table_figure(["a", "b"], [["x", "1"]])
        figure.text(0.3, 0.5, "here")
        figure.text(0.3, 0.5, "there")
        with pytest.raises(AssertionError, match="'there' on 'here'"):
            check_boxes(figure)
        figure = table_figure(["a", "b"], [["x", "1"]])
        figure.text(1.2, 0.5, "outside")
        with pytest.raises(AssertionError, match="leaves the page"):
            check_boxes(figure)


def test_table_reads_back_what_it_wrote() -> None:
    """Bug: a text that turns into a number, or a number that loses digits."""
    table = Table(
        ("a", "b", "c"), (("x,y", 1, 0.1 + 0.2), ('"', -3, float("inf")), ("", 0, 1e-300))
    )
    assert Table.from_csv(table.to_csv()) == table
    for text in ("1", "1e5", "nan", " 2 ", "inf"):
        with pytest.raises(ValueError, match="read back as a number"):
            Table(("a",), ((text,),)).to_csv()
