"""Mutants without any effect that a caller can see, each with the reason.

equivalent.txt lists them under lines that begin with a number sign and give the reason.
"""

from pathlib import Path

__all__ = ["EQUIVALENT"]


def _reasons(text: str) -> dict[str, str]:
    """Parse the text into a dictionary from mutants to reasons."""
    reasons, reason = {}, ""
    for line in filter(None, text.splitlines()):
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        else:
            reasons[line] = reason
    return reasons


EQUIVALENT = _reasons(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
