"""The same numbers whoever computes them, and whenever."""

from __future__ import annotations

import json
import os
import signal
import sys
import tracemalloc
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import otm
from otm._core import digest
from otm.coupling import PLANS
from otm.errors import InvalidInputError, ProblemTooLargeError
from otm.gain import Lenience, Settings, Typical, from_files
from otm.gain.reports import blocks
from otm.gain.reports.blocks import measure_all
from otm.gain.reports.pairs import Measured

joblib = pytest.importorskip("joblib")

SETTINGS = Settings(
    ks=(1, 2, 4), draft_temperatures=(1.0, 0.7), lossy_settings=(Lenience(0.5), Typical())
)


def assert_same(found: Measured, wanted: Measured) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def measure_in_one_process(folder: Path) -> Measured:
    return measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "one", workers=1)


@pytest.fixture
def wanted(folder: Path, computed: Callable[..., Measured]) -> Measured:
    """Return what one process computes, which it has saved in `folder / "one"`."""
    return computed(folder, measure_in_one_process)


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def test_numbers_are_those_of_the_plans(folder: Path) -> None:
    """Catches axes in disorder, a temperature on the wrong model, and rows shifted by a block."""
    rules = ("k-Seq", "optimal", "greedy", "recursive rejection")
    settings = Settings(ks=(2,), rules=rules, draft_temperatures=(1.0, 0.7), lossy_settings=())
    found = measure_all(from_files(folder / "pair.npz"), settings, folder / "one")
    arrays = np.load(folder / "pair.npz")
    assert found["acceptance"].shape == (60, 2, 4, 2)
    assert found["accepted"].shape == (60, 2, 3, 2)
    for row in (0, 7, 8, 33, 59):
        target = softmax(arrays["target"][row].astype(np.float64))
        for d, temperature in enumerate((1.0, 0.7)):
            draft = softmax(arrays["draft"][row].astype(np.float64) / temperature)
            for i, k in enumerate((1, 2)):
                problem = otm.Problem(draft, target, k)
                for r, rule in enumerate(rules):
                    plan = PLANS[rule](problem)
                    wanted = pytest.approx(float(plan.acceptance), abs=1e-12)
                    assert found["acceptance"][row, d, r, i] == wanted
                optimum = PLANS["optimal"](problem)
                token = arrays["tokens"][row]
                share = optimum.accepted_mass[token] / target[token]
                assert found["accepted"][row, d, 1, i] == pytest.approx(share, abs=1e-9)


def test_two_processes_give_the_same_numbers(folder: Path, wanted: Measured) -> None:
    """Catches a result that depends on which worker came first."""
    source = from_files(folder / "pair.npz")
    assert_same(measure_all(source, SETTINGS, folder / "two", workers=2), wanted)


def test_a_dask_cluster_gives_the_same_numbers(folder: Path, wanted: Measured) -> None:
    """Catches a source that cannot travel, and an order of results that is relied on."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
    ):
        found = measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "dask")
        loaded = client.run(lambda: "otm.gain.reports.pairs" in sys.modules)
    assert list(loaded.values()) == [True], "the worker computed nothing"
    assert_same(found, wanted)


@pytest.mark.parametrize("form", ["compressed", "npy", "safetensors"])
def test_every_format_gives_the_same_numbers(form: str, folder: Path, wanted: Measured) -> None:
    """Catches a stream that skips a block, and arrays that are taken for each other."""
    arrays = dict(np.load(folder / "pair.npz"))
    paths = {"draft": folder / "other.npz"}
    if form == "compressed":
        np.savez_compressed(folder / "other.npz", **arrays)
    elif form == "npy":
        paths = {name: folder / f"{name}.npy" for name in arrays}
        for name, array in arrays.items():
            np.save(paths[name], array)
    else:
        paths = {"draft": folder / "other.safetensors"}
        pytest.importorskip("safetensors.numpy").save_file(arrays, paths["draft"])
    assert_same(measure_all(from_files(**paths), SETTINGS, folder / "form"), wanted)


@pytest.mark.parametrize("compressed", [False, True])
def test_an_interrupted_run_goes_on(compressed: bool, folder: Path, wanted: Measured) -> None:
    """Catches work that is done again, a block that is left out, or half a file believed."""
    path = folder / "pair.npz"
    if compressed:
        path = folder / "other.npz"
        np.savez_compressed(path, **dict(np.load(folder / "pair.npz")))

    def interrupt(what: str, done: int, total: int) -> None:
        assert (what, total) == ("report: finished blocks", 8)
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_all(from_files(path), SETTINGS, folder / "half", progress=interrupt)
    saved = sorted((folder / "half").glob("block-*.npz"))
    assert len(saved) == 3
    saved[1].write_bytes(saved[1].read_bytes()[:-100])  # of a disk that was full, say
    told: list[int] = []

    def tell(what: str, done: int, total: int) -> None:
        told.append(done)

    again = measure_all(from_files(path), SETTINGS, folder / "half", progress=tell)
    assert told == [2, 3, 4, 5, 6, 7, 8]
    assert_same(again, wanted)
    told.clear()
    once_more = measure_all(from_files(path), SETTINGS, folder / "half", progress=tell)
    assert told == []
    assert_same(once_more, wanted)


@pytest.mark.parametrize("damage", ["not a number", "half the digits", "an array less"])
def test_blocks_that_somebody_changed_are_computed_again(
    damage: str, folder: Path, wanted: Measured
) -> None:
    """Bug: the report uses any file in the folder that has the right number of rows."""
    block = next(iter(sorted((folder / "one").glob("*.npz"))))
    arrays = dict(np.load(block))
    if damage == "not a number":
        arrays["acceptance"][0] = np.nan
    elif damage == "half the digits":
        arrays["acceptance"] = arrays["acceptance"].astype(np.float32)
    else:
        del arrays["acceptance"]
    np.savez(block, **arrays)
    assert_same(measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "one"), wanted)


def test_a_run_without_knobs_goes_on(folder: Path) -> None:
    """Catches an array that was saved without a number in it."""
    settings = Settings(ks=(1,), lossy_settings=())
    wanted = measure_all(from_files(folder / "pair.npz"), settings, folder / "none")
    assert wanted["lossy"].shape == (60, 1, 0, 2, 1)
    assert_same(measure_all(from_files(folder / "pair.npz"), settings, folder / "none"), wanted)


def test_results_of_another_run_are_not_mixed_in(folder: Path, wanted: Measured) -> None:
    """Catches a report that mixes results of two different inputs."""
    with pytest.raises(InvalidInputError, match=r"differs in its settings; .*--output"):
        measure_all(from_files(folder / "pair.npz"), Settings(ks=(1,)), folder / "one")
    arrays = dict(np.load(folder / "pair.npz"))
    arrays["draft"][3, 3] += 1
    np.savez(folder / "pair.npz", **arrays)
    with pytest.raises(InvalidInputError, match="differs in its source"):
        measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "one")
    (folder / "one" / "manifest.json").write_text("[NaN]", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="not JSON"):
        measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "one")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_that_is_no_law_is_named(workers: int, folder: Path) -> None:
    """Catches a mean of NaN, a row counted within its block, and the traceback of a worker."""
    for bad, why in ((np.nan, "NaN"), (-np.inf, "only −∞"), (np.inf, r"\+∞")):
        arrays = dict(np.load(folder / "pair.npz"))
        arrays["target"][21] = bad
        np.savez(folder / "bad.npz", **arrays)
        with pytest.raises(InvalidInputError, match=rf"^row 21 of array 'target'.*{why}") as caught:
            measure_all(
                from_files(folder / "bad.npz"), SETTINGS, folder / f"bad {why}", workers=workers
            )
        assert "\n" not in str(caught.value)
        if workers == 2:
            break


@pytest.mark.filterwarnings("error")
def test_a_signalling_nan_is_one_line(folder: Path) -> None:
    """Catches a warning of NumPy beside the error, as bytes of a damaged file give it."""
    arrays = dict(np.load(folder / "pair.npz"))
    arrays["target"][21] = np.array(0x7F800001, dtype=np.uint32).view(np.float32)
    np.savez(folder / "bad.npz", **arrays)
    with pytest.raises(InvalidInputError, match=r"^row 21 of array 'target'"):
        measure_all(from_files(folder / "bad.npz"), SETTINGS, folder / "bad", workers=1)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Catches a file that is loaded whole: it has 100 MB, and blocks have 16 MiB."""
    shape = 50, 250_000
    for name in ("draft", "target"):
        with (tmp_path / f"{name}.npy").open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + 4 * shape[0] * shape[1])  # a hole: zeros
    source = from_files(tmp_path / "draft.npy", tmp_path / "target.npy")
    settings = Settings(ks=(1,), rules=("optimal",), lossy_settings=())
    tracemalloc.start()
    try:
        found = measure_all(source, settings, tmp_path / "out", workers=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(found["acceptance"], 1)
    assert 2**24 < peak < 80e6


def test_the_manifest_says_what_the_folder_is_for(folder: Path, wanted: Measured) -> None:
    found = json.loads((folder / "one" / "manifest.json").read_text(encoding="utf-8"))
    assert found["settings"]["ks"] == [1, 2, 4]


@pytest.mark.parametrize("module", ["gain/reports/blocks.py", "coupling/k_seq.py"])
def test_results_of_other_code_are_not_mixed_in(
    module: str, folder: Path, wanted: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a run that was begun before an upgrade goes on, and means over two versions."""
    real = dict(digest.sources(files("otm")))
    changed = {**real, module: real[module] + b"# changed"}
    monkeypatch.setattr(digest, "sources", lambda _: changed.items())
    monkeypatch.setattr(blocks, "digest_of_code", digest.digest_of_code.__wrapped__)
    with pytest.raises(InvalidInputError, match="code: another version") as caught:
        measure_all(from_files(folder / "pair.npz"), SETTINGS, folder / "one")
    assert "source" not in str(caught.value)


def test_a_source_of_ones_own_needs_no_module_of_ours(folder: Path, wanted: Measured) -> None:
    """Bug: the code of a source outside of this package is looked for in it."""

    class Mine:
        def __init__(self) -> None:
            self.inner = from_files(folder / "pair.npz")

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    assert_same(measure_all(Mine(), SETTINGS, folder / "mine", workers=1), wanted)  # type: ignore[arg-type]


def test_knobs_that_differ_little_are_told_apart(folder: Path) -> None:
    """Bug: six digits of a setting in the key and the label: another one's results are taken."""
    near = [
        Settings(ks=(1,), lossy_settings=(Lenience(lenience),)) for lenience in (0.5, 0.5000001)
    ]
    measure_all(from_files(folder / "pair.npz"), near[0], folder / "near")
    with pytest.raises(InvalidInputError, match="differs in its settings"):
        measure_all(from_files(folder / "pair.npz"), near[1], folder / "near")
    for one, other in ((Lenience(0.5), Lenience(0.5000001)), (Typical(0.1), Typical(0.1000001))):
        assert str(one) != str(other)


class Fatal:
    """A block that ends whoever measures it."""

    def measure(self, settings: Settings) -> Measured:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


class Ears:
    """A block that says whether whoever measures it hears Ctrl-C."""

    def measure(self, settings: Settings) -> Measured:
        return {"deaf": np.array([signal.getsignal(signal.SIGINT) is signal.SIG_IGN])}


def test_workers_leave_ctrl_c_to_their_parent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: Ctrl-C in a terminal reaches workers as they begin, and each writes a traceback."""
    source = from_files(folder / "pair.npz")
    monkeypatch.setattr(type(source), "blocks", lambda _, bounds: (Ears() for _ in bounds))
    before = signal.getsignal(signal.SIGINT)
    found = measure_all(source, SETTINGS, folder / "deaf", workers=2)
    assert found["deaf"].all()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("package", ["distributed.scheduler", "ray.exceptions"])
def test_a_worker_that_a_cluster_lost_is_an_error_of_one_line(
    package: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: users see unfamiliar errors: `KilledWorker` of Dask or `WorkerCrashedError` of Ray."""
    lost = type("Lost", (Exception,), {"__module__": package})

    class Block:
        def measure(self, settings: Settings) -> Measured:
            raise lost("block\n0")

    source = from_files(folder / "pair.npz")
    monkeypatch.setattr(type(source), "blocks", lambda _, bounds: (Block() for _ in bounds))
    with pytest.raises(ProblemTooLargeError, match="fewer workers") as caught:
        measure_all(source, SETTINGS, folder / "out", workers=1)
    assert "\n" not in str(caught.value)
    mistake = type("Mistake", (InvalidInputError,), {"__module__": package})  # of Ray: dual classes
    monkeypatch.setattr(Block, "measure", lambda *_: (_ for _ in ()).throw(mistake("row 3")))
    with pytest.raises(InvalidInputError, match="row 3"):
        measure_all(source, SETTINGS, folder / "out", workers=1)


def test_a_worker_that_is_killed_is_an_error_of_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches the traceback of a pool, and results that are lost with it."""
    source = from_files(folder / "pair.npz")
    monkeypatch.setattr(type(source), "blocks", lambda _, bounds: (Fatal() for _ in bounds))
    with pytest.raises(ProblemTooLargeError, match="fewer workers") as caught:
        measure_all(source, SETTINGS, folder / "out", workers=2)
    assert "\n" not in str(caught.value)


def test_what_is_refused_leaves_nothing_behind(folder: Path) -> None:
    """Bug: empty folders; or folders of the user's removed with them, or what was computed."""
    arrays = dict(np.load(folder / "pair.npz"))
    damaged = {**arrays, "draft": arrays["draft"].copy()}
    damaged["draft"][0, 0] = np.nan
    np.savez(folder / "nan.npz", **damaged)
    (folder / "mine").mkdir()
    for place in ("mine/positions", "new/deep/positions"):
        with pytest.raises(InvalidInputError, match="row 0"):
            measure_all(from_files(folder / "nan.npz"), SETTINGS, folder / place, workers=1)
    assert not list((folder / "mine").iterdir())
    assert not (folder / "new").exists()
    damaged["draft"] = arrays["draft"].copy()
    damaged["draft"][-1, 0] = np.nan
    np.savez(folder / "late.npz", **damaged)
    with pytest.raises(InvalidInputError, match="row 59"):
        measure_all(from_files(folder / "late.npz"), SETTINGS, folder / "late", workers=1)
    assert (folder / "late" / "manifest.json").exists()
    assert list((folder / "late").glob("block-*.npz"))
