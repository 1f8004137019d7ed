"""Hypotheses of beam search: their scores, the best continuations, and reading them with models."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Number, Probs, is_exact
from otm._core.display.reprs import ShortRepr
from otm._core.probs.sparse import SparseProbs
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.sampling_parameters import kth_largest


@dataclass(frozen=True)
class Hypothesis(ShortRepr):
    """A sequence of new tokens and its score.

    Attributes
    ----------
    tokens : tuple of int
        The new tokens; a finished hypothesis ends with its end token.
    score : float or Fraction
        Logarithm of the probability of the tokens, in nats.  If the model returns fractions, the
        score is the probability itself.

    Examples
    --------
    >>> Hypothesis((3, 7), Fraction(1, 4)).log_probability
    -1.3862943611198906
    """

    tokens: Path
    score: Number

    @property
    def log_probability(self) -> float:
        """Logarithm of the probability of the tokens, in nats, even if `score` is a probability."""
        # A small fraction could become zero as a float.
        if isinstance(self.score, Fraction):
            return math.log(self.score.numerator) - math.log(self.score.denominator)
        return self.score

    def finished(self, end: frozenset[int]) -> bool:
        """Return whether the last token is an end token.

        Parameters
        ----------
        end : frozenset of int
            End tokens.
        """
        return bool(self.tokens) and self.tokens[-1] in end


Beam = tuple[Hypothesis, ...]
"""Distinct hypotheses in descending order of score."""

EMPTY = Hypothesis((), Fraction(1))
"""Hypothesis without tokens, from which every search begins."""

NOTHING = SparseProbs.from_support(np.array([-1]), np.array([Fraction(1)]))
"""Continuation of a finished hypothesis: no token, with probability 1."""


def best_continuations(
    beam: Beam, probs_after: Callable[[Path], SparseProbs], width: int, end: frozenset[int]
) -> Beam:
    """Return the next beam: one step of beam search (Meister et al. 2020, Algorithm 1, lines 3–11).

    The beam holds the `width` best among finished hypotheses and continuations of unfinished ones.
    """
    parents = sorted(beam, key=lambda hypothesis: hypothesis.tokens)
    nexts = [NOTHING if parent.finished(end) else probs_after(parent.tokens) for parent in parents]
    exact = all(isinstance(parent.score, Fraction) for parent in parents)
    exact = exact and all(is_exact(following.probabilities) for following in nexts)
    parts = [
        parent.score * following.probabilities
        if exact
        else parent.log_probability + np.log(following.probabilities.astype(np.float64))
        for parent, following in zip(parents, nexts, strict=True)
    ]
    scores, tokens = np.concatenate(parts), np.concatenate([probs.tokens for probs in nexts])
    owners = np.repeat(np.arange(len(parents)), [part.size for part in parts])
    best = []
    for i in _largest(scores, width).tolist():
        added = () if tokens[i] < 0 else (int(tokens[i]),)
        best.append(Hypothesis(parents[owners[i]].tokens + added, scores.item(i)))
    return tuple(best)


class Block:
    """The unfinished hypotheses before one call of the target, as sequences for a reader.

    All hypotheses of a prompt have the same length.  A finished prompt has no hypotheses.
    """

    def __init__(
        self,
        prompts: Sequence[Context],
        growing: Sequence[Collection[Path]],
        before: Block | None = None,
    ) -> None:
        live = [(b, tokens) for b, beam in enumerate(growing) for tokens in sorted(beam)]
        self.lengths = {b: len(tokens) for b, tokens in live}
        self.contexts = [prompts[b] + tokens for b, tokens in live]
        self._indices = {hypothesis: i for i, hypothesis in enumerate(live)}
        self._parents = [0 if before is None else before._place(*one)[0] for one in live]

    def read(
        self,
        reader: Reader,
        beams: Mapping[int, Collection[Path]],
        *,
        first: bool,
        whole: bool,
    ) -> Callable[[int, Path], SparseProbs]:
        """Read hypotheses that extend this block; return a function that gives the probs after one.

        `first` says that the reader has not read in this block yet.  `whole` says that some
        hypotheses extend other hypotheses.
        """
        paths: list[list[Path]] = [[] for _ in self.contexts]
        for b, beam in beams.items():
            continued = {tokens[:-1] for tokens in beam if len(tokens) > self.lengths[b]}
            for tokens in sorted(set(beam) - continued):
                i, path = self._place(b, tokens)
                paths[i].append(path)
        parents = self._parents if first else range(len(self.contexts))
        probs = reader.read(self.contexts, paths, parents, whole=whole)
        return lambda b, tokens: probs(*self._place(b, tokens))

    def _place(self, b: int, tokens: Path) -> tuple[int, Path]:
        """Return the index of the block's hypothesis that `tokens` extend, and the added tokens."""
        length = self.lengths[b]
        return self._indices[b, tokens[:length]], tokens[length:]


def _largest(scores: Probs, count: int) -> npt.NDArray[np.int64]:
    """Return the indices of the largest scores, in descending order of score.

    Ties go to the smaller index.  Hypotheses are in lexicographic order, so ties go to the
    lexicographically smaller hypothesis.
    """
    places = np.flatnonzero(scores >= kth_largest(scores, min(count, scores.size)))
    order: npt.NDArray[np.int64] = places[np.argsort(-scores[places], kind="stable")[:count]]
    return order
