"""Figure files: written completely, the same every time, whoever draws them."""

from __future__ import annotations

import csv
import json
import operator
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from figures import digest, output, registry
from figures.__main__ import main
from figures.committed import SUFFIXES as COMMITTED
from figures.committed import data_difference
from figures.digest import digest_of
from figures.gallery import write_gallery
from figures.output import SUFFIXES, digest_for, write
from figures.progress import progress
from figures.records import records_of, where
from figures.registry import FIGURES, Kind, load
from figures.run import Done, draw_all
from figures.table import Table, agrees
from otm._core.digest import data_files
from otm.errors import InvalidInputError, MissingDependencyError, UnknownMethodError

NAME = "spectr_figure_5"
NOWHERE = Path("nowhere")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "figures" / "index.html"
FOLDER = ROOT / "figures" / "drawn"

Committed = Callable[[str], Table]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    assert write(NAME, folder, NOWHERE) == "computed"
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the pictures, which take most of the time, in tests that check data only."""
    monkeypatch.setattr(output, "save_pictures", lambda *_: None)


def test_every_figure_has_its_files_and_the_folder_has_no_others() -> None:
    """Bug: a format left out, a figure that was renamed and lies there under its old name."""
    drawn = [name for name in FIGURES if (FOLDER / f"{name}.csv").exists()]
    committed, all_kinds = (
        {f"{name}.{suffix}" for name in drawn for suffix in suffixes}
        for suffixes in (COMMITTED, SUFFIXES)
    )
    assert committed <= {file.name for file in FOLDER.iterdir() if file.is_file()} <= all_kinds
    for name in drawn:
        assert (FOLDER / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n")
    undrawn = set(FIGURES) - set(drawn)
    assert {load(name).kind for name in undrawn} <= {Kind.MEASUREMENT}


@pytest.mark.parametrize("name", [name for name in FIGURES if load(name).kind == Kind.THEORY])
def test_theory_is_what_the_code_computes(name: str, committed: Committed) -> None:
    """Bug: a formula that changed after its figure was drawn."""
    assert not data_difference(load(name)(), committed(name))


def test_a_second_run_takes_the_data_from_the_cache_and_writes_the_same_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: data computed again; dates in PDF or SVG; random names inside SVG."""
    before = {suffix: (folder / f"{NAME}.{suffix}").read_bytes() for suffix in SUFFIXES}
    monkeypatch.setattr(load(NAME), "compute", lambda: pytest.fail("computed again"))
    assert write(NAME, folder, NOWHERE) == "cached"
    for suffix, content in before.items():
        assert (folder / f"{NAME}.{suffix}").read_bytes() == content, suffix


def test_changed_code_is_computed_again_and_the_old_data_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: old numbers shown for new code; a cache that grows forever."""
    monkeypatch.setattr(output, "digest_of", lambda *_: "f" * 64)
    assert write(NAME, folder, NOWHERE) == "computed"
    assert [file.name for file in (folder / ".cache").iterdir()] == [f"{NAME}.{'f' * 32}.csv"]


def test_the_digest_follows_imports_and_leaves_out_what_only_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a changed solver that recomputes nothing, or a changed colour that recomputes all."""
    file_of, code_of = digest._file_of, digest._code

    class Changed(NamedTuple):
        path: Any
        old: str
        new: str

        def is_file(self) -> bool:
            return True

        def read_text(self, encoding: str) -> str:
            text = str(self.path.read_text(encoding=encoding))
            assert self.old in text
            return text.replace(self.old, self.new)

    def changed(module: str, old: str, new: str) -> str:
        """Digest with a change in one module, which alone is read again."""
        with monkeypatch.context() as patch:
            file = Changed(file_of(module), old, new)
            patch.setattr(digest, "_file_of", lambda x: file if x == module else file_of(x))
            fresh = cache(code_of.__wrapped__)
            patch.setattr(digest, "_code", lambda x: (fresh if x == module else code_of)(x))
            return digest_of(figure, ("figures.drawing", "figures.registry"))

    figure = "figures.spectr.acceptance"
    same = digest_of(figure, ("figures.drawing", "figures.registry"))
    assert same == digest_for(NAME) == digest_for("spectr_figure_6")
    assert changed(figure, "height=2.5", "height=2.6") == same  # in `draw`
    assert changed(figure, "Compute the", "compute the") == same  # in a docstring
    assert changed("otm._core.drawing", "#0072B2", "#0072B3") == same
    assert changed("figures.drawing.style", "fontsize=8", "fontsize=9") == same
    assert changed("figures.registry", '"leviathan_figure_1": "leviathan.traces",', "") == same
    tokens = "from __future__ import annotations\n\ndef draw_token(): return 1"
    assert changed("otm.optimum.cut", "from __future__ import annotations", tokens) != same
    assert changed(figure, "MOST_DRAFTS = 20", "MOST_DRAFTS = 21") != same
    assert changed("otm.optimum.cut", "from otm", "import sys; from otm") != same
    assert changed("otm._core.arithmetic", "from __future__", "import sys\nfrom __future__") != same
    assert digest_for("spectr_figure_1") != same


def test_the_record_of_a_figure_says_where_its_data_come_from(folder: Path) -> None:
    """Bug: a figure that nobody can make again."""
    found = json.loads((folder / f"{NAME}.json").read_text())
    assert found["kind"] == "theory"
    assert found["command"] == f"python -m figures {NAME}"
    assert "versions" not in found, "or every Python would write another file"
    assert "texts and weights" not in found, "a formula has none"


def test_the_record_of_an_experiment_names_its_texts_and_weights() -> None:
    found = json.loads((FOLDER / "leviathan_figure_1.json").read_text())
    assert re.fullmatch("[0-9a-f]{64}", found["texts and weights"])
    assert found["texts and weights"] == data_files()


def test_another_process_with_other_settings_writes_the_same_bytes(
    folder: Path, need_pinned: Callable[[str], None], tmp_path: Path
) -> None:
    """Bug: order of sets, the user's matplotlib settings, or the time zone shows in the files."""
    need_pinned("matplotlib")
    settings = tmp_path / "matplotlibrc"
    settings.write_text("lines.linewidth: 7\nfont.size: 20\nsavefig.bbox: tight\n")
    environment = {
        **os.environ,
        "MATPLOTLIBRC": str(settings),
        "PYTHONHASHSEED": "1",
        "SOURCE_DATE_EPOCH": "1",
        "TZ": "Asia/Tokyo",
    }
    command = [sys.executable, "-W", "error", "-m", "figures", NAME]
    run = subprocess.run(
        [*command, "--output", str(tmp_path / "out"), "--jobs", "1"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 3
    assert re.fullmatch(rf"{NAME} +computed +\d+\.\d s  as committed", lines[0])
    assert lines[2] == "1 of 1 figures are as committed"
    assert run.stderr == ""
    for suffix in SUFFIXES:
        file = f"{NAME}.{suffix}"
        assert (tmp_path / "out" / "drawn" / file).read_bytes() == (folder / file).read_bytes(), (
            file
        )
    assert f"{NAME}.png" in (tmp_path / "out" / "index.html").read_text()


def test_files_hold_no_dates_and_no_machine() -> None:
    """Bug: a program's version in the metadata, a path of the machine; PDF, SVG: test_layout.py."""
    pictures = list(FOLDER.glob("*.png"))
    assert pictures
    for file in pictures:
        assert b"Software" not in file.read_bytes()
    for file in (*FOLDER.glob("*.json"), PAGE):
        assert not re.search(r"/(home|work|tmp|root|Users)/", file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FIGURES)
def test_csv_reads_back_to_the_same_bytes(name: str, committed: Committed) -> None:
    """Bug: rounded numbers, carriage returns, or 'np.float64(0.5)' in a cell."""
    table = committed(name)
    text = (FOLDER / f"{name}.csv").read_bytes().decode("utf-8")
    assert "\r" not in text
    assert "np." not in text
    assert text == table.to_csv()
    assert len(list(csv.reader(text.splitlines()))) == 1 + len(table.rows)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_documented_and_says_what_its_numbers_are(name: str) -> None:
    """Bug: a figure that the page cannot describe, or a measurement that cannot be repeated."""
    figure = load(name)
    title = (figure.compute.__doc__ or "").splitlines()[0]
    assert 20 < len(title) <= 100
    assert title.endswith(".")
    assert figure.title == title[:-1]
    assert figure.paragraphs
    assert isinstance(figure.kind, Kind)
    assert (figure.kind == Kind.MEASUREMENT) == bool(figure.record) == bool(figure.command)
    assert (figure.kind == Kind.EXPERIMENT) == (figure.seed is not None)


def test_the_page_shows_every_figure_once_and_explains_what_differs(
    committed: Committed,
) -> None:
    """Bug: a figure that the page forgets; a difference from a paper that is not explained."""
    page = PAGE.read_text(encoding="utf-8")
    for name in FIGURES:
        assert (
            page.count(f'<article class="card" id="{name}">')
            + page.count(f'<article class="card missing" id="{name}">')
            == 1
        )
    for name in FIGURES:
        if not (FOLDER / f"{name}.csv").exists():
            continue
        table = committed(name)
        if "verdict" in table.names:
            for cells in table.records():
                assert cells["verdict"] in {"agrees", "differs"}
                assert (cells["verdict"] == "agrees") == agrees(
                    f"{cells['printed']:.{cells['decimals']}f}", float(cells["computed"])
                )
                assert cells["verdict"] == "agrees" or len(str(cells["reason"])) > 20, cells


def test_what_was_never_measured_is_named_with_its_command(tmp_path: Path) -> None:
    """Bug: a page or a run that fails on machines without records."""
    measured = next(name for name in FIGURES if load(name).kind == Kind.MEASUREMENT)
    assert write(measured, tmp_path, NOWHERE) == "not measured"
    assert list(tmp_path.iterdir()) == []
    page = write_gallery(tmp_path).read_text()
    assert f"Not measured yet; in a checkout: <code>{load(measured).command}</code>" in page


def test_records_are_read_by_pattern(tmp_path: Path) -> None:
    """Bug: a record of another benchmark read; a traceback at a file that was cut short."""
    (tmp_path / "kernels-b.json").write_text('{"device": "B", "date": "2026-01-02"}')
    (tmp_path / "kernels-a.json").write_text('{"cpu": "A", "cores": 2}')
    (tmp_path / "other.json").write_text("{}")
    found = records_of(tmp_path, "kernels-*")
    assert [record.name for record in found] == ["kernels-a", "kernels-b"]
    assert [where(record.content) for record in found] == ["2 cores of A", "B, 2026-01-02"]
    assert records_of(tmp_path / "absent", "*") == []
    for text in ("[]", '{"a": '):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InvalidInputError, match=r"bad\.json"):
            records_of(tmp_path, "bad")


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
    with pytest.raises(UnknownMethodError, match=r"no figure .*; there are"):
        write("os", folder, NOWHERE)


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a traceback where a file is in the way."""
    (tmp_path / "taken").write_text("")
    assert main(["spectr_figure_5", "--output", str(tmp_path / "taken")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_process_that_ends_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: the traceback of a pool; the processes end because they cannot begin."""
    monkeypatch.setattr("figures.run.beside_others", operator.truediv)
    assert main([NAME, "spectr_figure_4", "--output", str(tmp_path), "--jobs", "2"]) == 2
    error = capsys.readouterr().err
    assert "fewer --jobs" in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("undrawn")
def test_full_takes_the_longer_version_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: --full is ignored, shares a cache with the short version, or fails without a longer."""
    figure = load(NAME)
    short = figure()
    longer = Table(short.names, short.rows * 2)
    monkeypatch.setattr(figure, "compute", lambda longest=False: longer if longest else short)
    monkeypatch.setattr(figure, "full", lambda: {"longest": True})
    for full, table in ((True, longer), (False, short), (True, longer)):
        write(NAME, tmp_path, NOWHERE, full=full)
        assert (tmp_path / f"{NAME}.csv").read_text() == table.to_csv()
        assert ("--full" in json.loads((tmp_path / f"{NAME}.json").read_text())["command"]) == full
    monkeypatch.setattr(figure, "full", None)
    assert write(NAME, tmp_path, NOWHERE, full=True) == "cached"


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("matplotlib", lambda: load("spectr_figure_5").draw(load("spectr_figure_5")())),
        ("jinja2", lambda: write_gallery(NOWHERE)),
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


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("csv", b""),
        ("csv", b"k,alpha\n1\n"),
        ("csv", b'k,alpha\n"1'),
        ("csv", b"k\n\xff\n"),
        ("csv", None),
        ("json", b"{"),
        ("json", b"[]"),
    ],
)
def test_a_damaged_file_in_the_folder_is_named(
    suffix: str, content: bytes | None, folder: Path, tmp_path: Path
) -> None:
    """Bug: the traceback of a reader, which does not say which of forty files it read."""
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    for name in (f"{NAME}.csv", f"{NAME}.json"):
        (drawn / name).write_bytes((folder / name).read_bytes())
    (drawn / f"{NAME}.{suffix}").unlink()
    if content is not None:
        (drawn / f"{NAME}.{suffix}").write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"{NAME}\.{suffix}") as caught:
        write_gallery(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("undrawn")
def test_damaged_data_in_the_cache_are_computed_again(tmp_path: Path) -> None:
    """Bug: a file that was cut short is believed, or stops every later run."""
    write(NAME, tmp_path, NOWHERE)
    whole = (tmp_path / f"{NAME}.csv").read_bytes()
    (cached,) = (tmp_path / ".cache").iterdir()
    for content in (b"", whole[:-3] + b",,,\n"):
        cached.write_bytes(content)
        assert write(NAME, tmp_path, NOWHERE) == "computed"
        assert cached.read_bytes() == (tmp_path / f"{NAME}.csv").read_bytes() == whole


def test_digests_are_those_of_the_code_when_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a file that is edited meanwhile: old code's data under the digest of the new."""
    monkeypatch.setattr("figures.output.digest_of", lambda *_: "f" * 64)  # of the parent
    assert main([NAME, "--output", str(tmp_path), "--jobs", "1"]) == 0
    drawn = tmp_path / "drawn"
    source = json.loads((drawn / f"{NAME}.json").read_text(encoding="utf-8"))
    assert "code" not in "".join(source), "or every change of code would change the files"
    (cached,) = (drawn / ".cache").iterdir()
    assert cached.name == f"{NAME}.{'f' * 32}.csv"


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("to_all", [True, False])
def test_an_interrupt_is_one_line_and_status_130(to_all: bool, tmp_path: Path) -> None:
    """Bug: tracebacks of the parent and of every process; children that go on computing."""
    slow = "beyond_lossy_frontier"
    command = [sys.executable, "-m", "figures", slow, NAME, "--jobs", "2"]
    with subprocess.Popen(
        [*command, "--output", str(tmp_path), "--full"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline().startswith(NAME)  # the slow one is under way
        os.kill(run.pid, signal.SIGINT) if not to_all else os.killpg(run.pid, signal.SIGINT)
        out, error = run.communicate(timeout=60)
    assert (run.returncode, out) == (130, "")
    assert error == "python -m figures: interrupted\n"


def test_an_interrupt_in_the_callers_code_ends_what_is_under_way(tmp_path: Path) -> None:
    """Bug: Ctrl-C while a line is printed: minutes until the slowest figure is finished."""

    def interrupt(done: Done) -> None:
        raise KeyboardInterrupt

    slow = "beyond_lossy_frontier"
    with pytest.raises(KeyboardInterrupt):
        draw_all([slow, NAME], tmp_path, NOWHERE, full=True, jobs=2, tell=interrupt)
    assert not (tmp_path / "drawn" / f"{slow}.csv").exists()


def test_a_citation_without_a_short_form_is_refused() -> None:
    """Bug: the key of a reference in a caption."""
    with pytest.raises(UnknownMethodError, match="nobody1999"):
        registry._plain("as in [nobody1999]_")


def test_a_record_without_a_processor_names_none() -> None:
    """Bug: "None cores of None" below a figure."""
    assert where({"date": "2026-01-02"}) == "a machine without a name, 2026-01-02"
    assert where({"cpu": "A"}) == "A"
