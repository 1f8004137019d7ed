"""Rounds in which drafts and output read the same clocks: the text does not depend on the drafts.

At each position the output is the token whose clock rings first in any of the lists, whatever was
drafted; a draft is accepted if it is that token.  So verification needs no draft probabilities, and
a seed gives the same text with any drafter or none.  Drafts of a model read the clocks of their own
list, which makes them agree often.  docs/theory/coupled.md has the laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from otm._core.checks import as_draft_count
from otm._core.sparse import SparseProbs
from otm.coupled.clocks.numpy import SharedClocks, drawn_key
from otm.coupled.device_rounds import CoupledDeviceRounds
from otm.decoding.checks import as_paths
from otm.decoding.device.rounds import suits_device
from otm.decoding.device.session import HeldRows
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.model import Drafter, ModelDrafter
from otm.decoding.reading import Context, Path, Reader
from otm.decoding.rounds import Outcome, Rounds, RoundsTask
from otm.decoding.verifiers.verification import TargetProbs

RULE = "list coupling"
"""Name of the rule in `otm.rules`; one token of it is `ListCoupling.couple`."""


@dataclass(frozen=True)
class CoupledVerifier:
    """Verification by shared clocks, for `stream`; `coupled` is the usual way to it.

    Chains of models that return tensors are drafted and verified on the models' device.

    Parameters
    ----------
    lists : int, optional
        Number of lists of clocks.  It is part of what decides the text: take the largest number of
        drafts of a token, and the same with every drafter.

    Raises
    ------
    InvalidDraftCountError
        If it is not an integer of at least 1.

    Examples
    --------
    >>> from otm.decoding import stream
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
        """Make rounds on the device of the models if that suits, else on the host."""
        if not suits_device(task.target, task.drafter, task.sampling):
            return CoupledRounds(task.reader(), task.drafter, self.lists)
        rows = HeldRows(task.target, task.sampling, task.processor)
        return CoupledDeviceRounds(rows, task.drafter, self.lists, task.backend)


class CoupledRounds(Rounds):
    """Rounds on the host, with clocks that follow each sequence."""

    keeps_draft_probs = False

    def __init__(
        self,
        reader: Reader,
        drafter: Drafter | None,
        lists: int,
        keys: Sequence[int] | None = None,
    ) -> None:
        self._reader, self._drafter, self._lists = reader, drafter, lists
        self._given = keys
        self._clocks: list[SharedClocks] = []

    def play(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[Outcome]:
        """Draft by the clocks or in any other way, read the drafts, and follow the output."""
        if parents is None:
            keys = map(drawn_key, uniforms) if self._given is None else self._given
            self._clocks = [SharedClocks(key, self._lists) for key in keys]
        else:
            self._clocks = [self._clocks[parent] for parent in parents]
        trees = self._draft(contexts, depths, parents, uniforms)
        paths = as_paths(trees, depths, self._reader.model.vocabulary)
        probs = self._reader.read(contexts, paths, parents, whole=True)
        outputs = (
            self.output(self._clocks[b], tree, len(contexts[b]), partial(probs, b), uniforms[b])
            for b, tree in enumerate(trees)
        )
        drafts = [tuple(tree.drawn_paths()) for tree in trees]
        return list(map(Outcome, drafts, outputs))

    def output(
        self,
        clocks: SharedClocks,
        root: DraftNode,
        start: int,
        target_probs: TargetProbs,
        uniforms: Randomness,
    ) -> Path:
        """Follow the clocks from position `start` on, as long as there is a draft."""
        drafted = {node.path for node in root.nodes()}
        path: Path = ()
        while path in drafted:
            path = (*path, clocks.output(start + len(path), target_probs(path)))
        return path

    def _draft(
        self,
        contexts: Sequence[Context],
        depths: Sequence[int],
        parents: Sequence[int] | None,
        uniforms: Sequence[Randomness],
    ) -> list[DraftNode]:
        drafter = self._drafter
        if drafter is None:
            return [DraftNode() for _ in contexts]
        if not isinstance(drafter, ModelDrafter):
            return drafter.draft(contexts, depths, parents, uniforms)
        chains = isinstance(drafter.branching, int)

        def draw(b: int, place: int, node: DraftNode, probs: SparseProbs, count: int) -> None:
            # chain m reads list m; in a prefix tree child m of any node does
            lists = [place] if chains and node.path else range(count)
            position = len(contexts[b]) + len(node.path)
            tokens = [self._clocks[b].draft(position, m, probs) for m in lists]
            node.children = [DraftNode((*node.path, token)) for token in tokens]
            node.draft_probs = probs if self.keeps_draft_probs else None

        return drafter.grow(contexts, depths, parents, draw)

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of the drafter and of the target so far."""
        return (0.0 if self._drafter is None else self._drafter.seconds), self._reader.seconds
