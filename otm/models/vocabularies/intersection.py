"""A draft model with another vocabulary, restricted to the tokens shared with the target."""

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
    """A draft model for a target with another vocabulary ([timor2025]_, Algorithm 4: TLI).

    Its distribution is the draft model's distribution, conditioned on the tokens that are in both
    vocabularies.  It uses the target's vocabulary, so every rule, drafter and report accepts it.
    Its distribution depends only on the target's tokens, so every lossless rule remains lossless.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    spelling : Spelling
        Spelling of the draft model's tokens.
    target_spelling : Spelling
        Spelling of the target's tokens.
    vocabulary : int, optional
        Number of tokens of the target, by default the number of texts in `target_spelling`.  Many
        models have more logits than their tokenizer has tokens.

    Raises
    ------
    InvalidInputError
        If `model` is not a LanguageModel, a spelling is not a Spelling, or the vocabularies share
        no token.
    InvalidParameterError
        If the vocabulary is not an integer of at least 1.

    Notes
    -----
    The draft model's tokenizer splits each word of the target's text, and the draft model reads
    these tokens.  Before the first token, all shared tokens have equal probability.  If a row is
    too long for the draft model, the draft model reads only the end of the row.

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
                "the two vocabularies share no token; a StringDrafter needs no shared tokens"
            )

    @property
    def device(self) -> Any:
        """Device of the draft model's tensors."""
        return self.model.device

    def start(self, rows: int) -> Session:
        """Open a session of empty rows, which will hold tokens of the target.

        Parameters
        ----------
        rows : int
            Number of rows, at least 1.

        Returns
        -------
        Session
            A session whose rows have no tokens.
        """
        return _SharedSession(self.model, self.translation, self.vocabulary, rows)


class _SharedSession(Session):
    """A session on rows of the target's tokens, which are translated for the draft model."""

    def __init__(
        self, model: LanguageModel, translation: Translation, vocabulary: int, rows: int
    ) -> None:
        self._model, self._session = model, model.start(rows)
        self._most = model.context_length
        self._vocabulary = vocabulary
        self._rows = [TranslatedRow(translation) for _ in range(rows)]
        # Draft tokens that the draft model's session holds, for each row.
        self._held: list[list[int]] = [[] for _ in range(rows)]
        self._shared = translation.tokens.pairs

    def append(self, tokens: PaddedTokens) -> Any:
        """Append tokens, and return logits or probabilities [R, L, V] of the next tokens."""
        if not tokens.shape[1]:
            return self._shared_scores(None, np.zeros((0,), np.int64))[None][[0] * len(tokens)]
        scores = [self._append(column) for column in tokens.T]
        if is_tensor(scores[0]):
            return require("torch").stack(scores, 1)
        return np.stack(scores, 1)

    def read(self, tokens: PaddedTokens) -> None:
        """Append tokens without returning scores."""
        self._extend_rows(tokens)
        new = self._new_tokens(np.zeros(len(tokens), dtype=bool))
        if new.size:
            self._session.read(new)

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Replace the rows by prefixes; the draft model keeps the common prefix of its tokens."""
        pairs = list(zip(rows.tolist(), lengths.tolist(), strict=True))
        kept = [self._rows[row].cut(length) for row, length in pairs]
        held = [self._held[row] for row, _ in pairs]
        same = list(map(common_length, map(self._window, kept), held))
        self._session.keep(rows, np.array(same, dtype=np.int64))
        self._rows, self._held = kept, [own[:n] for own, n in zip(held, same, strict=True)]

    def _append(self, column: npt.NDArray[np.int64]) -> Any:
        """Append at most one token [R] to each row, and return scores [R, V] of the next token."""
        self._extend_rows(column[:, None])
        new = self._new_tokens(column >= 0)
        scores = self._session.append(new) if new.size else None
        last = (new >= 0).sum(1) - 1
        return self._shared_scores(scores, np.where(column < 0, -1, last))

    def _extend_rows(self, tokens: PaddedTokens) -> None:
        """Append tokens to the rows of target tokens."""
        if tokens.max(initial=-1) >= self._vocabulary:
            raise InvalidInputError(
                f"token {tokens.max()} is not in the vocabulary; the target has the tokens 0 to "
                f"{self._vocabulary - 1}"
            )
        for row, new in zip(self._rows, tokens.tolist(), strict=True):
            row.extended(token for token in new if token >= 0)

    def _new_tokens(self, asked: npt.NDArray[np.bool_]) -> PaddedTokens:
        """Rewind the draft model, and return its new tokens, padded on the right with −1.

        Rows where `asked` [R] is true need scores, so the model reads their last token in any case.
        """
        rows = [self._window(row) for row in self._rows]
        most = [max(len(row) - ask, 0) for row, ask in zip(rows, asked.tolist(), strict=True)]
        same = list(map(min, map(common_length, rows, self._held), most))
        if same != list(map(len, self._held)):
            self._session.keep(np.arange(len(rows)), np.array(same, dtype=np.int64))
        self._held = rows
        return padded([row[n:] for row, n in zip(rows, same, strict=True)])

    def _window(self, row: TranslatedRow) -> list[int]:
        """Return the draft model's tokens for a row, at most its context length."""
        return end_of_row(row.read(), self._most)

    def _shared_scores(self, scores: Any, places: npt.NDArray[np.int64]) -> Any:
        """Move the scores of shared tokens to the target's vocabulary: [R, L', V'] → [R, V].

        `places` [R] is the position of each row's scores, or −1 for a row without scores.
        """
        of_target, of_draft = self._shared
        probs = self._model.returns_probs
        empty = 0 if probs else -np.inf
        rows, columns = np.arange(len(places)), places.clip(0)
        # Score an arbitrary token, to get the type and device of scores.
        if scores is None:
            scores, rows = self._model.start(1).append(np.zeros((1, 1), np.int64)), rows * 0
        shape = (len(places), self._vocabulary)
        if is_tensor(scores):
            rows, columns, places = (like(scores, index) for index in (rows, columns, places))
            of_target, of_draft = (like(scores, index) for index in (of_target, of_draft))
            result = scores.new_full(shape, empty)
        else:
            result = np.full(shape, empty, dtype=scores.dtype)
        chosen = scores[rows, columns][:, of_draft]
        # Without scores, or if all are zero, shared tokens have equal probability; NaN stays NaN.
        unknown = (places < 0) | (chosen <= empty).all(-1)
        chosen[unknown] = Fraction(1) if is_exact(chosen) else 1
        result[:, of_target] = chosen / chosen.sum(-1)[:, None] if probs else chosen
        return result
