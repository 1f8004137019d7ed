"""Figure files: written completely, the same every time, whoever draws them."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from otm.errors import MissingDependencyError, UnknownMethodError
from otm.figures import real_text
from otm.figures.__main__ import main
from otm.figures.output import write
from otm.figures.progress import progress
from otm.figures.registry import FIGURES, load
from otm.figures.table import Table

SUFFIXES = ("csv", "pdf", "svg", "png")


@pytest.fixture(scope="module")
def few_contexts() -> Table:
    return real_text.data(20)


@pytest.fixture(autouse=True)
def _quick_real_text(monkeypatch: pytest.MonkeyPatch, few_contexts: Table) -> None:
    monkeypatch.setattr(real_text, "data", lambda: few_contexts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, few_contexts: Table) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real_text, "data", lambda: few_contexts)
        assert main(["--output", str(folder)]) == 0
    return folder


def text_boxes(axes: Axes) -> list[tuple[str, Bbox]]:
    """Find where on the page the labels, numbers, notes and legend of a drawing are."""
    texts = [axes.xaxis.label, axes.yaxis.label, *axes.texts]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        # matplotlib keeps ticks outside of the view, and does not draw them
        texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_visible()]
    if legend := axes.get_legend():
        boxes.append(("legend", legend.get_window_extent()))
    return [(text, box) for text, box in boxes if text]


def test_every_figure_has_four_files(folder: Path) -> None:
    """Bug: a format left out, or files of one figure written over those of another."""
    names = {f"{name}.{suffix}" for name in FIGURES for suffix in SUFFIXES}
    assert {file.name for file in folder.iterdir()} == names
    for name in FIGURES:
        starts = {suffix: (folder / f"{name}.{suffix}").read_bytes() for suffix in SUFFIXES}
        assert starts["pdf"].startswith(b"%PDF-")
        assert starts["png"].startswith(b"\x89PNG\r\n")
        assert b"<svg " in starts["svg"]


@pytest.mark.parametrize("name", FIGURES)
def test_a_second_run_writes_the_same_bytes(name: str, folder: Path, tmp_path: Path) -> None:
    """Bug: dates in PDF or SVG, random names inside SVG, state left by another figure."""
    for file in write(name, tmp_path):
        assert file.read_bytes() == (folder / file.name).read_bytes(), file.name


def test_another_process_with_other_settings_writes_the_same_bytes(
    folder: Path, tmp_path: Path
) -> None:
    """Bug: order of sets, the user's matplotlib settings, or the time zone shows in the files."""
    settings = tmp_path / "matplotlibrc"
    settings.write_text("lines.linewidth: 7\nfont.size: 20\nsavefig.bbox: tight\n")
    environment = {
        **os.environ,
        "MATPLOTLIBRC": str(settings),
        "PYTHONHASHSEED": "1",
        "SOURCE_DATE_EPOCH": "1",
        "TZ": "Asia/Tokyo",
    }
    command = [sys.executable, "-W", "error", "-m", "otm.figures", "spectr_figure_6"]
    run = subprocess.run(
        [*command, "--output", str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"spectr_figure_6 +\d+\.\d s\n", run.stdout)
    assert run.stderr == ""
    for suffix in SUFFIXES:
        file = f"spectr_figure_6.{suffix}"
        assert (tmp_path / "out" / file).read_bytes() == (folder / file).read_bytes(), file


def test_files_hold_no_dates_no_machine_and_embedded_fonts(folder: Path) -> None:
    """Bug: a date or a program's version in the metadata; Type 3 fonts, which print badly."""
    for name in FIGURES:
        pdf = (folder / f"{name}.pdf").read_bytes()
        assert b"/CreationDate" not in pdf
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
        assert "<dc:date>" not in svg
        assert "<text" not in svg
        assert b"Software" not in (folder / f"{name}.png").read_bytes()


@pytest.mark.parametrize("name", FIGURES)
def test_csv_reads_back_to_the_same_numbers(name: str, folder: Path) -> None:
    """Bug: rounded numbers, carriage returns, or 'np.float64(0.5)' in a cell."""
    text = (folder / f"{name}.csv").read_bytes().decode("utf-8")
    assert "\r" not in text
    assert text.endswith("\n")
    header, *rows = csv.reader(text.splitlines())
    table = load(name).data()
    assert tuple(header) == table.names
    read = [
        tuple(type(cell)(text) for cell, text in zip(cells, row, strict=True))
        for cells, row in zip(table.rows, rows, strict=True)
    ]
    assert tuple(read) == table.rows


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_cut_off_and_no_text_lies_on_text_or_data(name: str) -> None:
    """Bug: labels that leave the page, run into each other or cover a point."""
    module = load(name)
    figure = module.draw(module.data())
    figure.draw_without_rendering()
    page = figure.bbox
    boxes = [box for axes in figure.axes for box in text_boxes(axes)]
    points = np.concatenate(
        [axes.transData.transform(line.get_xydata()) for axes in figure.axes for line in axes.lines]
    )
    assert len(boxes) > 10
    assert len(points) > 40
    for i, (text, box) in enumerate(boxes):
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, text
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
        assert not any(box.contains(x, y) for x, y in points), text
        for other, other_box in boxes[:i]:
            assert not box.overlaps(other_box), f"{text} on {other}"


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_and_the_figure_is_one_column_wide(name: str) -> None:
    """Bug: an axis without a name; a figure that a journal would have to shrink."""
    module = load(name)
    figure = module.draw(module.data())
    assert figure.get_size_inches()[0] == pytest.approx(3.4)
    assert all(axes.get_ylabel() for axes in figure.axes)
    assert figure.axes[-1].get_xlabel()
    sizes = {text.get_fontsize() for axes in figure.axes for text in axes.texts}
    sizes |= {label.get_fontsize() for axes in figure.axes for label in axes.get_xticklabels()}
    assert min(sizes) >= 8


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_documented(name: str) -> None:
    """Bug: a figure that the list of figures cannot describe."""
    assert len((load(name).__doc__ or "").splitlines()[0]) > 20


def test_unknown_names_are_refused_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a traceback, a silent success, or half of the figures drawn first."""
    folder = tmp_path / "out"
    assert main(["spectr_figure_4", "spectr_figure_7", "--output", str(folder)]) == 2
    assert not folder.exists()
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    for name in ("spectr_figure_7", *FIGURES):
        assert name in error
    with pytest.raises(UnknownMethodError, match="known figures are"):
        write("os", folder)


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a traceback where a file is in the way."""
    (tmp_path / "taken").write_text("")
    assert main(["spectr_figure_5", "--output", str(tmp_path / "taken")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_full_takes_the_longer_version_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_contexts: Table
) -> None:
    """Bug: --full is ignored, or fails for figures without a longer version."""
    longer = Table(few_contexts.names, few_contexts.rows[::-1])
    monkeypatch.setattr(real_text, "full_data", lambda: longer)
    assert main(["real_text", "spectr_figure_5", "--full", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "real_text.csv").read_text() == longer.to_csv()


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("matplotlib", lambda: load("spectr_figure_5").draw(load("spectr_figure_5").data())),
        ("tqdm", lambda: progress([], 0, "")),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, use: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a bare ImportError that does not say what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"{package}.*otm\[figures\]"):
        use()  # type: ignore[operator]


def test_progress_passes_everything_through_and_is_silent_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: a bar in a log file, or a last step that is lost."""
    assert list(progress(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")
