"""The protocol of language models: read tokens, say what may follow each of them.

A model is used through a `Session`, which holds rows of tokens that it has read, and with them
whatever lets it go on cheaply, such as keys and values.  A loop does two things with a session:
it appends tokens, and it keeps a prefix of some rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.tensors import to_host
from otm.errors import InvalidInputError

PaddedTokens = npt.NDArray[np.int64]
"""Token ids [R, L]; −1 pads a row on the right."""


class Session(ABC):
    """Rows of tokens that a model has read, and its cache for them."""

    @abstractmethod
    def append(self, tokens: PaddedTokens) -> Any:
        """Read further tokens in each row.

        Parameters
        ----------
        tokens : int64 array [R, L]
            One row for each row of the session, with −1 behind its tokens; rows may have none.

        Returns
        -------
        array or tensor [R, L, V]
            For each token the logits of the one that follows it, or its probabilities if the model
            `returns_probs`; anything at the padding.

        Raises
        ------
        InvalidInputError
            If a token is not of the vocabulary or a row gets too long, of models that look.
        """

    def read(self, tokens: PaddedTokens) -> None:
        """`append` without scores, as for a prompt; may be cheaper.

        Parameters
        ----------
        tokens : int64 array [R, L]
            As for `append`.
        """
        self.append(tokens)

    def append_tensor(self, tokens: Any, counts: npt.NDArray[np.int64]) -> Any:
        """`append` of tokens that are on a device, as drafts are before they are verified.

        This one copies them to the host; sessions on a device override it.

        Parameters
        ----------
        tokens : int64 tensor [R, L]
            Tokens of the vocabulary; anything behind those of a row.
        counts : int64 array [R]
            How many of its tokens each row reads.

        Returns
        -------
        array or tensor [R, L, V]
            As of `append`.
        """
        given = np.arange(tokens.shape[1]) < counts[:, None]
        return self.append(np.where(given, to_host(tokens), -1))

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
    """A distribution of the next token for every sequence of tokens.

    Attributes
    ----------
    vocabulary : int
        Number V of tokens; their ids are 0 to V − 1.
    context_length : int or None
        Most tokens that a row may hold; None if there is no limit.
    returns_probs : bool
        Whether sessions return probabilities, perhaps as fractions, and not logits.
    device : torch.device or None
        Where the tensors are that sessions return; None if they return arrays.
    """

    vocabulary: int
    context_length: int | None = None
    returns_probs: bool = False
    device: Any = None

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


class TokenRows(Session):
    """Rows as tuples of tokens, for sessions that keep nothing else."""

    def __init__(self, rows: int) -> None:
        self.rows: list[tuple[int, ...]] = [()] * rows

    def read(self, tokens: PaddedTokens) -> None:
        """Keep further tokens of each row."""
        pairs = zip(self.rows, tokens.tolist(), strict=True)
        self.rows = [row + tuple(t for t in more if t >= 0) for row, more in pairs]

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Rewind."""
        pairs = zip(rows.tolist(), lengths.tolist(), strict=True)
        self.rows = [self.rows[row][:length] for row, length in pairs]


class _Contexts(TokenRows):
    """A session of a model that is a function of the context."""

    def __init__(self, model: StatelessModel, rows: int) -> None:
        super().__init__(rows)
        self._model = model

    def append(self, tokens: PaddedTokens) -> npt.NDArray[Any]:
        before = self.rows
        self.read(tokens)
        anything = self._model.probs(())
        probs = np.zeros((*tokens.shape, anything.size), dtype=anything.dtype)
        for r, (old, new) in enumerate(zip(before, self.rows, strict=True)):
            for i in range(len(old), len(new)):
                probs[r, i - len(old)] = self._model.probs(new[: i + 1])
        return probs


def check_length(longest: int, most: int | None) -> None:
    """Refuse rows that are longer than a model can read."""
    if most is not None and longest > most:
        raise InvalidInputError(
            f"a row would have {longest:,} tokens; this model reads at most {most:,}: keep fewer, "
            "or go on from the last ones in a new session"
        )


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of what two sequences of one kind begin with."""
    n = min(len(a), len(b))
    if a is b or a[:n] == b[:n]:
        return n
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def padded(parts: Sequence[Sequence[int]]) -> PaddedTokens:
    """Tokens of rows as one array, with −1 behind the shorter ones."""
    tokens = np.full((len(parts), max(map(len, parts), default=0)), -1, dtype=np.int64)
    for row, part in zip(tokens, parts, strict=True):
        row[: len(part)] = part
    return tokens
