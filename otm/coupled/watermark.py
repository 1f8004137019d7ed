"""Watermarks indexed by position: decoding steps whose randomness comes from a key.

Coupled decoding is the Gumbel watermark of [aaronson2022]_: each token has the smallest clock time,
so the clocks of a text are small.  Speculative decoding by rejection can carry a watermark too
([hu2024]_).  Rejection takes drafts from one list of clocks, and recovered tokens from another.
The uniforms that decide acceptance are random, or come from the key ([he2026]_).  A detector that
knows the key reads the clocks of a text without any model (`watermark_detection`).
docs/theory/watermarks.md derives the distributions.

References
----------
.. [aaronson2022] Aaronson, "My AI Safety Lecture for UT Effective Altruism", 2022.
.. [hu2024] Hu and Huang, "Inevitable Trade-off between Watermark Strength and Speculative Sampling
   Efficiency for Language Models", NeurIPS 2024.
.. [he2026] He, Li, Shen, Su and Long, "Improve the Trade-off Between Watermark Strength and
   Speculative Sampling Efficiency for Language Models", ICLR 2026, arXiv 2602.01428.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otm._core.display.reprs import ShortRepr
from otm._core.numbers import as_integer, as_positive, check_name
from otm._core.probs.sparse import SparseProbs, of_one_kind
from otm.coupled.clocks.numpy import SharedClocks, draw_key
from otm.coupled.rounds import CoupledRounds
from otm.decoding.checks import as_sources
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.model import samples_one_chain
from otm.decoding.reading import Path
from otm.decoding.rounds import RoundsTask
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.chain import aligned_residual
from otm.errors import InvalidInputError, InvalidParameterError

METHODS = ("coupled", "rejection", "keyed rejection")
"""Watermarking methods."""

LARGEST_KEY = 2**64 - 1

DRAFTS, RECOVERED, COINS = range(3)
"""Lists of clocks for drafts, recovered tokens and acceptance uniforms."""


@dataclass(frozen=True)
class WatermarkVerifier(ShortRepr):
    """Verification with randomness from a key, for `stream`; `decode_watermarked` is simpler.

    Parameters
    ----------
    key : int or sequence of int
        One key for all sequences, or one key per sequence, from 0 to 2^64 − 1.  Sequences with the
        same key read the same clocks.  Each sequence has the target's
        distribution, but the sequences are dependent.
    method : {"coupled", "rejection", "keyed rejection"}, optional
        As for `decode_watermarked`.

    Raises
    ------
    InvalidParameterError
        If a key is outside its range.
    UnknownMethodError
        If there is no such method.

    Examples
    --------
    >>> from otm.decoding import stream
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.5, 0.5]})
    >>> [step.output for step in stream(model, [[0]], None, WatermarkVerifier(7), max_tokens=3)]
    [(0,), (0,), (0,)]
    """

    # The repr omits the key, so that keys do not get into logs.
    key: int | Sequence[int] = field(repr=False)
    method: str = "coupled"

    def __post_init__(self) -> None:
        check_name("watermark", self.method, METHODS)
        key: Any = self.key
        several = isinstance(key, Sequence | np.ndarray) and np.ndim(key) == 1
        key = tuple(map(as_key, key)) if several and not isinstance(key, bytes) else as_key(key)
        object.__setattr__(self, "key", key)

    def rounds(self, task: RoundsTask) -> CoupledRounds:
        """Return an object that runs the steps of one batch on the host, with a key per sequence.

        Parameters
        ----------
        task : RoundsTask
            The models and settings of a batch.

        Returns
        -------
        Rounds
            The object whose steps `stream` calls.

        Raises
        ------
        InvalidInputError
            If the method needs the distributions of a draft model, but the drafter has none.
        InvalidParameterError
            If the number of keys differs from the number of sequences.
        """
        keys = [self.key] * task.sequences if isinstance(self.key, int) else self.key
        if len(keys) != task.sequences:
            raise InvalidParameterError(
                f"{len(keys)} keys for {task.sequences} prompts; give one key for all prompts, or "
                "one key per prompt"
            )
        drafter = task.drafter
        if self.method == "coupled":
            return CoupledRounds(task, 1, keys)
        if drafter is not None and not samples_one_chain(drafter):
            raise InvalidInputError(
                f"watermarking by {self.method} draws one chain of drafts with the key, from the "
                "distributions of a draft model; give a model, or a ModelDrafter of one sampled "
                "chain"
            )
        return RejectionRounds(task, keys, keyed=self.method == "keyed rejection")


class RejectionRounds(CoupledRounds):
    """Chain verification (`verify_chain`) whose drafts come from a list of clocks.

    Clocks can be indexed by position, because the decision about a draft depends on no later draft.
    After a rejection, later positions are drafted again; no decision has used their clocks yet.
    """

    # Later steps read the clocks after a rejected draft again.
    steps_are_independent = False
    keeps_draft_probs = True
    bonus = DRAFTS
    """Clock list of the bonus token: the list of the drafts, so most tokens read one list."""

    def __init__(self, task: RoundsTask, keys: Sequence[int], *, keyed: bool) -> None:
        super().__init__(task, 1, keys)
        self._keyed = keyed

    def output(
        self,
        clocks: SharedClocks,
        root: DraftNode,
        start: int,
        target_probs: TargetProbs,
        uniforms: Randomness,
    ) -> Path:
        """Return the accepted drafts and the next token, which is drawn from clocks."""
        node = root
        for position in range(start, start + len(root.leaf_paths()[0])):
            draft, target = of_one_kind(node.checked_draft_probs(), target_probs(node.path))
            coin = clocks.uniform(position, COINS, 0) if self._keyed else uniforms(1)[0]
            token = node.children[0].token
            if not coin * draft.of(token) < target.of(token):
                tokens, weights = aligned_residual(draft, target)
                residual = SparseProbs.from_support(tokens[weights > 0], weights[weights > 0])
                return (*node.path, clocks.draft(position, RECOVERED, residual))
            node = node.children[0]
        last = clocks.draft(start + len(node.path), self.bonus, target_probs(node.path))
        return (*node.path, last)


def watermark_keys(seed: int, count: int) -> tuple[int, ...]:
    """Return the keys that `decode_coupled` used for a seed, for use in `detect_watermark`.

    Parameters
    ----------
    seed : int
        The seed of the `decode_coupled` call.
    count : int
        Number of keys, at most the number of prompts of the call.

    Returns
    -------
    tuple of int
        The key of each sequence.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.

    Examples
    --------
    >>> from otm.coupled import decode_coupled, detect_watermark
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.25] * 4})
    >>> made = decode_coupled(model, model, [[0], [1]], k=2, max_tokens=50, seed=3)
    >>> for text, key in zip(made.sequences, watermark_keys(3, 2)):
    ...     print(detect_watermark(text, key, start=1, lists=2).p_value < 1e-4)
    True
    True
    """
    known = as_integer(seed, "seed", 0)
    return tuple(map(draw_key, as_sources(known, None, as_positive(count, "count"))))


def as_key(key: Any) -> int:
    """Return a key of the Philox generator as an int; raise if it is outside 64 bits."""
    return as_integer(key, "key", 0, LARGEST_KEY)
