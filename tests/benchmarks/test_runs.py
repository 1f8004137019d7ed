"""The benchmarks run, in short; what they measure is not looked at."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import kernel_tables, layout, pictures
from benchmarks.kernel_tables import gpu, gpu_records
from benchmarks.tables import PAGES, TABLES, filled

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, *options: str) -> None:
    """Run a benchmark as a program, but in this process, which has loaded what it needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, "--quick", *options])
        patch.setattr(os, "environ", os.environ.copy())
        # another test may have imported it, and runpy warns of that
        patch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")


def test_the_benchmark_of_kernels_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    run("kernels", "--device", "cpu", "--output", str(tmp_path))
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path.name.startswith("kernels-cpu")
    assert all(check["passed"] for check in record["gate"]["checks"])
    assert {row["tier"] for row in record["results"]} == {
        check["tier"] for check in record["gate"]["checks"]
    }
    assert not any("failed" in row for row in record["results"])
    # what a GPU would write has the same form: the tables and pictures find what they need
    assert kernel_tables.of_device(path.stem, record).count("| otm reference |") == 3
    assert pictures.one_chain(record) is None, "there are no graphs on a CPU"
    assert pictures.several_chains(record) is None, "one K makes no line"
    of_chains = [row for row in record["results"] if "K" in row]
    record["results"] += [{**row, "K": row["K"] + 1} for row in of_chains]
    assert pictures.several_chains(record) is not None


# `profiles` runs in tests/figures/wagner, which reads what it writes
BENCHMARKS = (
    "audit block coupled drafters drawn_trees state trees decoding distances exactness on_cpu "
    "papers report rows timeline watermark"
)


@pytest.mark.parametrize("name", BENCHMARKS.split())
def test_a_benchmark_runs(name: str) -> None:
    pytest.importorskip("torch")
    run(name)


def test_a_benchmark_runs_in_a_process_of_its_own() -> None:
    """Bug: a program that finds its modules only where something else has loaded them."""
    pytest.importorskip("torch")
    command = [sys.executable, "-W", "error", "-m", "benchmarks.rules", "--quick"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_the_pages_show_the_results() -> None:
    """Catches a table in the documentation that is older than the results it is made from."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert [filled(text) for text in texts] == texts
    assert all(f"<!-- table {name} -->" in "".join(texts) for name in TABLES)


def synthetic_results() -> dict[str, Any]:
    """Results in the form of `benchmarks.kernels`, with numbers that NOBODY MEASURED."""
    one: dict[str, Any] = {"accepted": 2.5, "floor bytes": 8_000_000, "wall s": 9e-5}
    results: list[dict[str, Any]] = [
        {"tier": "logits -> tokens", "dtype": dtype, "rejection": rejection, "B": batch, "V": size}
        | {"gamma": 4, "contestant": name, "kernel s": seconds * batch, "of floor": 0.5, **one}
        for dtype in ("float32", "bfloat16")
        for rejection in ("first", "typical")
        for batch in (1, 8)
        for size in (100, 1_000)
        for name, seconds in (("otm triton", 2e-6), ("vllm v1", 5e-6))
    ]
    results[-1] |= {"kernel s": None}  # it could not be captured in a graph
    results += [
        {"tier": "probabilities of K chains -> tokens", "contestant": name, "B": 8, "K": count}
        | {"gamma": 4, "V": 1_000, "kernel s": 1e-5 * cost, "times one chain": cost, **one}
        for count in (2, 4)
        for name, cost in (("one chain", 1), ("optimal, triton", 1.5 * count))
    ]
    results.append({**results[-1], "contestant": "k-Seq, torch", "failed": "no memory"})
    return {
        "device": "SYNTHETIC GPU",
        "date": "2000-01-01",
        "versions": {"torch": "0.0", "triton": "0.1", "vllm": "absent"},
        "copy bytes/s": 4e12,
        "absent": {"flashinfer": "ImportError"},
        "gate": {"checks": [{"contestant": "a wrong one", "passed": False}]},
        "results": results,
    }


def test_results_of_a_gpu_appear_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a page that would stay empty, or mix up rows, when there is a GPU at last."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(layout, "RESULTS", tmp_path)
    monkeypatch.setattr(kernel_tables, "PICTURES", tmp_path / "pictures")
    page = "<!-- table gpu -->\n\nof last time\n\n<!-- end of table -->\n"
    others = {"kernels-sm90": {"target": "sm_90"}, "kernels-cpu-x86": {"device": "CPU x86"}}
    for name, found in others.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    assert gpu_records() == {}
    assert pictures.draw() == []
    assert filled(page) == page, "without results of a GPU the last ones stay"

    (tmp_path / "kernels-synthetic-gpu.json").write_text(json.dumps(synthetic_results()))
    assert "pictures/" not in gpu()
    files = pictures.draw()
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == sorted(files)
    assert len(files) == 2
    first = [path.read_bytes() for path in sorted((tmp_path / "pictures").iterdir())]
    assert pictures.draw() == files
    again = [path.read_bytes() for path in sorted((tmp_path / "pictures").iterdir())]
    assert again == first, "drawn twice, the same bytes"
    text = filled(page)
    assert "of last time" not in text
    for expected in (
        "### SYNTHETIC GPU",
        "| logits → tokens, bfloat16, V = 1,000 | B = 1 | B = 8 |",
        "| otm triton | 2.0, 50% | 16.0, 50% |",
        "| vllm v1 | 5.0, 50% | 90 (call), 50% |",
        "| optimal, triton | 60.0, 2.50 accepted |",
        "| k-Seq, torch | failed |",
        "the output distribution failed: a wrong one.",
        "Not installed or not working there: flashinfer.",
        "SYNTHETIC GPU, 2000-01-01, copy rate 4,000 GB/s, torch 0.0, triton 0.1.",
        "(../pictures/kernels-synthetic-gpu-chain.png)",
        "(../pictures/kernels-synthetic-gpu-chains.png)",
    ):
        assert expected in text
    assert "V = 100 " not in text, "the largest vocabulary alone"


def test_no_results_are_synthetic() -> None:
    texts = [path.read_text(encoding="utf-8") for path in layout.RESULTS.rglob("*.json")]
    assert not [text for text in texts if "SYNTHETIC" in text or '"rehearsal": true' in text]
