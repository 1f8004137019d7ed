"""Pairs of models that tell mistakes apart, small ones first, and the search for more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from otm._core.arithmetic import as_fractions
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.observe.observation import rows_of
from otm.decoding.reading import Path
from otm.models.table import TableModel

Seen = TypeVar("Seen")
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


KINDS = ("dense", "sparse", "one token", "ties")
"""Kinds of distributions, of `otm.testing.strategies`, that do not depend on rounding."""

SHAPES = [
    (v, gamma, k)
    for v in (2, 3)
    for gamma in (1, 2)
    for k in (1, 2, 3)
    if v ** (gamma * k) <= 9  # ways to draft
]
"""Numbers of tokens, drafts of a chain, and chains, the preferred ones first."""

MAX_SHRINKING = 400
"""Most instances that are tried on the way from a deviation to the smallest one."""


def smallest_deviation(
    adapter: Adapter, deviation: Callable[[Instance], Seen | None], examples: int, seed: int
) -> Seen | None:
    """Search for an instance on which a verifier deviates, among so many of them, and shrink it.

    Fewest tokens come first, then fewest drafts, then the simplest fractions.  Returns what was
    seen there; nothing is observed twice.
    """
    import hypothesis
    from hypothesis import strategies as st

    from otm.testing import strategies as ours

    shapes = [
        (v, gamma, k)
        for v, gamma, k in SHAPES
        if adapter.supports(pair([1] * v, [1] * v, gamma, k))
    ]
    if not shapes:
        return None
    known: dict[str, Seen | None] = {}

    @st.composite
    def models(draw: st.DrawFn, vocabulary: int, rows: int) -> TableModel:
        probs = ours.distributions(vocabulary, vocabulary, exact=True, kinds=KINDS)
        contexts: list[Path] = [(), (1,), (0, 0), *((token,) for token in range(2, vocabulary))]
        return TableModel({context: draw(probs) for context in contexts[:rows]})

    @st.composite
    def instances(draw: st.DrawFn) -> Instance:
        vocabulary, gamma, k = draw(st.sampled_from(shapes))
        rows = draw(st.integers(1, vocabulary + 1))
        target, draft = draw(models(vocabulary, rows)), draw(models(vocabulary, rows))
        return Instance(target, draft, gamma, k)

    def key_of(instance: Instance) -> str:
        return repr((instance.gamma, instance.k, rows_of(instance)))

    def holds(instance: Instance) -> bool:
        """Try an instance, each one once and not too many of them."""
        if not adapter.supports(instance):
            return False
        key = key_of(instance)
        if key not in known and len(known) < examples + MAX_SHRINKING:
            known[key] = deviation(instance)
        return known.get(key) is not None

    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    try:
        found = hypothesis.find(instances(), holds, settings=settings, random=Random(seed))
    except hypothesis.errors.NoSuchExample:
        return None
    return known[key_of(found)]
