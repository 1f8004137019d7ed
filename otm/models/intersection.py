"""A draft model with another vocabulary, by the tokens that it shares with the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.numbers import as_integer
from otm._core.tensors import is_tensor, like
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel, Rows, Session
from otm.models.spelling import Spelling, Translation


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
        If no token is in both vocabularies.
    InvalidParameterError
        If the vocabulary is not an integer of at least 1.

    Notes
    -----
    A token that only the target has is read as the tokens that spell its text, which the model's
    tokenizer finds.  Where nothing was read, or the row would be longer than the model takes, all
    shared tokens are equally likely.

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
        self.model = model
        size = len(target_spelling.texts) if vocabulary is None else vocabulary
        self.vocabulary = as_integer(size, "vocabulary", 1)
        self.returns_probs = model.returns_probs
        sizes = self.vocabulary, model.vocabulary
        self.translation = Translation(target_spelling, spelling, sizes)
        if not self.translation.shared:
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
        self._probs = model.returns_probs
        self._vocabulary = vocabulary
        self._translation = translation
        # how many tokens of its own the model has read after each token of a row
        self._ends: list[list[int]] = [[0] for _ in range(rows)]
        pairs = sorted(translation.shared.items())
        self._shared = np.array(pairs, dtype=np.int64).T  # [2, shared]: of the target, of the draft

    def append(self, tokens: Rows) -> Any:
        """Read tokens, and return what follows each: logits or probabilities [R, L, V]."""
        begun = [ends[-1] for ends in self._ends]
        held = [len(ends) for ends in self._ends]
        scores = self._read(tokens, self._session.append)
        places = np.full(tokens.shape, -1, dtype=np.int64)
        for r, ends in enumerate(self._ends):
            new = np.array(ends[held[r] :], dtype=np.int64)
            # nothing was read for a token: what follows it is not known
            places[r, : new.size] = np.where(np.diff([begun[r], *new]) > 0, new - begun[r] - 1, -1)
        return self._among_shared(scores, places)

    def read(self, tokens: Rows) -> None:
        """Read tokens."""
        self._read(tokens, self._session.read)

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Rewind, by as many of the model's own tokens."""
        ends = [
            self._ends[r][: n + 1] for r, n in zip(rows.tolist(), lengths.tolist(), strict=True)
        ]
        self._session.keep(rows, np.array([kept[-1] for kept in ends], dtype=np.int64))
        self._ends = ends

    def _read(self, tokens: Rows, read: Any) -> Any:
        """Let the model read the pieces of tokens [R, L]; None if there are none."""
        parts: list[list[int]] = []
        for row, ends in zip(tokens.tolist(), self._ends, strict=True):
            part: list[int] = []
            for token in row:
                if token < 0:
                    break
                pieces: Sequence[int] = self._translation.pieces(token)
                if self._most is not None and ends[-1] + len(pieces) > self._most:
                    pieces = ()
                part += pieces
                ends.append(ends[-1] + len(pieces))
            parts.append(part)
        longest = max(map(len, parts))
        if not longest:
            return None
        return read(np.array([part + [-1] * (longest - len(part)) for part in parts], np.int64))

    def _among_shared(self, scores: Any, places: npt.NDArray[np.int64]) -> Any:
        """Take scores [R, L', V'] at places [R, L], −1 if unknown, of shared tokens: [R, L, V]."""
        of_target, of_draft = self._shared
        empty = 0 if self._probs else -np.inf
        rows, columns = np.arange(len(places))[:, None], places.clip(0)
        if scores is None:  # any token, to know what scores are like
            scores, rows = self._model.start(1).append(np.zeros((1, 1), np.int64)), rows * 0
        shape = (*places.shape, self._vocabulary)
        if is_tensor(scores):
            rows, columns, places = (like(scores, index) for index in (rows, columns, places))
            of_target, of_draft = (like(scores, index) for index in (of_target, of_draft))
            found = scores.new_full(shape, empty)
        else:
            found = np.full(shape, empty, dtype=scores.dtype)
        chosen = scores[rows, columns][..., of_draft]
        chosen[(places < 0) | ~(chosen > empty).any(-1)] = 1  # nothing is known of what follows
        found[..., of_target] = chosen / chosen.sum(-1)[..., None] if self._probs else chosen
        return found
