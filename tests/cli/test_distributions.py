"""Damaged, hostile or too large files: a one-line error, little memory, and no code runs."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from otm.cli import main

TARGET = ["--target", "1,0"]


class Executed:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, ("executed",)


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def promising(shape: str) -> bytes:
    return header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}")


BEYOND = b'{"draft":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}'

FILES: dict[str, tuple[str, bytes]] = {
    "empty": ("a.npy", b""),
    "no array": ("a.npy", b"hello"),
    "a picture by another name": ("a.npz", b"\x89PNG\r\n"),
    "cut short": ("a.npy", promising("(4,)") + bytes(8)),
    "more than promised": ("a.npy", promising("(1,)") + bytes(16)),
    "promises terabytes": ("a.npy", promising("(10**12,)") + bytes(8)),
    "promises more than integers": ("a.npy", promising(f"({2**70},)") + bytes(8)),
    "a header of gigabytes": ("a.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1)),
    "a scalar": ("a.npy", promising("()") + bytes(8)),
    "no token": ("a.npy", promising("(0,)")),
    "rows": ("a.npy", promising("(1, 2)") + bytes(16)),
    "pickle": ("a.npy", header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}")
               + pickle.dumps(Executed())),
    "a bare pickle": ("a.npy", pickle.dumps(Executed())),
    "code in a header": ("a.npy", header("__import__('os').mkdir('executed')")),
    "safetensors without header": ("a.safetensors", struct.pack("<Q", 2**60)),
    "safetensors of nothing": ("a.safetensors", b"\x00"),
    "safetensors beyond their file": (
        "a.safetensors",
        struct.pack("<Q", len(BEYOND)) + BEYOND,
    ),
    "no JSON": ("a.json", b"{"),
    "NaN": ("a.json", b"[NaN]"),
    "nested without end": ("a.json", b"[" * 200_000),
    "no list": ("a.json", b'"0.5"'),
    "nested lists": ("a.json", b"[[1]]"),
    "a digit too many": ("a.json", b"[" + b"9" * 5000 + b"]"),
    "truth": ("a.json", b"[true, false]"),
    "null": ("a.json", b"[null]"),
    "not text": ("a.json", b"\xff\xfe\x00"),
    "a name twice": ("a.json", b'{"draft": [1], "draft": [1], "target": [1]}'),
    "an exponent that fills memory": ("a.json", b'["1e1000000000"]'),
    "another kind": ("a.csv", b"0.5,0.5"),
    "no kind": ("a", b"0.5,0.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused_in_one_line(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: a traceback, a status of 0, or code of the file that runs."""
    monkeypatch.chdir(tmp_path)
    file, content = FILES[name]
    Path(file).write_bytes(content)
    np.save("q.npy", [1.0, 0.0])
    for arguments in ([file], [file, "q.npy"], ["q.npy", file]):
        assert main(["solve", *arguments]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith("otm: ")
        assert err.count("\n") == 1
        assert len(err) < 400
    assert not Path("executed").exists()


def test_pickles_in_archives_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("pair.npz", draft=np.array([Executed()], dtype=object), target=np.array([1.0]))
    assert main(["solve", "pair.npz"]) == 2
    assert "never Python objects" in capsys.readouterr().err
    assert not Path("executed").exists()


@pytest.mark.parametrize("place", ["missing.npy", ".", "folder.npy", "line\nbreak.npy"])
def test_what_is_no_file_is_one_line(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.npy").mkdir()
    assert main(["solve", place]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_a_pipe_with_a_name_does_not_keep_the_command_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert main(["solve", str(tmp_path / "pipe.json")]) == 2
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"draft": [1]}, "but has 1: 'draft'"),
        ({"draft": [1], "aim": [1]}, "but has 2: 'draft', 'aim'"),
        ([1], "but has 1: without names"),
    ],
)
def test_one_file_must_have_both_laws(
    content: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert main(["solve", str(tmp_path / "a.json")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_bombs_take_no_memory(tmp_path: Path) -> None:
    """Bug: an archive of a megabyte unpacked into hundreds, or a sparse file read whole."""
    bomb = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("draft.npy", "w") as member,
    ):
        member.write(promising(f"({2**25},)"))
        for _ in range(16):
            member.write(bytes(2**24))
    with (tmp_path / "sparse.npy").open("wb") as file:
        file.write(promising(f"({2**34},)"))
        file.truncate(file.tell() + 2**37)
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(2**37)
    script = """
import resource, sys
from otm.cli import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    assert main(["solve", name]) == 2
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    files = [str(tmp_path / name) for name in ("bomb.npz", "sparse.npy", "sparse.json")]
    done = subprocess.run(
        [sys.executable, "-c", script, *files], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("\n") == 3
    assert int(done.stdout) < 60 * 1024  # KiB; typer is among them
