"""Any object as a few characters for a message: a refusal must not fail while it is worded."""

from __future__ import annotations

from typing import Any

__all__ = ["shown"]

LENGTH = 60
"""Most characters that are shown."""


def shown(value: Any) -> str:
    """Write an object as `repr` does, cut to 60 characters, whatever the object is.

    Python refuses to write integers of thousands of digits, and a class of the caller may have a
    `repr` that fails; of such objects only the type is named, and of integers their size.

    Parameters
    ----------
    value : object
        What was given.

    Returns
    -------
    str
        At most 60 characters.

    Examples
    --------
    >>> shown("k-Seq")
    "'k-Seq'"
    >>> shown(-(10**5000))
    '<a negative integer of 16610 bits>'
    >>> shown([10**5000])
    '<a list that cannot be written>'
    """
    try:
        text = repr(value)
    except Exception:  # whatever a class of the caller raises
        if isinstance(value, int):
            sign = "a negative" if value < 0 else "an"
            text = f"<{sign} integer of {value.bit_length()} bits>"
        else:
            text = f"<a {type(value).__name__:.30} that cannot be written>"
    return text if len(text) <= LENGTH else text[: LENGTH - 1] + "…"
