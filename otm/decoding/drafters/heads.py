"""Drafts from heads: distributions of several tokens ahead, all made at once from the context.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
.. [stern2018] Stern, Shazeer and Uszkoreit, "Blockwise Parallel Decoding for Deep Autoregressive
   Models", NeurIPS 2018.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm._core.probs.sparse import SparseProbs
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Branching, Drafter, as_branching, children_at, grow_levels
from otm.decoding.drafters.trees import BestFirst, as_nodes
from otm.decoding.reading import Context, ProbsAfter
from otm.decoding.sampling_parameters import SamplingParameters, as_sampling
from otm.errors import InvalidDraftsError, InvalidParameterError
from otm.models.ngram import NGramModel

Heads = Callable[[Sequence[Context], int], Sequence[Sequence[SparseProbs]]]
"""From contexts and a number γ to at most γ distributions for each of them: the i-th is that of the
i-th token after the context, whatever comes between."""


class NonAutoregressiveDrafter(Drafter):
    """Drafts of which the i-th is drawn from the i-th of several distributions, all made at once.

    These are a function of the context alone, as those of the heads of blockwise parallel decoding
    ([stern2018]_): "instead of the autoregressive loop we'd just call the non-autoregressive model
    once" ([leviathan2023]_, section 3.6).  The target's depend on the drafts as ever.

    Parameters
    ----------
    heads : callable
        From the contexts of a batch and the largest γ to at most γ distributions for each; fewer of
        them make shorter drafts.
    vocabulary : int, optional
        Number of tokens, if it is known.
    branching : int or tuple of int, optional
        As of a `ModelDrafter`: a number of chains, or the numbers of children at the levels of a
        prefix tree.
    sampling : SamplingParameters, optional
        How to draw from the distributions: as they are if left out; sharpened by a temperature
        below 1; the likeliest tokens, as in [stern2018]_, at a temperature of 0.
    nodes : int, optional
        Draft no chains but the likeliest paths, so many nodes in one tree, for target-only
        verification (DDTree, [ringel2026]_), as a `BestFirstDrafter` does.

    Raises
    ------
    InvalidParameterError
        If the heads are no function, a number is not an integer of at least 1, a prefix tree has no
        level, the sampling parameters are none, or both `branching` and `nodes` are given.
    InvalidDraftCountError, ProblemTooLargeError
        If the branching is none, or the tree too large, as of a `ModelDrafter`.

    Notes
    -----
    What the heads should say to have most drafts accepted is not what is likeliest at each place:
    see `otm.gain.factorised_draft`.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.
    .. [ringel2026] Ringel and Romano, "Accelerating Speculative Decoding with Block Diffusion Draft
       Trees", arXiv 2604.12989.
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

    seconds: float = 0.0  # spent in the heads so far

    def __init__(
        self,
        heads: Heads,
        vocabulary: int | None = None,
        branching: Branching = 1,
        sampling: SamplingParameters | None = None,
        nodes: int | None = None,
    ) -> None:
        self.sampling = as_sampling(sampling)
        self.nodes = None if nodes is None else as_nodes(nodes)
        self.vocabulary = None if vocabulary is None else as_positive(vocabulary, "vocabulary")
        self.branching = as_branching(branching)
        if nodes is not None and self.branching != 1:
            raise InvalidParameterError(
                f"nodes = {nodes} and branching = {branching}; give the budget of a tree, or chains"
            )
        if not callable(heads):
            raise InvalidParameterError(
                f"heads = {shown(heads)}; give a function from contexts and a number to SparseProbs"
            )
        self._heads = heads

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
            If the heads do not return sequences of distributions, one for each context.
        """
        drafting = [b for b, depth in enumerate(depths) if depth]
        if not drafting:
            return [DraftNode() for _ in contexts]
        begun = time.perf_counter()
        given = self._heads([contexts[b] for b in drafting], max(depths))
        self.seconds += time.perf_counter() - begun
        _check_heads(given, len(drafting))
        rows: list[list[SparseProbs]] = [[] for _ in contexts]
        for b, row in zip(drafting, given, strict=True):
            rows[b] = [self._adjusted(probs) for probs in row[: depths[b]]]

        def draw(b: int, nodes: list[DraftNode], probs: ProbsAfter) -> list[DraftNode]:
            for node in nodes:
                count = children_at(self.branching, len(node.path))
                node.draw_children(probs(b, node.path), count, uniforms[b])
            return [child for node in nodes for child in node.children]

        best = None if self.nodes is None else BestFirst(self.nodes, None, len(contexts))
        roots = grow_levels(
            [len(row) for row in rows],
            lambda paths: lambda b, path: rows[b][len(path)],
            draw if best is None else best.expand,
        )
        if best is not None:
            best.finish()
        return roots

    def _adjusted(self, probs: SparseProbs) -> SparseProbs:
        """Apply the sampling parameters to a distribution of a head."""
        if self.sampling == SamplingParameters():
            return probs
        logs = np.log(np.asarray(probs.probabilities, dtype=np.float64))
        kept = self.sampling.sparse_probs(logs)
        return SparseProbs.from_support(probs.tokens[kept.tokens], kept.probabilities)


def _check_heads(rows: Any, count: int) -> None:
    """Refuse heads that return anything but sequences of distributions, one for each context."""
    if not isinstance(rows, Sequence) or not all(isinstance(row, Sequence) for row in rows):
        raise InvalidDraftsError(
            f"the heads gave {shown(rows)}; they must return a list for each context, with a "
            "SparseProbs for each of the tokens after it"
        )
    if len(rows) != count:
        raise InvalidDraftsError(
            f"the heads gave distributions for {len(rows)} contexts instead of {count}; they must "
            "return one sequence for each context"
        )
    for probs in (probs for row in rows for probs in row):
        if not isinstance(probs, SparseProbs):
            raise InvalidDraftsError(
                f"the heads gave {shown(probs)} as a distribution; give a SparseProbs, such as "
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
