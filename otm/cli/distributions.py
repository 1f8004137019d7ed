"""The two distributions that a command line gives, as text or in files."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.files.headers import open_arrays
from otm._core.files.paths import file_label, read_json
from otm._core.files.stored import StoredArray
from otm._core.text import shown
from otm.errors import InvalidDistributionError, InvalidInputError, ProblemTooLargeError

MAX_TOKENS = 2**24
"""Most tokens of a distribution in a file: a hundred times what vocabularies have."""

LARGEST_POWER_BITS = 2**20
"""Most bits of the k-th power of a common denominator, so that its certificate can be checked."""

# limits on digits and exponents: 1e1000000000 is a short text and a long number
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,400}/0*[1-9]\d{0,400}"
    r"|(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?)",
    re.ASCII,
)

HOW = (
    "give --draft and --target, or one file that has both distributions, or one file for the draft "
    "distribution and one for the target distribution"
)


def read_distributions(
    files: Sequence[Path], draft: str | None, target: str | None, *, exact: bool
) -> tuple[Any, Any]:
    """Read the draft and the target distribution from files, or from numbers with commas between.

    One file has both, two have one each.  With `exact`, or if either has a fraction such as 1/3,
    decimals in text become fractions.
    """
    inline = {"draft": draft, "target": target}
    laws: dict[str, Any]
    if files:
        if draft is not None or target is not None:
            raise InvalidInputError(f"there are distributions in files and in options; {HOW}")
        laws = _from_files(files)
    elif draft is None or target is None:
        missing = " and no ".join(name for name, text in inline.items() if text is None)
        raise InvalidInputError(f"no {missing} distribution is given; {HOW}")
    else:
        laws = {"draft": draft.split(","), "target": target.split(",")}
    exact = exact or any(
        isinstance(entry, str) and "/" in entry
        for law in laws.values()
        if isinstance(law, list)
        for entry in law
    )
    first, second = (_numbers(laws[name], name, exact) for name in ("draft", "target"))
    return first, second


def check_exact_size(law: Any, k: int) -> None:
    """Refuse at once what would take minutes in fractions: k-th powers of a large denominator."""
    unit = 1
    for denominator in {entry.denominator for entry in law if isinstance(entry, Fraction)}:
        unit = math.lcm(unit, denominator)
        if k * unit.bit_length() > LARGEST_POWER_BITS:
            raise ProblemTooLargeError(
                f"exact numbers for k = {k} drafts from these distributions would have more than "
                f"{LARGEST_POWER_BITS:,} bits; give decimals without --exact, or a smaller k"
            )


def _from_files(files: Sequence[Path]) -> dict[str, Any]:
    if len(files) > 2:
        raise InvalidInputError(f"{len(files)} files; {HOW}")
    found = [_read(path) for path in files]
    if len(files) == 2:
        for path, laws in zip(files, found, strict=True):
            if len(laws) != 1:
                raise InvalidInputError(f"{file_label(path)} has {len(laws)} distributions; {HOW}")
        return {
            name: next(iter(laws.values()))
            for name, laws in zip(("draft", "target"), found, strict=True)
        }
    if found[0].keys() != {"draft", "target"}:
        names = ", ".join(shown(name) for name in list(found[0])[:4] if name) or "without names"
        raise InvalidInputError(
            f"{file_label(files[0])} should hold two distributions, 'draft' and 'target', and "
            f"holds {len(found[0])}: {names}; {HOW}"
        )
    return found[0]


def _read(path: Path) -> dict[str, Any]:
    """Laws of a file by their names: arrays, or lists of JSON."""
    if path.suffix.lower() == ".json":
        content = read_json(path)
        laws: dict[str, Any] = content if isinstance(content, dict) else {"": content}
        for name, law in laws.items():
            if not isinstance(law, list):
                of = f" at {shown(name)}" if name else ""
                raise InvalidInputError(
                    f"{file_label(path)} has {shown(law)}{of}; a distribution is a list of "
                    'numbers, or of fractions such as "1/3"'
                )
        return laws
    return {name: _array(rows) for name, rows in open_arrays(path).items()}


def _array(rows: StoredArray) -> npt.NDArray[Any]:
    if len(rows.shape) != 1 or not 0 < rows.shape[0] <= MAX_TOKENS:
        empty = ", and so no tokens" if 0 in rows.shape else ""
        raise InvalidInputError(
            f"{rows.description} has the shape {shown(rows.shape)}{empty}; a distribution has one "
            f"axis, with 1 to {MAX_TOKENS:,} tokens"
        )
    return rows.read(0, rows.shape[0])


def _numbers(law: Any, name: str, exact: bool) -> Any:
    """Turn text into numbers; arrays have numbers already."""
    if isinstance(law, np.ndarray):
        return law
    return [
        _number(entry, f"the {name} distribution", index, exact) for index, entry in enumerate(law)
    ]


def _number(entry: Any, where: str, index: int, exact: bool) -> Any:
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return entry
    text = entry.strip() if isinstance(entry, str) else ""
    if not _NUMBER.fullmatch(text):
        raise InvalidDistributionError(
            f"{where} has {shown(entry)} at index {index}; allowed are numbers such as 0.25, 1e-3 "
            "and 1/3, of at most 400 digits"
        )
    return Fraction(text) if exact else float(text)
