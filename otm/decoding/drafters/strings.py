"""Drafts of a model with another vocabulary, converted to the target's tokens through text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from otm._core.display.text import shown
from otm._core.numbers import as_integer
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Drafter
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.reading import Context, Path
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError
from otm.models.base import LanguageModel
from otm.models.vocabularies.spelling import Spelling, check_spellings
from otm.models.vocabularies.tokenizer_spelling import UNREADABLE
from otm.models.vocabularies.translation import TranslatedRow, Translation, end_of_row


class StringDrafter(Drafter):
    """Draft in the model's tokens, and re-encode the text for the target (SLEM, [timor2025]_).

    The two vocabularies need not share tokens.  The probabilities of the target's tokens are
    unknown, so drafts are treated as deterministic.  Two verifiers can verify such drafts:
    `verify_target_only` (rule "target-only" of `spectr`), which accepts drafts until the target
    draws another token, and `decode_coupled`.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    spelling : Spelling
        Texts of the draft model's tokens.
    target_spelling : Spelling
        Texts of the target's tokens.
    sampling : SamplingParameters, optional
        How to sample from the draft model.  With temperature 0, the model drafts its most probable
        tokens, which the target draws most often.
    vocabulary : int, optional
        Number of tokens of the target; by default the number of tokens of `target_spelling`.

    Raises
    ------
    InvalidInputError
        If `model` is not a language model, or a spelling is not a Spelling.
    InvalidParameterError
        If the vocabulary is not an integer of at least 1.

    Notes
    -----
    A step drafts γ tokens of the draft model, and keeps at most γ tokens of the target.  If a
    prompt exceeds the model's context length, the drafter drops the beginning of the prompt.

    References
    ----------
    .. [timor2025] Timor et al., "Accelerating LLM Inference with Lossless Speculative Decoding
       Algorithms for Heterogeneous Vocabularies", ICML 2025, Algorithm 2.

    Examples
    --------
    >>> from otm.decoding import spectr
    >>> from otm.models import TableModel
    >>> target = TableModel({(): [0, 0, 1]})  # writes "ab" forever
    >>> draft = TableModel({(): [1, 0], (0,): [0, 1]})  # writes "a" and then "b"
    >>> drafter = StringDrafter(draft, Spelling(["a", "b"]), Spelling(["a", "b", "ab"]))
    >>> made = spectr(target, drafter, [[2]], rule="target-only", gamma=4, max_tokens=6, seed=0)
    >>> made.steps[0].drafts, made.steps[0].output
    (((2, 2),), (2, 2, 2))
    """

    def __init__(
        self,
        model: LanguageModel,
        spelling: Spelling,
        target_spelling: Spelling,
        sampling: SamplingParameters | None = None,
        vocabulary: int | None = None,
    ) -> None:
        check_spellings(model, spelling, target_spelling)
        self.model = model
        self._spelling, self._target = spelling, target_spelling
        size = len(target_spelling.texts) if vocabulary is None else vocabulary
        self._size = as_integer(size, "vocabulary", 1)
        self._translation = Translation(target_spelling, spelling, (self._size, model.vocabulary))
        self._chains = ModelDrafter(model, 1, sampling)
        self._rows: list[TranslatedRow] = []

    @property
    def seconds(self) -> float:
        """Seconds spent in the model so far."""
        return self._chains.seconds

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a chain for every sequence of a batch."""
        before: Sequence[TranslatedRow | None] = [None] * len(contexts)
        # In a first call there are no rows yet.
        if parents is not None and self._rows:
            before = [self._rows[parent] for parent in parents]
        self._rows = list(map(self._row, contexts, before))
        limit = self.model.context_length
        most = [None if limit is None else max(limit - depth, 1) for depth in depths]
        read = [end_of_row(row.read(), n) for row, n in zip(self._rows, most, strict=True)]
        known = [depth if row else 0 for row, depth in zip(read, depths, strict=True)]
        rows = [tuple(row) or (0,) for row in read]
        chains = self._chains.draft(rows, known, parents, uniforms)
        return [
            _chain(self.cut(chain.leaf_paths()[0], depth))
            for chain, depth in zip(chains, depths, strict=True)
        ]

    def cut(self, drafts: Path, most: int) -> Path:
        """Re-encode the text of draft tokens as tokens of the target.

        Parameters
        ----------
        drafts : tuple of int
            Tokens of the draft model.  The text ends at the first token without text or with only
            part of a character, unless the target has the same token, such as an end token.
        most : int
            Maximum number of tokens to return.

        Returns
        -------
        tuple of int
            Tokens of the target, at most `most`.

        Raises
        ------
        InvalidInputError
            If a token or `most` is below 0.
        """
        if min((most, *drafts)) < 0:
            raise InvalidInputError(
                f"drafts = {shown(drafts)}, most = {most}; tokens and numbers must be at least 0"
            )
        tokens, text = list[int](), ""
        for token in drafts:
            token_text = self._spelling.texts[token] if token < len(self._spelling.texts) else ""
            if token_text and UNREADABLE not in token_text:
                text += token_text
                continue
            tokens += self._target.encode(text)
            text = ""
            shared = self._translation.tokens.by_draft
            if token not in shared:
                break
            tokens.append(shared[token])
        tokens += self._target.encode(text)
        fitting = itertools.takewhile(lambda token: token < self._size, tokens)
        return tuple(itertools.islice(fitting, most))

    def _row(self, context: Context, before: TranslatedRow | None) -> TranslatedRow:
        """Return the translation of a context; it usually extends the translation `before`."""
        known = 0 if before is None else len(before.tokens)
        if before is not None and tuple(before.tokens) == context[:known]:
            return before.cut(known).extended(context[known:])
        return TranslatedRow(self._translation).extended(context)


def _chain(tokens: Path) -> DraftNode:
    """Return a chain of deterministic drafts."""
    root = node = DraftNode()
    for token in tokens:
        node.draft_kind, node.children = "Top", [DraftNode((*node.path, token))]
        node = node.children[0]
    return root
