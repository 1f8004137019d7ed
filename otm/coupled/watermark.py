"""Watermarks by position: rounds whose randomness follows from a key.

Coupled decoding is the Gumbel watermark [aaronson2022]_: its token is the one whose clock rings
first, so that the clocks of a text are early.  Speculative decoding by rejection can be
watermarked as well ([hu2024]_): drafts by the clocks of one list, recovered and bonus tokens by
those of another, and the coins of acceptance at random or by the key ([he2026]_).  Whoever knows
the key reads the clocks of a text, without any model (`watermark_detection`).
docs/theory/watermarks.md has the laws.

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

from otm._core.display.reprs import Brief
from otm._core.numbers import as_integer, as_positive, check_name
from otm._core.probs.sparse import SparseProbs, of_one_kind
from otm.coupled.clocks.numpy import SharedClocks, drawn_key
from otm.coupled.rounds import CoupledRounds
from otm.decoding.checks import as_sources
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.model import samples_one_chain
from otm.decoding.reading import Path
from otm.decoding.rounds import RoundsTask
from otm.decoding.verifiers.base import TargetProbs
from otm.decoding.verifiers.chain import residual_on
from otm.errors import InvalidInputError, InvalidParameterError

METHODS = ("coupled", "rejection", "keyed rejection")
"""How texts are watermarked."""

LARGEST_KEY = 2**64 - 1

DRAFTS, RECOVERED, COINS = range(3)
"""Lists of clocks of the rules by rejection."""


@dataclass(frozen=True)
class WatermarkVerifier(Brief):
    """Verification with randomness from a key, for `stream`; `decode_watermarked` is simpler.

    Parameters
    ----------
    key : int or sequence of int
        From 0 to 2^64 − 1: one for all sequences, or one for each.  Sequences of one key read the
        same clocks: each has the target's distribution, but they are not independent.
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

    key: int | Sequence[int] = field(repr=False)  # which nobody wants in a log
    method: str = "coupled"

    def __post_init__(self) -> None:
        check_name("watermark", self.method, METHODS)
        key: Any = self.key
        several = isinstance(key, Sequence | np.ndarray) and np.ndim(key) == 1
        key = tuple(map(as_key, key)) if several and not isinstance(key, bytes) else as_key(key)
        object.__setattr__(self, "key", key)

    def rounds(self, task: RoundsTask) -> CoupledRounds:
        """Make rounds on the host, with a key for each sequence.

        Parameters
        ----------
        task : RoundsTask
            The models and the settings of a batch.

        Returns
        -------
        Rounds
            The rounds that `stream` calls.

        Raises
        ------
        InvalidInputError
            If the method needs the distributions of a draft model, and the drafter has none.
        InvalidParameterError
            If there are not as many keys as sequences.
        """
        keys = [self.key] * task.sequences if isinstance(self.key, int) else self.key
        if len(keys) != task.sequences:
            raise InvalidParameterError(
                f"{len(keys)} keys for {task.sequences} prompts; give one for each, or one for all"
            )
        drafter = task.drafter
        if self.method == "coupled":
            return CoupledRounds(task, 1, keys)
        if drafter is not None and not samples_one_chain(drafter):
            raise InvalidInputError(
                f"watermarks by {self.method} draw drafts by the key, from the distributions of a "
                "model for one chain; give a model, or a ModelDrafter of one sampled chain"
            )
        return RejectionRounds(task, keys, keyed=self.method == "keyed rejection")


class RejectionRounds(CoupledRounds):
    """Chain verification (`verify_chain`) of drafts by the clocks of a list.

    Clocks may belong to positions, because a decision about a draft depends on no later one: where
    drafts are drawn again behind a rejection, their clocks have decided nothing.
    """

    draws_afresh = False  # the clocks behind a rejected draft are read again
    keeps_draft_probs = True
    bonus = DRAFTS
    """List of the bonus token: not the second one, since a detector looks where most tokens are."""

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
        """Accept drafts up to the first that is rejected; clocks draw the token that follows."""
        node = root
        for position in range(start, start + len(root.leaf_paths()[0])):
            draft, target = of_one_kind(node.checked_draft_probs(), target_probs(node.path))
            coin = clocks.uniform(position, COINS, 0) if self._keyed else uniforms(1)[0]
            token = node.children[0].token
            if not coin * draft.of(token) < target.of(token):
                tokens, weights = residual_on(draft, target)
                left = SparseProbs.from_support(tokens[weights > 0], weights[weights > 0])
                return (*node.path, clocks.draft(position, RECOVERED, left))
            node = node.children[0]
        last = clocks.draft(start + len(node.path), self.bonus, target_probs(node.path))
        return (*node.path, last)


def watermark_keys(seed: int, count: int) -> tuple[int, ...]:
    """Return the keys of sequences that were decoded by `decode_coupled` with a seed.

    Parameters
    ----------
    seed : int
        The seed that `decode_coupled` was called with.
    count : int
        How many prompts it had, at least.

    Returns
    -------
    tuple of int
        For each sequence the key that `detect_watermark` takes.

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
    return tuple(map(drawn_key, as_sources(known, None, as_positive(count, "count"))))


def as_key(key: Any) -> int:
    """Return a key, which Philox takes."""
    return as_integer(key, "key", 0, LARGEST_KEY)
