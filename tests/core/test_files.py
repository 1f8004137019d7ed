from __future__ import annotations

import io
import json
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from otm._core.files.headers import open_arrays
from otm._core.files.paths import check_writable, file_label, file_size, parse_json, read_json
from otm.errors import InvalidInputError

NUMBERS = np.random.default_rng(0).normal(size=(37, 11))


def npy(
    shape: object = (4, 3),
    dtype: object = "<f4",
    data: bytes = b"\0" * 48,
    *,
    order: object = False,
    header: bytes | None = None,
) -> bytes:
    """Make a `.npy` file whose header says what it likes."""
    if header is None:
        header = (
            f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}\n".encode()
        )
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def safetensors(header: object, data: bytes = b"\0" * 48) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(shape: object = (4, 3), dtype: object = "F32", places: object = (0, 48)) -> object:
    return {"dtype": dtype, "shape": shape, "data_offsets": places}


def archive(*members: tuple[str, bytes], deflated: bool = True) -> bytes:
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "int32", "uint8"])
@pytest.mark.parametrize("save", ["npy", "npz", "compressed"])
def test_rows_are_what_numpy_wrote(save: str, dtype: str, tmp_path: Path) -> None:
    """Catches a wrong offset, order of bytes, or a stream that loses its place."""
    array = (NUMBERS * 10).astype(dtype) if np.dtype(dtype).kind != "u" else NUMBERS.astype(dtype)
    path = tmp_path / ("x.npy" if save == "npy" else "x.npz")
    {
        "npy": lambda: np.save(path, array),
        "npz": lambda: np.savez(path, other=np.arange(3), a=array),
        "compressed": lambda: np.savez_compressed(path, other=np.arange(3), a=array),
    }[save]()
    rows = open_arrays(path)["" if save == "npy" else "a"]
    assert rows.shape == array.shape
    assert (rows.member is None) == (save != "compressed")
    blocks = list(rows.blocks([(0, 5), (5, 6), (30, 37)]))
    for block, (start, stop) in zip(blocks, [(0, 5), (5, 6), (30, 37)], strict=True):
        np.testing.assert_array_equal(block, array[start:stop])
    np.testing.assert_array_equal(rows.read(2, 4), array[2:4])


def test_safetensors_are_read_with_bfloat16(tmp_path: Path) -> None:
    """Catches halves of floats that are taken for float16, or a wrong end of the header."""
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    numbers = torch.from_numpy(NUMBERS)
    kinds = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    arrays = {str(kind): numbers.to(kind) for kind in kinds} | {"prompts": torch.arange(37)}
    save_file(arrays, tmp_path / "x.safetensors", metadata={"by": "a test"})
    found = open_arrays(tmp_path / "x.safetensors")
    assert set(found) == set(arrays)
    for name, tensor in arrays.items():
        block = found[name].read(3, 20)
        np.testing.assert_array_equal(block, tensor[3:20].double().numpy())


HOSTILE: dict[str, tuple[str, bytes]] = {
    "empty": ("x.npy", b""),
    "pickle": ("x.npy", b"\x80\x04\x95\x10\x00\x00\x00"),
    "objects": ("x.npy", npy(dtype="|O")),
    "records": ("x.npy", npy(dtype=[("a", "<f4")])),
    "texts": ("x.npy", npy(dtype="<U8")),
    "complex": ("x.npy", npy(dtype="<c8")),
    "10^18 rows": ("x.npy", npy((10**18, 3))),
    "a row of 10^18": ("x.npy", npy((1, 10**18))),
    "a shape beyond all": ("x.npy", npy((10**400, 10**400))),
    "a negative shape": ("x.npy", npy((-4, -3))),
    "a shape of booleans": ("x.npy", npy((True, 12))),
    "a number as shape": ("x.npy", npy(12)),
    "columns": ("x.npy", npy(order=True)),
    "cut short": ("x.npy", npy(data=b"\0" * 47)),
    "too long": ("x.npy", npy(data=b"\0" * 49)),
    "cut in the header": ("x.npy", npy()[:30]),
    "header of 60 kB": ("x.npy", npy(header=b" " * 60_000)),
    "header with code": ("x.npy", npy(header=b"__import__('os').abort()")),
    "header nested": ("x.npy", npy(header=b"(" * 4000)),
    "header of a set": ("x.npy", npy(header=b"{'descr', 'shape'}")),
    "header with another name": ("x.npy", npy(header=b"{'descr': '<f4', 'shape': (1,)}")),
    "header with escapes": ("x.npy", npy(header=b"{'descr': '<\\f4', 'shape': (4, 3)}")),
    "header of 4 GB": ("x.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + npy()[10:]),
    "a type of 10^12 numbers": ("x.npy", npy((1,), dtype="(1000000,1000000)f4")),
    "version 9": ("x.npy", b"\x93NUMPY\x09\x00" + npy()[8:]),
    "no archive": ("x.npz", npy()),
    "archive cut short": ("x.npz", archive(("a.npy", npy()))[:-30]),
    "archive cut in front": ("x.npz", archive(("a.npy", npy()))[20:]),
    "empty archive": ("x.npz", archive()),
    "archive with a pickle": ("x.npz", archive(("a.npy", b"\x80\x04\x95"))),
    "archive with a program": ("x.npz", archive(("a.py", b"print()"))),
    "archive with objects": ("x.npz", archive(("a.npy", npy(dtype="|O")))),
    "archive that expands to 10^18 rows": ("x.npz", archive(("a.npy", npy((10**18, 3))))),
    "stored, 10^18 rows": ("x.npz", archive(("a.npy", npy((10**18, 3))), deflated=False)),
    "long contents": (
        "x.npz",
        archive(("a.npy", npy()))[:-10] + struct.pack("<IIH", 2**31, 0, 0),
    ),
    "header of 2^63 bytes": ("x.safetensors", struct.pack("<Q", 2**63) + b"{}"),
    "no header": ("x.safetensors", struct.pack("<Q", 0)),
    "header is a list": ("x.safetensors", safetensors([])),
    "header is not JSON": ("x.safetensors", safetensors(b"{'a': 1}")),
    "a tensor twice": (
        "x.safetensors",
        safetensors(b'{"a": {"dtype": "F32", "shape": [12], "data_offsets": [0, 48]}, "a": 1}'),
    ),
    "tensor of 10^18 rows": ("x.safetensors", safetensors({"a": entry((10**18, 3))})),
    "tensor of strange type": ("x.safetensors", safetensors({"a": entry(dtype="F8_E4M3")})),
    "type is a list": ("x.safetensors", safetensors({"a": entry(dtype=["F32"])})),
    "tensors that overlap": (
        "x.safetensors",
        safetensors({"a": entry(), "b": entry(places=(0, 48))}),
    ),
    "tensor behind the end": ("x.safetensors", safetensors({"a": entry(places=(48, 96))})),
    "places backwards": ("x.safetensors", safetensors({"a": entry(places=(48, 0))})),
    "places of texts": ("x.safetensors", safetensors({"a": entry(places=("0", "48"))})),
    "an entry without places": ("x.safetensors", safetensors({"a": {"dtype": "F32"}})),
    "an entry that is a number": ("x.safetensors", safetensors({"a": 3})),
    "tensors cut short": ("x.safetensors", safetensors({"a": entry()}, b"\0" * 40)),
    "another ending": ("x.pkl", b"\x80\x04\x95"),
}


def refused(read: Callable[[], object]) -> str:
    """Return the one-line error of `read`; check that it used little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError) as caught:
            read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    assert peak < 4e6
    return message


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """Catches memory that is taken before a header is believed, and foreign exceptions."""
    file, content = HOSTILE[name]
    (tmp_path / file).write_bytes(content)
    assert file in refused(lambda: open_arrays(tmp_path / file))


def test_an_archive_that_names_an_array_twice_is_refused(tmp_path: Path) -> None:
    """Catches two readers that each take another of the two."""
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = archive(("a.npy", npy()), ("a.npy", npy()))
    (tmp_path / "x.npz").write_bytes(content)
    assert "twice" in refused(lambda: open_arrays(tmp_path / "x.npz"))


def test_a_name_that_occurs_twice_among_many_is_found() -> None:
    """Catches a search that compares all names with all others, which takes hours here."""
    names = [f'"{i}":0' for i in range(300_000)]
    text = ",".join([*names, names[-1]])
    with pytest.raises(InvalidInputError, match="'299999' occurs twice"):
        parse_json(f"{{{text}}}".encode(), "x")


def test_damage_that_shows_only_in_the_rows_is_refused_there(tmp_path: Path) -> None:
    """Catches an exception of zlib, or zeros in the place of what is missing."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=NUMBERS)
    content = bytearray(path.read_bytes())
    content[300:900] = b"\xff" * 600
    path.write_bytes(content)
    refused(lambda: open_arrays(path)["a"].read(0, 37))
    np.save(tmp_path / "y.npy", NUMBERS)
    rows = open_arrays(tmp_path / "y.npy")[""]
    os.truncate(tmp_path / "y.npy", 1000)  # while it is being read
    refused(lambda: rows.read(0, 37))


@pytest.mark.parametrize("save", ["npy", "npz", "compressed"])
def test_rows_that_are_not_there_are_refused(save: str, tmp_path: Path) -> None:
    """Catches bytes of a header, or of the array behind, that are read as numbers."""
    path = tmp_path / ("x.npy" if save == "npy" else "x.npz")
    if save == "npy":
        np.save(path, NUMBERS)
    else:
        (np.savez if save == "npz" else np.savez_compressed)(path, a=NUMBERS, b=NUMBERS)
    rows = next(iter(open_arrays(path).values()))
    wrong: list[Any] = [(-1, 1), (2, 1), (0, 38), (38, 38), (0, 2.0), ("0", 1), (None, 1), (-2, -1)]
    for bounds in wrong:
        message = refused(lambda bounds=bounds: rows.read(*bounds))  # type: ignore[misc]
        assert "0 ≤ start ≤ stop ≤ 37" in message
    assert "4 ≤ start" in refused(lambda: list(rows.blocks([(2, 4), (3, 5)])))
    assert rows.read(37, 37).shape == (0, 11)
    assert (rows.read(np.int64(36), np.int64(37)) == NUMBERS[36:]).all()


def test_a_single_number_has_no_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float64(1))
    assert "stop ≤ 0" in refused(lambda: open_arrays(tmp_path / "x.npy")[""].read(0, 1))


@pytest.mark.parametrize("save", ["npy", "npz", "compressed", "safetensors"])
def test_whatever_is_damaged_nothing_foreign_is_raised(save: str, tmp_path: Path) -> None:
    """Catches exceptions of zipfile, ast, json and struct, and the warnings of NumPy."""
    profile = settings()
    random = np.random.default_rng(5 if profile.derandomize else None)
    array = np.zeros((5, 3), dtype=np.float32)
    path = tmp_path / {"npy": "x.npy", "safetensors": "x.safetensors"}.get(save, "x.npz")
    if save == "safetensors":
        header = {"a": entry((5, 3), "F32", (0, 60))}
        path.write_bytes(safetensors(header, array.tobytes()))
    elif save == "npy":
        np.save(path, array)
    else:
        (np.savez if save == "npz" else np.savez_compressed)(path, a=array)
    sound = path.read_bytes()
    refusals: list[str] = []
    for _ in range(7 * profile.max_examples):
        content = bytearray(sound)
        place = int(random.integers(len(content)))
        content[place : place + int(random.integers(3))] = random.bytes(int(random.integers(3)))
        path.write_bytes(content)
        try:
            for rows in open_arrays(path).values():
                rows.read(0, rows.shape[0]) if rows.shape else None
        except InvalidInputError as error:
            refusals.append(str(error))
    assert len(refusals) > 2 * profile.max_examples
    assert not any("\n" in message for message in refusals)


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    """Catches work whose result cannot be kept."""
    (tmp_path / "file").touch()
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "new")
    for folder in ("missing", "file", "null\0"):
        assert "create it first" in refused(lambda at=folder: check_writable(tmp_path / at / "x"))  # type: ignore[misc]
    assert "is a folder" in refused(lambda: check_writable(tmp_path))
    assert "cannot be written" in refused(lambda: check_writable(tmp_path / ("x" * 300)))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Catches a reader that waits for a pipe, or shows a stranger's exception for a path."""
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    for name in ("pipe.npy", "folder.npy", "missing.npy", "null\0.npy", "long" * 100 + ".npy"):
        refused(lambda name=name: open_arrays(tmp_path / name))  # type: ignore[misc]
        refused(lambda name=name: read_json(tmp_path / name))  # type: ignore[misc]
    message = refused(lambda: open_arrays(tmp_path / "two\nlines.npy"))
    assert "two\\nlines.npy" in message


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"\xff\xfe", b'{"a": NaN}', b"[Infinity]", b"-Infinity", b"1e999", b"'a'",
        b'{"a": 1, "a": 1}', b'[{"b": {"a": 1, "c": 2, "a": 3}}]', b"[" * 100_000, b"1" * 10_000,
    ],
)  # fmt: skip
def test_json_that_readers_take_in_different_ways_is_refused(text: bytes) -> None:
    refused(lambda: parse_json(text, "a text"))


def test_json_that_is_too_large_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"[]")
    assert read_json(path) == []
    os.truncate(path, 2**40)  # a hole, that takes no room on the disk
    refused(lambda: read_json(path))


def test_paths_may_be_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: 'str' object has no attribute 'suffix'."""
    monkeypatch.chdir(tmp_path)
    np.save("laws.npy", np.arange(4.0).reshape(2, 2))
    Path("one.json").write_text("[1]")
    assert open_arrays("laws.npy")[""].read(1, 2).tolist() == [[2.0, 3.0]]
    assert read_json("one.json") == [1]
    assert file_size("one.json") == 3
    assert file_label("folder/one.json") == "file 'one.json'"
    for function in (open_arrays, read_json, file_size, file_label):
        with pytest.raises(InvalidInputError, match="3 is not a path; give the path of a file"):
            function(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["pt", "pth", "bin", "ckpt", "pkl", "PT"])
def test_pickles_are_never_read_and_say_how_to_convert(end: str, tmp_path: Path) -> None:
    """Catches a pickle that is loaded, which can run code, and a refusal without advice."""
    place = tmp_path / f"scores.{end}"
    place.write_bytes(b"cos\nsystem\n(S'touch harmed'\ntR.")
    with pytest.raises(InvalidInputError, match=r"reads no pickles, .* weights_only=True"):
        open_arrays(place)


def test_the_advice_for_pickles_works(tmp_path: Path) -> None:
    """Catches advice that ends in an error: bfloat16, which NumPy does not have."""
    torch = pytest.importorskip("torch")
    from otm._core.files.headers import CONVERSION

    scores = torch.tensor(NUMBERS, dtype=torch.bfloat16)
    torch.save(scores, tmp_path / "scores.pt")
    code = CONVERSION.partition(", or")[0].replace("scores.npy", str(tmp_path / "scores.npy"))
    code = code.replace("…", str(tmp_path / "scores.pt"))
    exec(code, {"numpy": np, "torch": torch})  # the advice itself
    rows = open_arrays(tmp_path / "scores.npy")[""].read(0, len(NUMBERS))
    assert np.array_equal(rows, scores.float().numpy())
