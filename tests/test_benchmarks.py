"""The benchmarks run, in short; what they measure is not looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tables import PAGES, TABLES, filled

ROOT = Path(__file__).resolve().parents[1]


def test_the_benchmark_of_kernels_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "benchmarks.kernels", "--quick", "--device", "cpu"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # other tests run beside this one
    subprocess.run(
        [*command, "--output", tmp_path], cwd=ROOT, env=one_thread, check=True, capture_output=True
    )
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path.name.startswith("kernels-cpu")
    assert all(check["passed"] for check in record["gate"]["checks"])
    assert {row["tier"] for row in record["results"]} == {
        check["tier"] for check in record["gate"]["checks"]
    }
    assert not any("failed" in row for row in record["results"])


@pytest.mark.parametrize("name", ["laws", "rows", "rules"])
def test_a_benchmark_runs(name: str) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-W", "error", "-m", f"benchmarks.{name}", "--quick"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_the_pages_show_the_results() -> None:
    """Catches a table in the documentation that is older than the results it is made from."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert [filled(text) for text in texts] == texts
    assert all(f"<!-- table {name} -->" in "".join(texts) for name in TABLES)
