"""The protocol of language models: read tokens, and score what follows each of these tokens.

A `Session` of a model holds rows of tokens that the model has read.  The session also caches data,
such as keys and values, so that reading further tokens is cheap.  A decoding loop uses two
operations: it appends tokens to the rows, and it rewinds rows to a prefix.
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
"""Array [R, L] of token ids; −1 pads a row on the right."""


class Session(ABC):
    """Rows of tokens that a model has read, and the model's cache for these rows."""

    @abstractmethod
    def append(self, tokens: PaddedTokens) -> Any:
        """Append tokens to each row; after each of them, score the next token.

        Parameters
        ----------
        tokens : int64 array [R, L]
            New tokens for each row of the session, padded on the right with −1.  A row may have no
            new tokens.

        Returns
        -------
        array or tensor [R, L, V]
            Logits of the next token after each token, or probabilities if the model has
            `returns_probs`.  Values at padding positions are arbitrary.

        Raises
        ------
        InvalidInputError
            If a token is not in the vocabulary or a row becomes too long.  Some models do not raise
            this error.
        """

    def read(self, tokens: PaddedTokens) -> None:
        """Append tokens to each row without returning scores; this can be cheaper than `append`.

        Parameters
        ----------
        tokens : int64 array [R, L]
            New tokens for each row, as for `append`.
        """
        self.append(tokens)

    def append_tensor(self, tokens: Any, counts: npt.NDArray[np.int64]) -> Any:
        """Append tokens from a tensor on the device, such as draft tokens before verification.

        This default copies the tokens to the host; sessions on a device override this method.

        Parameters
        ----------
        tokens : int64 tensor [R, L]
            New tokens for each row; entries beyond the row's count are ignored.
        counts : int64 array [R]
            Number of tokens to append to each row.

        Returns
        -------
        array or tensor [R, L, V]
            Scores of the next token, as from `append`.
        """
        inside = np.arange(tokens.shape[1]) < counts[:, None]
        return self.append(np.where(inside, to_host(tokens), -1))

    def append_tree(self, tokens: Any, parents: Any, counts: npt.NDArray[np.int64]) -> Any:
        """Append the first tokens to each row, and score a tree of tokens after them.

        Only sessions of models with `reads_trees` have this method.

        Parameters
        ----------
        tokens : int64 tensor [R, M]
            The first `counts[r]` tokens are appended to row r.  The others form a tree, which the
            row does not keep.
        parents : int64 tensor [R, M]
            For each token, the index in [0, M) of the token before it, which comes earlier in the
            array; −1 if the token follows the old row.
        counts : int64 array [R]
            Number of tokens to append to each row; may be 0.

        Returns
        -------
        tensor [R, M, V]
            Scores of the next token after each token of the row and of the tree.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no trees")

    def keep_paths(self, paths: npt.NDArray[np.int64]) -> None:
        """Append to each row a path of the last tree, which the model need not read again.

        Parameters
        ----------
        paths : int64 array [R, D]
            Indices of the tokens of a path from the end of the row on, padded with −1.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no trees")

    @abstractmethod
    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Replace the rows by prefixes: new row r is the first `lengths[r]` tokens of `rows[r]`.

        Parameters
        ----------
        rows : int64 array [R']
            Row indices of the session, in any order; an index may repeat.
        lengths : int64 array [R']
            Number of tokens to keep in each new row.
        """


class LanguageModel(ABC):
    """A language model: it gives the distribution of the next token after every sequence.

    Attributes
    ----------
    vocabulary : int
        Number V of tokens; their ids are 0 to V − 1.
    context_length : int or None
        Largest number of tokens of a row; None if there is no limit.
    returns_probs : bool
        Whether sessions return probabilities (floats or fractions) instead of logits.
    device : torch.device or None
        Device of the tensors that sessions return; None if sessions return arrays.
    """

    vocabulary: int
    context_length: int | None = None
    returns_probs: bool = False
    device: Any = None

    @property
    def reads_trees(self) -> bool:
        """Whether sessions read a tree of tokens at once, by `Session.append_tree`."""
        return False

    @abstractmethod
    def start(self, rows: int) -> Session:
        """Open a session with a number of empty rows.

        Parameters
        ----------
        rows : int
            Number R of rows, at least 1.

        Returns
        -------
        Session
            A session whose rows have no tokens.
        """


class StatelessModel(LanguageModel):
    """A model that computes the distribution of the next token from the context, without a cache.

    Subclasses implement `probs`.

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
            All earlier tokens; may be empty.

        Returns
        -------
        array [V]
            Probabilities as floats or fractions.
        """

    def start(self, rows: int) -> Session:
        """Open a session with a number of empty rows."""
        return _Contexts(self, rows)


class TokenRows(Session):
    """Rows stored as tuples of tokens, for sessions without a cache."""

    def __init__(self, rows: int) -> None:
        self.rows: list[tuple[int, ...]] = [()] * rows

    def read(self, tokens: PaddedTokens) -> None:
        """Append tokens to each row."""
        pairs = zip(self.rows, tokens.tolist(), strict=True)
        self.rows = [row + tuple(t for t in more if t >= 0) for row, more in pairs]

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Replace the rows by prefixes of rows."""
        pairs = zip(rows.tolist(), lengths.tolist(), strict=True)
        self.rows = [self.rows[row][:length] for row, length in pairs]


class _Contexts(TokenRows):
    """A session of a `StatelessModel`."""

    def __init__(self, model: StatelessModel, rows: int) -> None:
        super().__init__(rows)
        self._model = model

    def append(self, tokens: PaddedTokens) -> npt.NDArray[Any]:
        before = self.rows
        self.read(tokens)
        example = self._model.probs(())
        probs = np.zeros((*tokens.shape, example.size), dtype=example.dtype)
        for r, (old, new) in enumerate(zip(before, self.rows, strict=True)):
            for i in range(len(old), len(new)):
                probs[r, i - len(old)] = self._model.probs(new[: i + 1])
        return probs


def check_length(longest: int, most: int | None) -> None:
    """Raise if a row would be longer than the model can read."""
    if most is not None and longest > most:
        raise InvalidInputError(
            f"a row would have {longest:,} tokens; this model reads at most {most:,}.  Keep fewer "
            "tokens, or continue from the last tokens in a new session"
        )


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two sequences of the same type."""
    n = min(len(a), len(b))
    if a is b or a[:n] == b[:n]:
        return n
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def padded(parts: Sequence[Sequence[int]]) -> PaddedTokens:
    """Return the tokens of all rows in one array, padded on the right with −1."""
    tokens = np.full((len(parts), max(map(len, parts), default=0)), -1, dtype=np.int64)
    for row, part in zip(tokens, parts, strict=True):
        row[: len(part)] = part
    return tokens
