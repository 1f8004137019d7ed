"""The two laws that a command line gives, as text or in files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from otm.cli.files import read_laws
from otm.errors import InvalidInputError, InvalidLawError
from otm.shown import shown

__all__ = ["given_laws"]

# limits on digits and exponents: 1e1000000000 is a short text and a long number
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,400}/\d{1,400}|(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,3})?)",
    re.ASCII,
)

HOW = (
    "give --draft and --target, or one file that has both laws, or one file for the draft law and "
    "one for the target law"
)


def given_laws(
    files: Sequence[Path], draft: str | None, target: str | None, *, exact: bool
) -> tuple[Any, Any]:
    """Read the draft and the target law.

    Parameters
    ----------
    files : sequence of Path
        None, one that holds both laws, or two that hold one each.
    draft, target : str or None
        Numbers with commas between them.
    exact : bool
        Read decimals as the fractions that they are; this is also done if either law has a
        fraction such as 1/3.

    Returns
    -------
    tuple
        What `MembershipProblem` takes: arrays of floats, or lists of floats or of fractions.

    Raises
    ------
    InvalidInputError
        If it is not clear which laws are meant, or a file is not one of laws.
    InvalidLawError
        If a number is none.

    Examples
    --------
    >>> given_laws([], "1/3, 2/3", "0.5,0.5", exact=False)[1]
    [Fraction(1, 2), Fraction(1, 2)]
    """
    inline = {"draft": draft, "target": target}
    if files:
        if draft is not None or target is not None:
            raise InvalidInputError(f"there are laws in files and in options; {HOW}")
        laws = _from_files(files)
    elif draft is None or target is None:
        missing = " and ".join(name for name, text in inline.items() if text is None)
        raise InvalidInputError(f"no {missing} law is given; {HOW}")
    else:
        laws = {"draft": draft.split(","), "target": target.split(",")}
    texts = [law for law in laws.values() if isinstance(law, list)]
    exact = exact or any("/" in entry for law in texts for entry in law)
    first, second = (_numbers(laws[name], name, exact) for name in ("draft", "target"))
    return first, second


def _from_files(files: Sequence[Path]) -> dict[str, Any]:
    if len(files) > 2:
        raise InvalidInputError(f"{len(files)} files; {HOW}")
    if len(files) == 2:
        laws = {}
        for name, path in zip(("draft", "target"), files, strict=True):
            found = read_laws(path)
            if len(found) != 1:
                raise InvalidInputError(f"{path.name} has {len(found)} laws; {HOW}")
            (laws[name],) = found.values()
        return laws
    found = read_laws(files[0])
    if found.keys() != {"draft", "target"}:
        names = ", ".join(shown(name) for name in list(found)[:4] if name) or "no name"
        raise InvalidInputError(
            f"{files[0].name} should have two laws, draft and target, but has {len(found)} with "
            f"{names}; {HOW}"
        )
    return found


def _numbers(law: Any, name: str, exact: bool) -> Any:
    """Turn text into numbers; an array from a file is one of numbers already."""
    if not isinstance(law, list):
        return law
    entries = [entry.strip() for entry in law]
    for index, entry in enumerate(entries):
        if not _NUMBER.fullmatch(entry) or re.search(r"/0+$", entry):
            raise InvalidLawError(
                f"the {name} law has {shown(entry)} at index {index}; allowed are numbers such as "
                "0.25, 1e-3 and 1/3, of at most 400 digits"
            )
    return [Fraction(entry) for entry in entries] if exact else [float(entry) for entry in entries]
