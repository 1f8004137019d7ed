"""The kernels compile for GPUs that are not there, and keep their values in registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


FROM_PROBABILITIES = ["add_up", "draw"]
OF_ROWS = ["peaks_and_weights", "finish_softmaxes"]
K_SEQ = [*["add_up"] * 5, "draw"]
BINS = [*["add_up", "make_tables"] * 4, "add_up", "draw"]

KERNELS: dict[str, dict[str, list[str]]] = {
    "one chain": {
        "chain, probabilities, drawn, fp32, V = 128,256": FROM_PROBABILITIES,
        "block, logits, one-hot, bf16, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
        "block, logits, drawn, fp32, V = 1": OF_ROWS + FROM_PROBABILITIES,
    },
    "grid k-Seq": {
        "grid k-Seq, probabilities, drawn, fp32, V = 128,256": K_SEQ,
        "grid k-Seq, logits, drawn, bf16, V = 128,256": OF_ROWS + K_SEQ,
    },
    "grid optimal": {"grid optimal, probabilities, drawn, fp32, V = 128,256": BINS},
    "grid optimal, 64 chains": {"grid optimal, probabilities, 64 chains, fp32, V = 128,256": BINS},
    "grid optimal, logits": {"grid optimal, logits, drawn, bf16, V = 128,256": OF_ROWS + BINS},
}
"""Kernels of each use, in the order in which they are launched."""


OTHERS = ("sm_80", "sm_100", "gfx942")
OF_OTHERS = {
    "block, logits, drawn, fp32, V = 128,256": OF_ROWS + FROM_PROBABILITIES,
    "grid optimal, probabilities, drawn, fp32, V = 128,256": BINS,
    "grid k-Seq, logits, 64 chains, fp32, V = 128,256": OF_ROWS + K_SEQ,
}
"""Every kernel once for the other targets, with drawn drafts and one type."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Triton keeps what it has compiled, in this run, for all workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"


def compiled(uses: dict[str, list[str]], target: str, folder: Path, cache: Path) -> list[Any]:
    """Compile kernels in a process that does not interpret them; they must be those expected."""
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="kernels are for Triton 3.7 on")
    command = [sys.executable, "-m", "benchmarks.compile_kernels", "--targets", target]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    subprocess.run(
        [*command, "--output", folder, "--uses", *uses],
        cwd=ROOT, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    path = folder / f"kernels-{target.replace('_', '')}.json"
    rows: list[Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
    kernels: dict[str, list[str]] = {}
    for row in rows:
        kernels.setdefault(row["use"], []).append(row["kernel"])
    assert kernels == uses
    return rows


@pytest.mark.parametrize("group", KERNELS)
def test_every_kernel_compiles_without_spilling(group: str, tmp_path: Path, cache: Path) -> None:
    rows = compiled(KERNELS[group], "sm_90", tmp_path, cache)
    most = 255 if "64 chains" in group else 160  # then the table of a node takes half of them
    assert all(row["spilled bytes"] == 0 and row["registers"] <= most for row in rows)
    # no multiplication and addition with one rounding, where the reference has two; nothing
    # approximate: decisions are compared bit for bit
    assert all(row["inexact"] == [] for row in rows)


@pytest.mark.parametrize("target", OTHERS)
def test_other_targets(target: str, tmp_path: Path, cache: Path) -> None:
    """Catches a kernel that only one architecture compiles, or keeps in registers."""
    rows = compiled(OF_OTHERS, target, tmp_path, cache)
    assert all(row["spilled bytes"] == 0 and row["registers"] <= 160 for row in rows)
    assert all(row.get("inexact", []) == [] for row in rows)
    assert all(("inexact" in row) == target.startswith("sm_") for row in rows)
