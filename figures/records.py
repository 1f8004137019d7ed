"""Records of measurements: times and memory are measured by `benchmarks`, never while drawing.

A figure that other figures are computed beside would be timed on busy cores, and would look
different every time.  So the benchmarks write JSON files, each with the machine and the date, and
figures only show what is in them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from otm.errors import InvalidInputError

PAIRS = ("shipped", "deepened")
"""Targets of `benchmarks.papers`; the second has 8 times the layers, and the same distributions."""


class Record(NamedTuple):
    """One file of measurements: its name without the suffix, what it holds, and its SHA-256."""

    name: str
    content: dict[str, Any]
    digest: str


def records_of(folder: Path, pattern: str) -> list[Record]:
    """Read the records of a folder whose names match, in the order of their names.

    Parameters
    ----------
    folder : Path
        Where the benchmarks write; it need not exist.
    pattern : str
        Such as "kernels-*"; without a suffix.

    Raises
    ------
    InvalidInputError
        If a file is no JSON object.
    """
    records = []
    for file in sorted(folder.glob(f"{pattern}.json")):
        data = file.read_bytes()
        try:
            content = json.loads(data)
        except ValueError as error:
            raise InvalidInputError(
                f"{file} is no JSON: {error}; make it again with the benchmark that writes it"
            ) from error
        if not isinstance(content, dict):
            raise InvalidInputError(f"{file} holds no JSON object; make it again")
        records.append(Record(file.stem, content, hashlib.sha256(data).hexdigest()))
    return records


def where(content: dict[str, Any]) -> str:
    """Say on what a record was measured: the device, or the processor, and the date.

    Examples
    --------
    >>> where({"cpu": "Some Processor", "cores": 2, "date": "2026-11-21"})
    '2 cores of Some Processor, 2026-11-21'
    >>> where({"cpu": "Some Processor"})
    'Some Processor'
    """
    cpu, cores = content.get("cpu"), content.get("cores")
    processor = f"{cores} cores of {cpu}" if cpu and cores else cpu or "a machine without a name"
    device = content.get("device") or processor
    return ", ".join(str(part) for part in (device, content.get("date")) if part)
