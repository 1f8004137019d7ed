"""The benchmarks run, in short; what they measure is not looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
