"""Sessions of models that are functions of the context: there is nothing to keep but tokens."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.models.base import LanguageModel, Rows, Session


class StatelessModel(LanguageModel):
    """A model that finds the distribution of the next token from the context alone, at little cost.

    Subclasses give `probs`.

    Examples
    --------
    >>> class Alternating(StatelessModel):
    ...     vocabulary = 2
    ...
    ...     def probs(self, context):
    ...         return np.eye(2)[(sum(context) + 1) % 2]
    >>> Alternating().start(rows=1).append(np.array([[0, 1]]))
    array([[[0., 1.],
            [1., 0.]]])
    """

    returns_probs = True

    @abstractmethod
    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context.

        Parameters
        ----------
        context : tuple of int
            All tokens before, perhaps none.

        Returns
        -------
        array [V]
            Probabilities: floats or fractions.
        """

    def start(self, rows: int) -> Session:
        """Open a session of so many rows, all of them empty."""
        return _Contexts(self, rows)


class _Contexts(Session):
    """The tokens read, row by row."""

    def __init__(self, model: StatelessModel, rows: int) -> None:
        self._model = model
        self._rows: list[tuple[int, ...]] = [()] * rows

    def append(self, tokens: Rows) -> npt.NDArray[Any]:
        before = self._rows
        self.read(tokens)
        anything = self._model.probs(())
        laws = np.zeros((*tokens.shape, anything.size), dtype=anything.dtype)
        for r, (old, new) in enumerate(zip(before, self._rows, strict=True)):
            for i in range(len(old), len(new)):
                laws[r, i - len(old)] = self._model.probs(new[: i + 1])
        return laws

    def read(self, tokens: Rows) -> None:
        pairs = zip(self._rows, tokens.tolist(), strict=True)
        self._rows = [row + tuple(t for t in more if t >= 0) for row, more in pairs]

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        pairs = zip(rows.tolist(), lengths.tolist(), strict=True)
        self._rows = [self._rows[row][:length] for row, length in pairs]
