"""A draft model that a smaller one drafts for: speculative decoding inside speculative decoding."""

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
    """One chain of drafts of a model, in fewer calls than there are drafts.

    The "hierarchical version of the algorithm, where the approximation model is itself accelerated
    by an even faster model" ([leviathan2023]_, section 6): the chain is decoded from the draft
    model, and an inner drafter drafts for that.  Whatever the inner drafter does, the chain has the
    draft model's distribution, and that is what its nodes carry.

    Parameters
    ----------
    model : LanguageModel
        The draft model.
    inner_drafter : Drafter
        What drafts for it, perhaps another `AcceleratedDrafter`.
    verifier : Verifier, optional
        What verifies the inner drafts; one that is lossless.
    sampling : SamplingParameters, optional
        How to sample from the draft model.

    Raises
    ------
    InvalidInputError
        If the inner drafter is none, or for another vocabulary.

    Notes
    -----
    If d drafts are missing, the inner drafter drafts at most d − 1, since the draft model
    adds a token.  By induction on d the chain has the draft model's distribution: what the verifier
    returns has it if the model goes on from there (`otm.decoding.verifiers.base`), and going on is
    the same task with smaller d.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    A draft model that counts, and a copying drafter that foresees it:

    >>> import numpy as np
    >>> from otm.decoding.drafters.prompt_lookup import PromptLookup
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [1, 0, 0], (0,): [0, 1, 0], (1,): [0, 0, 1]})
    >>> drafter = AcceleratedDrafter(model, PromptLookup())
    >>> [root] = drafter.draft([(0, 1, 2, 0)], [5], [0], [np.random.random])
    >>> root.leaf_paths(), drafter.model_calls  # the second call, after the context was read
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
        """Seconds spent in the draft model and in those of the inner drafter so far."""
        return self._reader.seconds + self._inner.seconds

    @property
    def model_calls(self) -> int:
        """Number of the draft model's forward passes so far."""
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
            If the inner drafter returns no such trees, or drafts that it cannot have drawn.
        """
        roots = [DraftNode() for _ in contexts]
        ends = list(roots)
        while True:  # once in any case, to follow the batch
            missing = [d - len(end.path) for d, end in zip(depths, ends, strict=True)]
            known = [context + end.path for context, end in zip(contexts, ends, strict=True)]
            most = [max(m - 1, 0) for m in missing]
            trees = self._inner.draft(known, most, parents, uniforms)
            checked = as_paths(trees, most, self._reader.model.vocabulary)
            paths = [tree if m else [] for tree, m in zip(checked, missing, strict=True)]
            read = self._reader.read(known, paths, parents, whole=True)
            parents = range(len(contexts))
            growing = [b for b in parents if missing[b]]
            # cached: the verifier uses some of the distributions as well
            probs = [cache(partial(read, b)) for b in growing]
            outputs = verify_batch(
                self._verifier, [trees[b] for b in growing], probs, [uniforms[b] for b in growing]
            )
            for b, after, output in zip(growing, probs, outputs, strict=True):
                for i, token in enumerate(output):
                    ends[b] = extend(ends[b], after(output[:i]), token)
            if all(len(end.path) == d for d, end in zip(depths, ends, strict=True)):
                return roots
