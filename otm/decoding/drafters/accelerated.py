"""Nested speculative decoding: a smaller model drafts for the draft model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from otm.decoding.checks import as_paths, check_draft, check_vocabularies
from otm.decoding.draft_tree import DraftNode, Randomness, extend
from otm.decoding.drafters.base import Drafter
from otm.decoding.reading import Context, Reader
from otm.decoding.rounds import verify_batch
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.verifiers.base import Verifier
from otm.decoding.verifiers.chain import verify_chain
from otm.models.base import LanguageModel


class AcceleratedDrafter(Drafter):
    """One chain that a draft model samples, with fewer calls of the model than drafts in the chain.

    This is the "hierarchical version of the algorithm, where the approximation model is itself
    accelerated by an even faster model" ([leviathan2023]_, section 6).  The draft model decodes the
    chain, and an inner drafter drafts for the draft model.  For every inner drafter, the chain has
    the draft model's distribution, which its nodes store.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    inner_drafter : Drafter
        Drafter for the draft model, perhaps another `AcceleratedDrafter`.
    verifier : Verifier, optional
        Lossless verifier of the inner drafts.
    sampling : SamplingParameters, optional
        How to sample from the draft model.

    Raises
    ------
    InvalidInputError
        If the inner drafter is not a drafter, or has another vocabulary.

    Notes
    -----
    If d drafts are missing, the inner drafter drafts at most d − 1, because the draft model adds
    one token.  The chain has the draft model's distribution, by induction on the number d of
    missing drafts: the claim holds if the model continues the verifier's output
    (`otm.decoding.verifiers.base`), and this continuation has a smaller d.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    A draft model that counts, and a copying drafter that predicts it:

    >>> import numpy as np
    >>> from otm.decoding.drafters.prompt_lookup import PromptLookup
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [1, 0, 0], (0,): [0, 1, 0], (1,): [0, 0, 1]})
    >>> drafter = AcceleratedDrafter(model, PromptLookup())
    >>> [root] = drafter.draft([(0, 1, 2, 0)], [5], [0], [np.random.random])
    >>> root.leaf_paths(), drafter.model_calls  # one call for the context, one for the drafts
    ([(1, 2, 0, 1, 2)], 2)
    """

    def __init__(
        self,
        model: LanguageModel,
        inner_drafter: Drafter,
        verifier: Verifier = verify_chain,
        sampling: SamplingParameters | None = None,
    ) -> None:
        check_draft(inner_drafter, Drafter)
        check_vocabularies(inner_drafter, "inner drafter", model, "draft model")
        self.vocabulary = model.vocabulary
        lengths = [n for n in (model.context_length, inner_drafter.context_length) if n is not None]
        self.context_length = min(lengths, default=None)
        self._reader = Reader(model, sampling)
        self._inner = inner_drafter
        self._verifier = verifier

    @property
    def seconds(self) -> float:
        """Seconds spent in the draft model and in the models of the inner drafter so far."""
        return self._reader.seconds + self._inner.seconds

    @property
    def model_calls(self) -> int:
        """Number of forward passes of the draft model so far."""
        return self._reader.calls

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft a chain of the full depth for every sequence of a batch.

        Raises
        ------
        InvalidDraftsError
            If the inner drafter returns invalid trees, or drafts that it cannot have drawn.
        """
        roots = [DraftNode() for _ in contexts]
        ends = list(roots)
        # The loop runs at least once, so that the reader follows the batch.
        while True:
            missing = [d - len(end.path) for d, end in zip(depths, ends, strict=True)]
            known = [context + end.path for context, end in zip(contexts, ends, strict=True)]
            most = [max(m - 1, 0) for m in missing]
            trees = self._inner.draft(known, most, parents, uniforms)
            checked = as_paths(trees, most, self._reader.model.vocabulary)
            paths = [tree if m else [] for tree, m in zip(checked, missing, strict=True)]
            read = self._reader.read(known, paths, parents, whole=True)
            parents = range(len(contexts))
            growing = [b for b in parents if missing[b]]
            # Verifier and chain use the same distributions, so each is computed once.
            probs = [cache(partial(read, b)) for b in growing]
            outputs = verify_batch(
                self._verifier, [trees[b] for b in growing], probs, [uniforms[b] for b in growing]
            )
            for b, after, output in zip(growing, probs, outputs, strict=True):
                for i, token in enumerate(output):
                    ends[b] = extend(ends[b], after(output[:i]), token)
            if all(len(end.path) == d for d, end in zip(depths, ends, strict=True)):
                return roots
