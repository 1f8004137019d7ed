"""JSON of certificates of every kind: numbers, both ends, files and refusals."""

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
"""A certificate in JSON."""

MOST_BITS = 1024
"""Longest integers in decimal, of which Python limits the digits; longer ones are hexadecimal."""


def integer(value: int) -> int | str:
    """Write an integer in decimal or, where Python limits decimal digits, in hexadecimal."""
    return value if value.bit_length() <= MOST_BITS else hex(value)


def fraction(value: Fraction) -> str:
    """Write a fraction as "a/b"."""
    return f"{integer(value.numerator)}/{integer(value.denominator)}"


def ends(lower: Fraction, upper: Fraction, method: str) -> Document:
    """Fields that say what is proved, how it was found, and with which versions."""
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
    """Check a document by the checker of its kind; a refusal becomes a `CertificateError`."""
    try:
        checker(document)
    except CertificateRefusedError as error:
        raise CertificateError(f"the certificate is refused: {error}") from error


def read(path: str | PathLike[str], checker: Callable[[Document], None]) -> Document:
    """Read and check a document."""
    try:
        document = load(Path(path).read_text(encoding="utf-8"))
    except (CertificateRefusedError, UnicodeDecodeError) as error:
        raise CertificateError(f"{path} is not a certificate: {error}") from error
    check(document, checker)
    return document
