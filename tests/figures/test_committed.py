"""What is drawn is compared with what is committed, which drawing does not change."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.image import imread, imsave

from figures import committed
from figures.__main__ import _parser, main
from figures.committed import DRAWN, SUFFIXES, data_difference, differences, take_over
from figures.gallery import write_gallery
from figures.registry import FIGURES, Kind
from figures.run import Done
from figures.table import Table
from otm.errors import InvalidInputError

NAME = "spectr_figure_5"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """Lay a copy of a committed figure out as if it had been drawn."""
    folder = tmp_path / "drawn"
    folder.mkdir()
    for suffix in SUFFIXES:
        shutil.copyfile(DRAWN / f"{NAME}.{suffix}", folder / f"{NAME}.{suffix}")
    return folder


def last_digit(folder: Path) -> None:
    """Change each float as another order of additions would."""
    table = Table.read(folder / f"{NAME}.csv")
    rows = tuple(
        tuple(math.nextafter(x, 0) if isinstance(x, float) else x for x in row)
        for row in table.rows
    )
    (folder / f"{NAME}.csv").write_text(Table(table.names, rows).to_csv())


def sixth_digit(folder: Path) -> None:
    table = Table.read(folder / f"{NAME}.csv")
    rows = tuple(
        tuple(x * (1 + 1e-6) if isinstance(x, float) else x for x in row) for row in table.rows
    )
    (folder / f"{NAME}.csv").write_text(Table(table.names, rows).to_csv())


def fewer_rows(folder: Path) -> None:
    table = Table.read(folder / f"{NAME}.csv")
    (folder / f"{NAME}.csv").write_text(Table(table.names, table.rows[:-1]).to_csv())


def other_source(folder: Path) -> None:
    source = json.loads((folder / f"{NAME}.json").read_text())
    (folder / f"{NAME}.json").write_text(json.dumps({**source, "kind": "experiment"}))


def other_picture(folder: Path) -> None:
    pixels = imread(folder / f"{NAME}.png").copy()
    pixels[100:400] = pixels[100:400][::-1]
    imsave(folder / f"{NAME}.png", pixels)


def smaller_picture(folder: Path) -> None:
    imsave(folder / f"{NAME}.png", imread(folder / f"{NAME}.png")[:-1])


def one_pixel(folder: Path) -> None:
    pixels = imread(folder / f"{NAME}.png").copy()
    pixels[0, 0] = 0.5
    imsave(folder / f"{NAME}.png", pixels)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (sixth_digit, r"\w+ of row 1 is .*, not .*"),
        (fewer_rows, r"\d+ rows of data, not \d+"),
        (other_source, "where the data come from"),
        (other_picture, "the picture"),
        (smaller_picture, "the picture"),
    ],
)
def test_each_kind_of_difference_is_told(
    change: Callable[[Path], None], told: str, drawn: Path
) -> None:
    change(drawn)
    (found,) = differences(NAME, drawn)
    assert re.fullmatch(told, found)


@pytest.mark.parametrize("change", [last_digit, one_pixel])
def test_what_another_processor_changes_is_as_committed(
    change: Callable[[Path], None], drawn: Path
) -> None:
    """Bug: a file that differs byte by byte reported as another figure."""
    before = [(drawn / f"{NAME}.{suffix}").read_bytes() for suffix in SUFFIXES]
    change(drawn)
    assert before != [(drawn / f"{NAME}.{suffix}").read_bytes() for suffix in SUFFIXES]
    assert differences(NAME, drawn) == ()


def test_cells_agree_by_rounding_alone() -> None:
    """Bug: text or a whole number taken for near enough; a NaN that agrees with everything."""

    def row(*cells: str | int | float) -> Table:
        return Table(tuple("abc"[: len(cells)]), (cells,))

    nan = math.nan
    assert not data_difference(row("x", 1, nan), row("x", 1, nan))
    assert not data_difference(row(math.inf, 1e-20), row(math.inf, 2e-20))
    assert data_difference(row(nan), row(0.5)) == "a of row 1 is nan, not 0.5"
    assert data_difference(row(0.5), row(nan)) == "a of row 1 is 0.5, not nan"
    assert data_difference(row("x"), row("y")) == "a of row 1 is x, not y"
    assert data_difference(row(10**12), row(10**12 + 1)).startswith("a of row 1")
    assert data_difference(row(1), row(1, 2)) == "the columns of the data"
    near, far = row(0.2403300601163343), row(0.2403)
    assert data_difference(near, row(0.24033005954520337))
    assert not data_difference(near, row(0.24033005954520337), Kind.EXPERIMENT)
    # without vector instructions: a distance of rounding alone
    assert not data_difference(row(3.4e-7), row(5.1e-7), Kind.EXPERIMENT)
    assert data_difference(row(3.4e-7), row(5.1e-7))
    assert data_difference(near, far, Kind.EXPERIMENT)


def test_a_figure_that_is_not_committed_is_named(drawn: Path, tmp_path: Path) -> None:
    assert differences(NAME, drawn, tmp_path) == ("not committed",)


def test_only_what_differs_is_taken_over(drawn: Path, tmp_path: Path) -> None:
    """Bug: the last digits of this machine committed with a change of the picture."""
    before = tmp_path / "committed"
    shutil.copytree(drawn, before)
    last_digit(drawn)
    other_picture(drawn)
    take_over(NAME, drawn, before)
    same = {
        suffix: (before / f"{NAME}.{suffix}").read_bytes()
        == (drawn / f"{NAME}.{suffix}").read_bytes()
        for suffix in SUFFIXES
    }
    assert same == {"csv": False, "json": True, "png": True}
    sixth_digit(drawn)
    take_over(NAME, drawn, before)
    assert (before / f"{NAME}.csv").read_bytes() == (drawn / f"{NAME}.csv").read_bytes()
    empty = tmp_path / "empty"
    empty.mkdir()
    take_over(NAME, drawn, empty)
    assert {file.name for file in empty.iterdir()} == {f"{NAME}.{suffix}" for suffix in SUFFIXES}


def test_the_committed_page_is_that_of_the_committed_figures(tmp_path: Path) -> None:
    """Bug: a figure taken over without the page."""
    (tmp_path / "drawn").symlink_to(DRAWN)
    page = write_gallery(tmp_path).read_text(encoding="utf-8")
    assert page == (committed.FOLDER / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_committed_names_no_version_of_the_run(name: str) -> None:
    """Bug: files that every other Python changes.  What a benchmark measured names its own."""
    file = DRAWN / f"{name}.json"
    if file.exists():
        source = json.loads(file.read_text(encoding="utf-8"))
        assert ("versions" in source) <= (source["kind"] == Kind.MEASUREMENT)


def test_figures_are_drawn_where_git_does_not_look() -> None:
    """Bug: a dirty checkout after `make figures`."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    page = _parser().parse_args([]).output / "index.html"
    assert not page.is_absolute()
    subprocess.run([git, "check-ignore", "--quiet", str(page)], cwd=ROOT, check=True)


def test_the_committed_figures_are_not_drawn_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main([NAME, "--output", "figures"]) == 2
    assert "--update" in capsys.readouterr().err


@pytest.mark.parametrize("update", [False, True])
def test_the_command_says_what_is_as_committed(
    update: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = [
        Done(NAME, "computed", 0.2, ()),
        Done("spectr_figure_6", "cached", 0.1, ("k of row 1 is 1, not 2", "the picture")),
        Done("leviathan_table_2", "not measured", 0.0),
    ]
    taken: list[str] = []
    pages: list[Path] = []
    monkeypatch.setattr("figures.run.write_all", lambda *_, **__: (x for x in done))
    monkeypatch.setattr("figures.run.write_gallery", lambda folder: folder / "index.html")
    monkeypatch.setattr("figures.__main__.take_over", lambda name, folder: taken.append(name))
    monkeypatch.setattr("figures.__main__.write_gallery", pages.append)
    assert main(["--output", str(tmp_path), *["--update"] * update]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("  as committed")
    assert lines[1].endswith("  differs: k of row 1 is 1, not 2, the picture")
    assert lines[2].endswith(" s")
    assert lines[4] == "1 of 2 figures are as committed"
    assert len(lines) == 6 - update
    assert (taken, pages) == (
        ([NAME, "spectr_figure_6"], [committed.FOLDER]) if update else ([], [])
    )


def test_a_damaged_file_is_named(drawn: Path) -> None:
    (drawn / f"{NAME}.csv").write_text("")
    with pytest.raises(InvalidInputError, match=rf"{NAME}\.csv"):
        differences(NAME, drawn)
