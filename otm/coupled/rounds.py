"""Decoding steps in which drafts and output read the same exponential clocks.

A clock is an Exp(1) number S for each list, position and token.  At each position, the output is
the token with the smallest time S/q over all lists, where q is its target probability.  A draft is
accepted if it equals the output at its position.  So verification needs no draft probabilities, and
the text of a seed is the same with any drafter or without drafts.  A draft model reads the clocks
too, one list for each draft of a token, so its drafts often equal the output.
docs/theory/coupled.md derives the distributions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from otm._core.checks import as_draft_count
from otm._core.probs.sparse import SparseProbs
from otm.coupled.clocks.numpy import SharedClocks, draw_key
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path, ProbsAfter
from otm.decoding.rounds import Batch, HostRounds, Rounds, RoundsTask
from otm.decoding.verifiers.base import TargetProbs

RULE = "list coupling"
"""Name of the rule in `otm.rules`; `ListCoupling.couple` is the rule for one token."""


@dataclass(frozen=True)
class CoupledVerifier:
    """Verification by shared exponential clocks, for `stream`; `decode_coupled` is simpler to use.

    If the models return tensors, chains are drafted and verified on the models' device.

    Parameters
    ----------
    lists : int, optional
        Number of lists of clocks, which affects the text.  Use the largest number of drafts
        that a token can have.  Different drafters give the same text only if `lists` is equal.

    Raises
    ------
    InvalidDraftCountError
        If `lists` is not an integer of at least 1.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter, stream
    >>> from otm.models import TableModel
    >>> model = TableModel({(): [0.5, 0.5]})
    >>> [list(stream(model, [[0]], drafter, CoupledVerifier(), gamma=2, max_tokens=3, seed=0))
    ...  [0].output for drafter in (None, ModelDrafter(model))]
    [(1,), (1, 1, 0)]
    """

    lists: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lists", as_draft_count(self.lists))

    def rounds(self, task: RoundsTask) -> Rounds:
        """Return an object that runs the steps of one batch, on the device or on the host.

        Parameters
        ----------
        task : RoundsTask
            The models and settings of a batch.

        Returns
        -------
        Rounds
            The object that `stream` calls for each step.
        """
        if not task.suits_device():
            return CoupledRounds(task, self.lists)
        from otm.coupled.device_rounds import CoupledDeviceRounds

        return CoupledDeviceRounds(task, self.lists)


class CoupledRounds(HostRounds):
    """Steps on the host; each sequence keeps its own clocks."""

    keeps_draft_probs = False

    def __init__(self, task: RoundsTask, lists: int, keys: Sequence[int] | None = None) -> None:
        super().__init__(task)
        self._lists, self._keys = lists, keys
        self._clocks: list[SharedClocks] = []

    def follow(self, batch: Batch) -> None:
        """Copy the clocks of each parent; in the first step, create the clocks from the keys."""
        if batch.parents is None:
            keys = map(draw_key, batch.uniforms) if self._keys is None else self._keys
            self._clocks = [SharedClocks(key, self._lists) for key in keys]
        else:
            self._clocks = [self._clocks[parent] for parent in batch.parents]

    def draft(self, batch: Batch) -> list[DraftNode]:
        """Return draft trees; a model draws its drafts from the clocks, other drafters as usual."""
        if self._drafter is None:
            return super().draft(batch)

        def draw(
            b: int, chain: int | None, node: DraftNode, probs: SparseProbs, count: int
        ) -> None:
            # Chain m reads list m.  In a prefix tree, child m of every node reads list m.
            lists = range(count) if chain is None else [chain]
            position = len(batch.contexts[b]) + len(node.path)
            tokens = [self._clocks[b].draft(position, m, probs) for m in lists]
            node.children = [DraftNode((*node.path, token)) for token in tokens]
            node.draft_probs = probs if self.keeps_draft_probs else None

        return self._drafter.draft_with(draw, *batch)

    def verify(self, batch: Batch, trees: Sequence[DraftNode], probs: ProbsAfter) -> list[Path]:
        """Return the output of each sequence."""
        return [
            self.output(self._clocks[b], tree, len(context), partial(probs, b), uniforms)
            for b, (tree, context, uniforms) in enumerate(
                zip(trees, batch.contexts, batch.uniforms, strict=True)
            )
        ]

    def output(
        self,
        clocks: SharedClocks,
        root: DraftNode,
        start: int,
        target_probs: TargetProbs,
        uniforms: Randomness,
    ) -> Path:
        """Return the output from position `start` up to the first token that was not drafted."""
        drafted = {node.path for node in root.nodes()}
        path: Path = ()
        while path in drafted:
            path = (*path, clocks.output(start + len(path), target_probs(path)))
        return path
