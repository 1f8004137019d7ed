"""The record of `benchmarks.papers`, which five tables of two papers show."""

from __future__ import annotations

RECORDED = "papers"
COMMAND = "python -m benchmarks.papers --save"

PAIRS = ("shipped", "deepened")
"""Names of the targets; the second has the laws of the first and 8 times its layers."""
