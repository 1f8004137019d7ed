"""A draft model with another vocabulary, by the tokens that it shares with the target."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import is_exact
from otm._core.numbers import as_integer
from otm._core.optional import require
from otm._core.tensors import is_tensor, like
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel, PaddedTokens, Session, common_length, padded
from otm.models.vocabularies.spelling import Spelling, check_spellings
from otm.models.vocabularies.translation import TranslatedRow, Translation, end_of_row


class IntersectionModel(LanguageModel):
    """A model as a draft model for a target of another vocabulary ([timor2025]_, Algorithm 4: TLI).

    Its distribution is that of the model among the tokens that both vocabularies have.  It is a
    model of the target's vocabulary, so that every rule, drafter and report takes it; and since it
    is a function of the target's tokens, every lossless rule stays lossless.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    spelling : Spelling
        What its tokens spell.
    target_spelling : Spelling
        What the target's tokens spell.
    vocabulary : int, optional
        Number of tokens of the target, if that is not the number of the spelling's: many models
        give logits for more than the tokenizer has.

    Raises
    ------
    InvalidInputError
        If the model is none or a spelling none, or no token is in both vocabularies.
    InvalidParameterError
        If the vocabulary is not an integer of at least 1.

    Notes
    -----
    The model reads words of the target's text as its own tokenizer cuts them.  Where nothing was
    read, all shared tokens are equally likely; of a row that is longer than the model takes it
    reads the end.

    References
    ----------
    .. [timor2025] Timor et al., "Accelerating LLM Inference with Lossless Speculative Decoding
       Algorithms for Heterogeneous Vocabularies", ICML 2025.

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> from otm.models import TableModel
    >>> target = TableModel({(): [0.5, 0.25, 0.25]})
    >>> draft = TableModel({(): [0.25, 0.5, 0.25]})
    >>> shared = IntersectionModel(draft, Spelling(["c", "a", "d"]), Spelling(["a", "ab", "c"]))
    >>> shared.start(1).append(np.array([[1]])).round(3)
    array([[[0.667, 0.   , 0.333]]])
    >>> speculative(target, shared, [[0]], max_tokens=3, seed=1).sequences
    ((2, 0, 0),)
    """

    def __init__(
        self,
        model: LanguageModel,
        spelling: Spelling,
        target_spelling: Spelling,
        vocabulary: int | None = None,
    ) -> None:
        check_spellings(model, spelling, target_spelling)
        self.model = model
        size = len(target_spelling.texts) if vocabulary is None else vocabulary
        self.vocabulary = as_integer(size, "vocabulary", 1)
        self.returns_probs = model.returns_probs
        sizes = self.vocabulary, model.vocabulary
        self.translation = Translation(target_spelling, spelling, sizes)
        if not self.translation.tokens.by_target:
            raise InvalidInputError(
                "the two vocabularies have no token in common; a StringDrafter needs none"
            )

    @property
    def device(self) -> Any:
        """Where the model's tensors are."""
        return self.model.device

    def start(self, rows: int) -> Session:
        """Open a session of so many rows of the target's tokens, all of them empty.

        Parameters
        ----------
        rows : int
            Number of rows, at least 1.

        Returns
        -------
        Session
            Nothing is read yet.
        """
        return _SharedSession(self.model, self.translation, self.vocabulary, rows)


class _SharedSession(Session):
    """Rows of the target's tokens, which the draft model reads as its own."""

    def __init__(
        self, model: LanguageModel, translation: Translation, vocabulary: int, rows: int
    ) -> None:
        self._model, self._session = model, model.start(rows)
        self._most = model.context_length
        self._vocabulary = vocabulary
        self._rows = [TranslatedRow(translation) for _ in range(rows)]
        self._held: list[list[int]] = [[] for _ in range(rows)]  # what the model has read
        self._shared = translation.tokens.pairs

    def append(self, tokens: PaddedTokens) -> Any:
        """Read tokens, and return what follows each: logits or probabilities [R, L, V]."""
        if not tokens.shape[1]:
            return self._among_shared(None, np.zeros((0,), np.int64))[None][[0] * len(tokens)]
        found = [self._append(column) for column in tokens.T]
        if is_tensor(found[0]):
            return require("torch").stack(found, 1)
        return np.stack(found, 1)

    def read(self, tokens: PaddedTokens) -> None:
        """Read tokens."""
        self._take(tokens)
        new = self._turned(np.zeros(len(tokens), dtype=bool))
        if new.size:
            self._session.read(new)

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Rewind, to what the model's tokens have in common."""
        pairs = list(zip(rows.tolist(), lengths.tolist(), strict=True))
        kept = [self._rows[row].cut(length) for row, length in pairs]
        held = [self._held[row] for row, _ in pairs]
        same = list(map(common_length, map(self._window, kept), held))
        self._session.keep(rows, np.array(same, dtype=np.int64))
        self._rows, self._held = kept, [own[:n] for own, n in zip(held, same, strict=True)]

    def _append(self, column: npt.NDArray[np.int64]) -> Any:
        """Read at most one token [R] of each row, and return what follows it: [R, V]."""
        self._take(column[:, None])
        new = self._turned(column >= 0)
        scores = self._session.append(new) if new.size else None
        last = (new >= 0).sum(1) - 1
        return self._among_shared(scores, np.where(column < 0, -1, last))

    def _take(self, tokens: PaddedTokens) -> None:
        """Add tokens to the rows."""
        if tokens.max(initial=-1) >= self._vocabulary:
            raise InvalidInputError(
                f"token {tokens.max()}; the target has the tokens 0 to {self._vocabulary - 1}"
            )
        for row, given in zip(self._rows, tokens.tolist(), strict=True):
            row.extended(token for token in given if token >= 0)

    def _turned(self, asked: npt.NDArray[np.bool_]) -> PaddedTokens:
        """Rewind to what stays, and return the tokens that the model is to read, −1 behind them.

        Rows [R] that are asked what follows read their last token in any case.
        """
        rows = [self._window(row) for row in self._rows]
        most = [max(len(row) - ask, 0) for row, ask in zip(rows, asked.tolist(), strict=True)]
        same = list(map(min, map(common_length, rows, self._held), most))
        if same != list(map(len, self._held)):
            self._session.keep(np.arange(len(rows)), np.array(same, dtype=np.int64))
        self._held = rows
        return padded([row[n:] for row, n in zip(rows, same, strict=True)])

    def _window(self, row: TranslatedRow) -> list[int]:
        """Return what the model reads of a row."""
        return end_of_row(row.read(), self._most)

    def _among_shared(self, scores: Any, places: npt.NDArray[np.int64]) -> Any:
        """Take scores [R, L', V'] at places [R], −1 if unknown, of shared tokens: [R, V]."""
        of_target, of_draft = self._shared
        probs = self._model.returns_probs
        empty = 0 if probs else -np.inf
        rows, columns = np.arange(len(places)), places.clip(0)
        if scores is None:  # any token, to know what scores are like
            scores, rows = self._model.start(1).append(np.zeros((1, 1), np.int64)), rows * 0
        shape = (len(places), self._vocabulary)
        if is_tensor(scores):
            rows, columns, places = (like(scores, index) for index in (rows, columns, places))
            of_target, of_draft = (like(scores, index) for index in (of_target, of_draft))
            found = scores.new_full(shape, empty)
        else:
            found = np.full(shape, empty, dtype=scores.dtype)
        chosen = scores[rows, columns][:, of_draft]
        # where nothing is known of what follows, all are equally likely; NaN stays what it is
        unknown = (places < 0) | (chosen <= empty).all(-1)
        chosen[unknown] = Fraction(1) if is_exact(chosen) else 1
        found[:, of_target] = chosen / chosen.sum(-1)[:, None] if probs else chosen
        return found
