"""Pairs of models on which different mistakes have different outputs, small ones first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, as_fractions
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.processed import prepared
from otm.decoding.reading import Path
from otm.models.table import TableModel

Rows = Sequence[int] | Mapping[tuple[int, ...], Sequence[int]]


def _model(rows: Rows) -> TableModel:
    """Convert integer weights to a table of fractions; one row stands for every context."""
    table = rows if isinstance(rows, Mapping) else {(): rows}
    return TableModel({after: as_fractions(row) / sum(row) for after, row in table.items()})


def pair(target: Rows, draft: Rows, gamma: int = 1, k: int = 1) -> Instance:
    """Make an instance from integer weights: rows by context, or one row for every context."""
    return Instance(_model(target), _model(draft), gamma, k)


TWO: tuple[Rows, Rows] = (
    {(): [1, 3], (1,): [2, 1], (0, 0): [3, 2]},
    {(): [3, 1], (1,): [1, 4], (0, 0): [1, 1]},
)
THREE: tuple[Rows, Rows] = (
    {(): [1, 4, 5], (1,): [6, 1, 1], (2,): [0, 2, 3], (0, 0): [2, 5, 1]},
    {(): [5, 2, 3], (1,): [1, 2, 1], (2,): [2, 0, 1], (0, 0): [2, 1, 4]},
)
FOUR: tuple[Rows, Rows] = (
    {(): [4, 3, 1, 2], (3,): [1, 0, 2, 5], (0, 0): [0, 1, 1, 0]},
    {(): [1, 2, 3, 4], (2,): [3, 3, 1, 0], (0, 0): [2, 1, 1, 4]},
)

INSTANCES: dict[str, Instance] = {
    "two tokens": pair([1, 3], [3, 1]),
    "rows differ": pair(*TWO),
    "equal": pair([1, 2, 3], [1, 2, 3]),
    "disjoint": pair([0, 0, 1, 2], [2, 1, 0, 0]),
    "one possible token": pair([0, 1, 0], [1, 2, 3]),
    "one token drafted": pair([1, 2, 3], [0, 1, 0]),
    "zeros": pair([0, 1, 3], [2, 2, 0]),
    "ties": pair([1, 1, 2], [1, 1, 1]),
    "three tokens": pair(*THREE),
    "four tokens": pair(*FOUR),
    "two drafts, two tokens": pair(*TWO, gamma=2),
    "two drafts": pair(*THREE, gamma=2),
    "equal at first": pair({(): [1, 2, 3], (1,): [3, 2, 1]}, [1, 2, 3], gamma=2),
    "after a block": pair({(): [1, 1, 2], (2,): [1, 0, 3]}, {(): [1, 0, 4], (2,): [0, 2, 3]}, 2),
    "three drafts": pair(*TWO, gamma=3),
    "pairs": pair([1, 3], [3, 1], k=2),
    "pairs of three tokens": pair(*THREE, k=2),
    "pairs with zeros": pair([0, 1, 3, 4], [2, 2, 0, 4], k=2),
    # The second draft is accepted with a probability strictly between 0 and 1.
    "pairs, both rejected": pair([2, 9, 5], [6, 8, 2], k=2),
    "equal pairs": pair([1, 2, 3], [1, 2, 3], k=2),
    "disjoint pairs": pair([0, 0, 1, 2], [2, 1, 0, 0], k=2),
    "pairs, one possible token": pair([0, 1, 0], [1, 2, 3], k=2),
    "pairs of two drafts": pair(*TWO, gamma=2, k=2),
    "three of two tokens": pair(*TWO, k=3),
    "rare tokens": pair([1, 10**7, 5 * 10**6], [5 * 10**6, 10**7, 1]),
    # Each rejection changes the next residual.
    "three of three tokens": pair([1, 4, 5], [5, 3, 2], k=3),
}
"""Instances by name, all with the prompt (0,): the row (0, 0) applies after a first output 0."""

NEEDED = ("rows differ", "pairs", "two drafts, two tokens")
"""Names of the instances that come first; the verdict "lossless" requires all of them."""

MAX_ROWS = 1_000
"""Largest number of contexts of one length whose rows are listed."""

CHANGING = tuple(
    replace(pair(*TWO, gamma=2), gammas=gammas, length=4) for gammas in ((2, 1), (1, 2))
)
"""Instances for loops whose policy changes γ from step to step."""

FOR_SAMPLING = (
    "zeros",
    "three tokens",
    "equal at first",
    "two drafts, two tokens",
    "two drafts",
    "after a block",
    "pairs of three tokens",
    "pairs, both rejected",
    "equal pairs",
    "three of two tokens",
    "40 tokens",
    "five tokens back",
    # This instance shows mistakes from the third draft on, such as dependent coins.
    "four drafts",
)
"""Instances for Monte Carlo, some from `larger_instances`; few, because each needs many runs."""


def needed(adapter: Adapter) -> set[Instance]:
    """Return the instances that a verdict "lossless" requires."""
    return {prepared(adapter, INSTANCES[name]) for name in NEEDED}


GROUPS: dict[str, Callable[[Instance], bool]] = {
    "several drafts a step": lambda instance: instance.gamma > 1,
    "four or more drafts a step": lambda instance: instance.gamma >= 4,
    "several chains": lambda instance: instance.k > 1,
    "three or more tokens": lambda instance: instance.vocabulary >= 3,
    "40 or more tokens": lambda instance: instance.vocabulary >= 40,
    "prompts of several tokens": lambda instance: len(instance.prompt) > 1,
    "longer texts": lambda instance: instance.length is not None and not instance.gammas,
    "a γ that changes": lambda instance: bool(instance.gammas),
}
"""Kinds of pairs of models; each shows mistakes that no other kind shows.

A verdict therefore needs all kinds.  A pair may belong to several kinds.
"""


def left_out(seen: Sequence[Instance], late: Sequence[Instance]) -> tuple[str, ...]:
    """Name the kinds of pairs that occur in `late`, the untried pairs, but not in `seen`."""
    return tuple(
        name
        for name, belongs in GROUPS.items()
        if any(map(belongs, late)) and not any(map(belongs, seen))
    )


def shape_of(instance: Instance) -> tuple[int, int, int]:
    """Return the vocabulary size, number of drafts γ of a chain and number of chains k."""
    return instance.vocabulary, instance.gamma, instance.k


def rows_of(instance: Instance) -> tuple[dict[Path, Probs], dict[Path, Probs]]:
    """List the distributions of target and draft after the prompt and its possible continuations.

    A context is omitted if a shorter one has the same distribution.
    """
    models = instance.target, instance.draft
    rows: tuple[dict[Path, Probs], dict[Path, Probs]] = ({}, {})
    reached: list[Path] = [()]
    seen: set[Path] = {()}
    for _ in range(max(instance.length or 0, instance.gamma + 1)):
        longer: dict[Path, None] = {}
        for path in reached:
            follow: npt.NDArray[np.bool_] = np.zeros(instance.vocabulary, dtype=np.bool_)
            for model, found in zip(models, rows, strict=True):
                probs = model.probs(instance.prompt + path)
                follow |= (probs > 0).astype(np.bool_)
                shorter = model.probs(instance.prompt + path[1:])
                if not path or path[1:] not in seen or (probs != shorter).any():
                    found[path] = probs
            longer |= dict.fromkeys((*path, token) for token in np.flatnonzero(follow).tolist())
            if len(longer) > MAX_ROWS:
                return rows
        reached = list(longer)
        seen |= longer.keys()
    return rows
