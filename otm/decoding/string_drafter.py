"""Drafts of a model with another vocabulary, handed over as text."""

from __future__ import annotations

from collections.abc import Sequence

from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafting import Drafter, ModelDrafter
from otm.decoding.reading import Context, Path
from otm.decoding.sampling_parameters import SamplingParameters
from otm.models.base import LanguageModel
from otm.models.spelling import Spelling, Translation


class StringDrafter(Drafter):
    """Let a model draft in its own tokens, and cut the text into the target's ([timor2025]_: SLEM).

    What is drafted needs no token in common with the target.  The probabilities of the target's
    tokens are not known, so that they count as certain: `verify_target_only` accepts them as long
    as the target draws the same (the rule "target-only" of `spectr`), and so does `coupled`.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    spelling : Spelling
        What its tokens spell.
    target_spelling : Spelling
        What the target's tokens spell.
    sampling : SamplingParameters, optional
        How to sample from the model; with a temperature of 0 it drafts what it finds likeliest,
        which the target draws most often.

    Notes
    -----
    A step drafts γ tokens of the model, and keeps at most γ of the target's.  A prompt that is
    longer than the model takes loses its beginning.

    References
    ----------
    .. [timor2025] Timor et al., "Accelerating LLM Inference with Lossless Speculative Decoding
       Algorithms for Heterogeneous Vocabularies", ICML 2025, Algorithm 2.

    Examples
    --------
    >>> from otm.decoding import spectr
    >>> from otm.models import TableModel
    >>> target = TableModel({(): [0, 0, 1]})  # "ab" again and again
    >>> draft = TableModel({(): [1, 0], (0,): [0, 1]})  # "a", and "b" after it
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
    ) -> None:
        self.model = model
        self._spelling, self._target = spelling, target_spelling
        sizes = len(target_spelling.texts), model.vocabulary
        self._translation = Translation(target_spelling, spelling, sizes)
        self._back = {own: token for token, own in self._translation.shared.items()}
        self._chains = ModelDrafter(model, 1, sampling)

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
        read = [self._translation.row(context) for context in contexts]
        if self.model.context_length is not None:
            most = [max(self.model.context_length - depth, 1) for depth in depths]
            read = [row[-n:] for row, n in zip(read, most, strict=True)]
        known = [depth if row else 0 for row, depth in zip(read, depths, strict=True)]
        rows = [tuple(row) or (0,) for row in read]
        chains = self._chains.draft(rows, known, parents, uniforms)
        return [
            _chain(self.cut(chain.leaf_paths()[0], depth))
            for chain, depth in zip(chains, depths, strict=True)
        ]

    def cut(self, drafts: Path, most: int) -> Path:
        """Cut the text of tokens of the model into tokens of the target.

        Parameters
        ----------
        drafts : tuple of int
            Tokens of the model; the text ends with the first that spells none, but for one that the
            target has too, such as an end token.
        most : int
            Number of tokens that are kept.

        Returns
        -------
        tuple of int
            Tokens of the target, at most so many.
        """
        tokens, text = list[int](), ""
        for token in drafts:
            if token < len(self._spelling.texts) and self._spelling.texts[token]:
                text += self._spelling.texts[token]
                continue
            tokens += self._target.encode(text)
            text = ""
            if token not in self._back:
                return tuple(tokens[:most])
            tokens.append(self._back[token])  # which spells nothing, as an end token
        return (*tokens, *self._target.encode(text))[:most]


def _chain(tokens: Path) -> DraftNode:
    """Return a chain of certain drafts."""
    root = node = DraftNode()
    for token in tokens:
        node.law, node.children = "Top", [DraftNode((*node.path, token))]
        node = node.children[0]
    return root
