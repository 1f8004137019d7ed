"""JSON of certificates of every kind: numbers, both bounds, files and errors."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from otm._core.arithmetic import rounded
from otm.certificate import CertificateRefusedError, load
from otm.errors import CertificateError

Document = dict[str, Any]
"""A certificate as a JSON object."""

MOST_BITS = 1024
"""Largest number of bits of a decimal integer; longer integers are hexadecimal.

The reason is that Python limits the number of decimal digits.
"""


def integer(value: int) -> int | str:
    """Convert an integer for JSON: a number, or a hexadecimal string above `MOST_BITS` bits."""
    return value if value.bit_length() <= MOST_BITS else hex(value)


def fraction(value: Fraction) -> str:
    """Convert a fraction to the string "a/b"."""
    return f"{integer(value.numerator)}/{integer(value.denominator)}"


def ends(lower: Fraction, upper: Fraction, method: str) -> Document:
    """Return the fields with both bounds, the method that found them, and package versions."""
    return {
        "lower": fraction(lower),
        "upper": fraction(upper),
        "gap": fraction(upper - lower),
        "interval": [rounded(lower, -math.inf).hex(), rounded(upper, math.inf).hex()],
        "status": "exact" if lower == upper else "bounded",
        "method": method,
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


def check(document: Document, checker: Callable[[Document], None]) -> None:
    """Check a document with its checker; raise `CertificateError` if the checker rejects it."""
    try:
        checker(document)
    except CertificateRefusedError as error:
        raise CertificateError(f"the certificate is invalid: {error}") from error


def read(path: str | PathLike[str], checker: Callable[[Document], None]) -> Document:
    """Read a certificate from a file and check it."""
    try:
        document = load(Path(path).read_text(encoding="utf-8"))
    except (CertificateRefusedError, UnicodeDecodeError) as error:
        raise CertificateError(f"{path} is not a certificate: {error}") from error
    check(document, checker)
    return document
