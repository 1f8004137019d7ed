"""Detect code that seeds a random generator, or sets its state."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

MT19937_BYTES = 4 * (624 + 1)
"""Number of bytes of the generator's state: 624 words and an index."""


class GeneratorWatch:
    """A detector of code that sets the state of a generator between draws, by a seed or otherwise.

    The generator advances with each draw from the source, so that a repeated state is detected.
    """

    def __init__(self, state: Callable[[], Any], step: Callable[[], Any]) -> None:
        self._state, self._step = state, step
        self._step()
        self._kept = state()
        self.reset = self.seeded = self._drawn = False

    def begin(self) -> None:
        """Begin a run with the state that the previous run has left."""
        if self.reset or self.seeded:
            self._kept = self._state()
        self.reset = self.seeded = self._drawn = False

    def seed(self) -> None:
        """Record a seed; after earlier draws of the run, also record a reset."""
        self.check()
        self.seeded, self.reset = True, self.reset or self._drawn

    def check(self) -> None:
        """Record whether the state has changed since the last draw."""
        self.reset = self.reset or not (self.seeded or self._state() == self._kept)

    def drawn(self, *, step: bool = True) -> None:
        """Record the state after a draw."""
        self._drawn = True
        if step:
            self._step()
        self._kept = self._state()


def numpy_state() -> Any:
    """Return the state of NumPy's global generator, faster than `numpy.random.get_state`."""
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # NumPy forgets it
    if type(generator) is np.random.MT19937:
        return ctypes.string_at(generator.ctypes.state_address, MT19937_BYTES)
    name, key, *others = np.random.get_state()  # noqa: NPY002
    return name, np.asarray(key).tobytes(), others
