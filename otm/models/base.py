"""The protocol of language models: read tokens, say what may follow each of them.

A model is asked through a `Session`, which holds rows of tokens that it has read, and with them
whatever lets it go on cheaply, such as keys and values.  A loop does two things with a session:
it appends tokens, and it keeps a prefix of some rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Token ids [R, L]; −1 pads a row on the right."""


class Session(ABC):
    """Rows of tokens that a model has read, and its cache for them."""

    @abstractmethod
    def append(self, tokens: Rows) -> Any:
        """Read further tokens in each row.

        Parameters
        ----------
        tokens : int64 array [R, L]
            One row for each row of the session, with −1 behind its tokens; rows may have none.

        Returns
        -------
        array or tensor [R, L, V]
            For each token the logits of the one that follows it, or its law if the model
            `returns_probs`; anything at the padding.

        Raises
        ------
        InvalidInputError
            If a token is not of the vocabulary or a row gets too long, of models that look.
        """

    def read(self, tokens: Rows) -> None:
        """`append` for tokens whose scores nobody wants, as of a prompt; may be cheaper.

        Parameters
        ----------
        tokens : int64 array [R, L]
            As for `append`.
        """
        self.append(tokens)

    @abstractmethod
    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Rewind: row r becomes the first `lengths[r]` tokens of what was row `rows[r]`.

        Parameters
        ----------
        rows : int64 array [R']
            Rows of the session, any number of times each and in any order.
        lengths : int64 array [R']
            How many of their tokens stay.
        """


class LanguageModel(ABC):
    """A law of the next token for every sequence of tokens.

    Attributes
    ----------
    vocabulary : int
        Number V of tokens; their ids are 0 to V − 1.
    context_length : int or None
        Most tokens that a row may hold; None if there is no limit.
    returns_probs : bool
        Whether sessions return laws, perhaps of fractions, and not logits.
    """

    vocabulary: int
    context_length: int | None = None
    returns_probs: bool = False

    @abstractmethod
    def start(self, rows: int) -> Session:
        """Open a session of so many rows, all of them empty.

        Parameters
        ----------
        rows : int
            Number R of rows, at least 1.

        Returns
        -------
        Session
            Nothing is read yet.
        """
