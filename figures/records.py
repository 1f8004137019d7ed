"""Records of measurements: `benchmarks` measures times and memory, and drawing never does.

While figures are computed in parallel, the cores are busy, and measured times would vary.  So the
benchmarks write JSON files with the machine and the date, and figures only show these numbers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from otm.errors import InvalidInputError

PAIRS = ("shipped", "deepened")
"""Targets of `benchmarks.papers`; the second has 8 times the layers and the same output."""


class Record(NamedTuple):
    """A file of measurements: its name without the suffix, its content, and its SHA-256."""

    name: str
    content: dict[str, Any]
    digest: str


def records_of(folder: Path, pattern: str) -> list[Record]:
    """Read the records of a folder with matching names, in the order of the names.

    Parameters
    ----------
    folder : Path
        Output folder of the benchmarks; it need not exist.
    pattern : str
        Pattern of names without suffix, such as "kernels-*".

    Raises
    ------
    InvalidInputError
        If a file does not contain a JSON object.
    """
    records = []
    for file in sorted(folder.glob(f"{pattern}.json")):
        data = file.read_bytes()
        try:
            content = json.loads(data)
        except ValueError as error:
            raise InvalidInputError(
                f"{file} is not JSON: {error}; make it again with the benchmark that writes it"
            ) from error
        if not isinstance(content, dict):
            raise InvalidInputError(f"{file} does not contain a JSON object; make it again")
        records.append(Record(file.stem, content, hashlib.sha256(data).hexdigest()))
    return records


def where(content: dict[str, Any]) -> str:
    """Return the device or processor of a record, and its date.

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
