"""Drafts from heads: distributions of the next tokens, all computed from the context.

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
"""Function from contexts and γ to at most γ distributions per context.

The i-th distribution is for the i-th token after the context, and ignores the tokens in between.
"""


class NonAutoregressiveDrafter(Drafter):
    """Drafts whose i-th token is drawn from the i-th head.

    Heads are distributions that depend only on the context, as in blockwise parallel decoding
    ([stern2018]_): "instead of the autoregressive loop we'd just call the non-autoregressive model
    once" ([leviathan2023]_, section 3.6).  The target's distributions still depend on the drafts.

    Parameters
    ----------
    heads : callable
        Function from the contexts of a batch and the largest γ to at most γ distributions per
        context.  A path has at most as many drafts as there are distributions.
    vocabulary : int, optional
        Number of tokens, if it is known.
    branching : int or tuple of int, optional
        As for `ModelDrafter`: a number of chains, or the numbers of children at the levels of a
        prefix tree.
    sampling : SamplingParameters, optional
        How to sample from the heads; by default, their distributions are unchanged.  A temperature
        below 1 sharpens the distributions; temperature 0 takes the most probable tokens, as in
        [stern2018]_.
    nodes : int, optional
        Number of nodes of a tree of the most probable paths, which is drafted instead of chains for
        target-only verification (DDTree, [ringel2026]_).  `BestFirstDrafter` also builds trees of
        the most probable paths.

    Raises
    ------
    InvalidParameterError
        If `heads` is not a function, a number is not an integer of at least 1, a prefix tree has no
        level, `sampling` is not a SamplingParameters, or both `branching` and `nodes` are set.
    InvalidDraftCountError, ProblemTooLargeError
        If the branching is invalid, or the tree is too large, as for `ModelDrafter`.

    Notes
    -----
    To maximize acceptance, a head should not simply favour the most probable token of its position:
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

    seconds: float = 0.0

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
                f"nodes = {nodes} and branching = {branching}; set `nodes` for a tree, or "
                "`branching` for chains, but not both"
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
        """Draft a tree for every sequence of a batch, with one call of the heads.

        Raises
        ------
        InvalidDraftsError
            If the heads do not return a sequence of distributions for each context.
        """
        drafting = [b for b, depth in enumerate(depths) if depth]
        if not drafting:
            return [DraftNode() for _ in contexts]
        start = time.perf_counter()
        head_probs = self._heads([contexts[b] for b in drafting], max(depths))
        self.seconds += time.perf_counter() - start
        _check_heads(head_probs, len(drafting))
        rows: list[list[SparseProbs]] = [[] for _ in contexts]
        for b, row in zip(drafting, head_probs, strict=True):
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
        """Apply the sampling parameters to the distribution of a head."""
        if self.sampling == SamplingParameters():
            return probs
        logs = np.log(np.asarray(probs.probabilities, dtype=np.float64))
        adjusted = self.sampling.sparse_probs(logs)
        return SparseProbs.from_support(probs.tokens[adjusted.tokens], adjusted.probabilities)


def _check_heads(rows: Any, count: int) -> None:
    """Raise unless the heads returned a sequence of distributions for each of `count` contexts."""
    if not isinstance(rows, Sequence) or not all(isinstance(row, Sequence) for row in rows):
        raise InvalidDraftsError(
            f"the heads returned {shown(rows)}; they must return a list for each context, with one "
            "SparseProbs for each next token"
        )
    if len(rows) != count:
        raise InvalidDraftsError(
            f"the heads returned distributions for {len(rows)} contexts instead of {count}; they "
            "must return one sequence for each context"
        )
    for probs in (probs for row in rows for probs in row):
        if not isinstance(probs, SparseProbs):
            raise InvalidDraftsError(
                f"the heads returned {shown(probs)} as a distribution; return a SparseProbs, such "
                "as SparseProbs.from_dense(probabilities)"
            )


def skip_gram_heads(tokens: npt.ArrayLike, order: int, vocabulary: int, gamma: int) -> Heads:
    """Return heads from skip-gram counts: head i predicts the i-th next token from n − 1 tokens.

    Parameters
    ----------
    tokens : int array-like [N]
        The text.
    order : int
        Order n of the n-grams, at least 1, as for `NGramModel`.
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
        As for `NGramModel.witten_bell`, and if `gamma` is not an integer of at least 1.

    Examples
    --------
    In this text, 2 always comes two positions after 0:

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
