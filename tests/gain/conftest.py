"""Files of logits, such as a user has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

Result = TypeVar("Result")

POSITIONS, VOCABULARY = 60, 40


def write_pair(folder: Path) -> None:
    """Write `pair.npz` with logits, prompts and tokens that the target draws."""
    rng = np.random.default_rng(0)
    target = (2 * rng.normal(size=(POSITIONS, VOCABULARY))).astype(np.float32)
    draft = (target + rng.normal(size=target.shape)).astype(np.float32)
    law = np.exp(target.astype(np.float64))
    law /= law.sum(axis=1, keepdims=True)
    tokens = [rng.choice(VOCABULARY, p=row) for row in law]
    prompts = np.repeat(np.arange(6), POSITIONS // 6)
    arrays = {"draft": draft, "target": target, "prompts": prompts, "tokens": np.array(tokens)}
    np.savez(folder / "pair.npz", **arrays)


@pytest.fixture(scope="module")
def computed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Path, Callable[[Path], Result]], Result]:
    """Return a function that runs `compute(folder)` once, and copies its files for each test."""
    made: dict[Callable[[Path], Result], tuple[Path, Result]] = {}

    def copy(folder: Path, compute: Callable[[Path], Result]) -> Result:
        if compute not in made:
            place = tmp_path_factory.mktemp("computed")
            write_pair(place)
            made[compute] = place, compute(place)
        place, result = made[compute]
        shutil.copytree(place, folder, dirs_exist_ok=True)
        return result

    return copy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with `pair.npz`, which is read in blocks of 8 positions."""
    monkeypatch.setattr("otm.gain.reports.score_files.BLOCK_BYTES", 8 * 2 * 4 * VOCABULARY)
    write_pair(tmp_path)
    return tmp_path
