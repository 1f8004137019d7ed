"""Pairs of models that tell mistakes apart, small ones first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs, as_fractions
from otm.audit.adapters.base import Instance
from otm.decoding.reading import Path
from otm.models.table import TableModel

Rows = Sequence[int] | Mapping[tuple[int, ...], Sequence[int]]


def _model(rows: Rows) -> TableModel:
    """Table of whole weights, as fractions of their sums; one row stands for every context."""
    table = rows if isinstance(rows, Mapping) else {(): rows}
    return TableModel({after: as_fractions(row) / sum(row) for after, row in table.items()})


def pair(target: Rows, draft: Rows, gamma: int = 1, k: int = 1) -> Instance:
    """Make an instance of whole weights, by context or for every one."""
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
    "one token wanted": pair([0, 1, 0], [1, 2, 3]),
    "one token drafted": pair([1, 2, 3], [0, 1, 0]),
    "zeros": pair([0, 1, 3], [2, 2, 0]),
    "ties": pair([1, 1, 2], [1, 1, 1]),
    "three tokens": pair(*THREE),
    "four tokens": pair(*FOUR),
    "two drafts, two tokens": pair(*TWO, gamma=2),
    "two drafts": pair(*THREE, gamma=2),
    "equal at first": pair({(): [1, 2, 3], (1,): [3, 2, 1]}, [1, 2, 3], gamma=2),
    "behind a block": pair({(): [1, 1, 2], (2,): [1, 0, 3]}, {(): [1, 0, 4], (2,): [0, 2, 3]}, 2),
    "three drafts": pair(*TWO, gamma=3),
    "pairs": pair([1, 3], [3, 1], k=2),
    "pairs of three tokens": pair(*THREE, k=2),
    "pairs with zeros": pair([0, 1, 3, 4], [2, 2, 0, 4], k=2),
    "pairs, both rejected": pair([2, 9, 5], [6, 8, 2], k=2),  # the second neither surely nor never
    "equal pairs": pair([1, 2, 3], [1, 2, 3], k=2),
    "disjoint pairs": pair([0, 0, 1, 2], [2, 1, 0, 0], k=2),
    "pairs, one token wanted": pair([0, 1, 0], [1, 2, 3], k=2),
    "pairs of two drafts": pair(*TWO, gamma=2, k=2),
    "three of two tokens": pair(*TWO, k=3),
    "rare tokens": pair([1, 10**7, 5 * 10**6], [5 * 10**6, 10**7, 1]),
    "three of three tokens": pair([1, 4, 5], [5, 3, 2], k=3),  # each rejection changes the next
}
"""By name.  The prompt of all is (0,), and the row (0, 0) is for a first output 0 alone."""

NEEDED = ("rows differ", "pairs", "two drafts, two tokens")
"""Names of the instances that come first, and without which no verifier is called lossless."""

MAX_ROWS = 1_000
"""Most contexts of one length whose rows are listed."""

CHANGING = tuple(
    replace(pair(*TWO, gamma=2), gammas=gammas, length=4) for gammas in ((2, 1), (1, 2))
)
"""For loops whose policy changes γ from step to step."""

FOR_SAMPLING = (
    "zeros",
    "three tokens",
    "equal at first",
    "two drafts, two tokens",
    "two drafts",
    "behind a block",
    "pairs of three tokens",
    "pairs, both rejected",
    "equal pairs",
    "three of two tokens",
    "40 tokens",
    "five tokens back",
    "four drafts",  # what shows from the third draft on, such as coins that are not independent
)
"""Instances for Monte Carlo, also of `otm.audit.larger_instances`: each costs many runs."""


def needed() -> set[Instance]:
    """Return the instances without which no verifier is called lossless."""
    return {INSTANCES[name] for name in NEEDED}


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
"""Kinds of pairs; each shows mistakes that no other kind does, so a verdict needs all of them.

A pair may be of several kinds.
"""


def left_out(seen: Sequence[Instance], late: Sequence[Instance]) -> tuple[str, ...]:
    """Name the kinds of pairs in `late`, for which no time was left, that `seen` has none of."""
    return tuple(
        name
        for name, belongs in GROUPS.items()
        if any(map(belongs, late)) and not any(map(belongs, seen))
    )


def shape_of(instance: Instance) -> tuple[int, int, int]:
    """Return the vocabulary, number of drafts γ of a chain and number of chains k."""
    return instance.vocabulary, instance.gamma, instance.k


def rows_of(instance: Instance) -> tuple[dict[Path, Probs], dict[Path, Probs]]:
    """List the distributions of target and draft after the prompt and what can follow it.

    A context is left out if a shorter one has the same distribution.
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
