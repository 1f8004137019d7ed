"""Drafts from one call of a model: their laws do not depend on the drafts before them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from otm._core.numbers import as_positive
from otm._core.sparse import SparseProbs
from otm._core.text import shown
from otm.decoding.branching import Branching, as_branching, children_at
from otm.decoding.drafting import Drafter, DraftNode, Randomness
from otm.decoding.reading import Context
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.models.ngram import NGramModel

Heads = Callable[[Sequence[Context], int], Sequence[Sequence[SparseProbs]]]
"""From contexts and a number γ to at most γ laws for each of them: the i-th is a law of the i-th
token behind the context, whatever comes between."""


class NonAutoregressiveDrafter(Drafter):
    """Drafts of which the i-th is drawn from the i-th of several laws that are given at once.

    The laws are a function of the context alone, as of the heads of blockwise parallel decoding
    ([stern2018]_): "instead of the autoregressive loop we'd just call the non-autoregressive model
    once" ([leviathan2023]_, section 3.6).  The target's law depends on the drafts as ever.

    Parameters
    ----------
    heads : callable
        From the contexts of a batch and the largest number γ of laws that are wanted to the laws of
        each; fewer of them make shorter drafts.
    vocabulary : int, optional
        Number of tokens, if it is known.
    branching : int or tuple of int, optional
        As of a `ModelDrafter`: a number of chains, or the numbers of children at the levels of a
        prefix tree.

    Raises
    ------
    InvalidParameterError
        If the heads are no function, the vocabulary is not an integer of at least 1, or a prefix
        tree has no level.
    InvalidDraftCountError, ProblemTooLargeError
        If the branching is none, or has too many paths, as of a `ModelDrafter`.

    Notes
    -----
    Drafts are drawn from the laws.  The heads of [stern2018]_ give their likeliest tokens, and so
    do laws that `SamplingParameters` made at temperature 0.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [stern2018] Stern, Shazeer and Uszkoreit, "Blockwise Parallel Decoding for Deep
       Autoregressive Models", NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> one, two = SparseProbs([1], [1]), SparseProbs([2, 3], [0.5, 0.5])
    >>> drafter = NonAutoregressiveDrafter(lambda contexts, gamma: [[one, two]], branching=2)
    >>> [root] = drafter.draft([(0,)], [2], [0], [lambda m: np.linspace(0.4, 0.6, m)])
    >>> root.leaf_paths()
    [(1, 2)]
    """

    def __init__(
        self, heads: Heads, vocabulary: int | None = None, branching: Branching = 1
    ) -> None:
        self.vocabulary = None if vocabulary is None else as_positive(vocabulary, "vocabulary")
        self.branching = as_branching(branching)
        if not callable(heads):
            raise InvalidParameterError(
                f"heads = {shown(heads)}; give a function from contexts and a number to laws"
            )
        self._heads = heads
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent in the heads so far."""
        return self._seconds

    def draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        """Draft for every sequence of a batch, from one call of the heads.

        Raises
        ------
        InvalidDraftsError
            If the heads do not give sequences of laws, one for each context.
        """
        roots = [DraftNode() for _ in contexts]
        drafting = [b for b, depth in enumerate(depths) if depth]
        if not drafting:
            return roots
        begun = time.perf_counter()
        laws = self._heads([contexts[b] for b in drafting], max(depths))
        self._seconds += time.perf_counter() - begun
        _check_laws(laws, len(drafting))
        for b, heads in zip(drafting, laws, strict=True):
            level = [roots[b]]
            for depth, law in enumerate(heads[: depths[b]]):
                for node in level:
                    node.draw_children(law, children_at(self.branching, depth), uniforms[b])
                level = [child for node in level for child in node.children]
        return roots


def _check_laws(laws: Any, count: int) -> None:
    """Refuse heads that return anything but sequences of laws, one for each context."""
    if not isinstance(laws, Sequence) or not all(isinstance(given, Sequence) for given in laws):
        raise InvalidDraftsError(
            f"the heads gave {shown(laws)}; they must return a list for each context, with a "
            "SparseProbs for each of the tokens behind it"
        )
    if len(laws) != count:
        raise InvalidDraftsError(
            f"the heads gave laws for {len(laws)} contexts and were asked for {count}; they must "
            "return one sequence of laws for each context"
        )
    for law in (law for given in laws for law in given):
        if not isinstance(law, SparseProbs):
            raise InvalidDraftsError(
                f"the heads gave {shown(law)} as a law; give a SparseProbs, such as "
                "SparseProbs.from_dense(probabilities)"
            )


def skip_gram_heads(tokens: npt.ArrayLike, order: int, vocabulary: int, gamma: int) -> Heads:
    """Heads from counts of a text: the i-th token behind the last n − 1, whatever comes between.

    Parameters
    ----------
    tokens : int array-like [N]
        The text.
    order : int
        n, at least 1, as of an `NGramModel`.
    vocabulary : int
        Number of tokens.
    gamma : int
        Number of heads, at least 1.

    Returns
    -------
    callable
        Heads for a `NonAutoregressiveDrafter`, each an n-gram model with Witten–Bell smoothing.

    Raises
    ------
    InvalidInputError, InvalidParameterError
        As for `NGramModel.witten_bell`, and if γ is no such number.

    Examples
    --------
    In this text 2 comes two places behind 0:

    >>> heads = skip_gram_heads([0, 1, 2, 0, 3, 2, 0, 4, 2], order=2, vocabulary=5, gamma=2)
    >>> [[_, second]] = heads([(0,)], 2)
    >>> round(second.of(2), 2)
    0.82
    """
    models = [
        NGramModel.witten_bell(tokens, order, vocabulary, distance=i)
        for i in range(1, as_positive(gamma, "gamma") + 1)
    ]

    def heads(contexts: Sequence[Context], most: int) -> list[list[SparseProbs]]:
        return [[SparseProbs.from_dense(m.probs(c)) for m in models[:most]] for c in contexts]

    return heads
