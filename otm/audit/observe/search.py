"""Search for the smallest pair of models on which a verifier deviates, by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.processed import supports
from otm.audit.instances import pair, rows_of
from otm.decoding.reading import Path
from otm.errors import OTMError
from otm.models.table import TableModel

Seen = TypeVar("Seen")

KINDS = ("dense", "sparse", "one token", "ties")
"""Kinds of distributions of `otm.testing.strategies` that do not depend on rounding."""

SHAPES = [
    (v, gamma, k)
    for v in (2, 3)
    for gamma in (1, 2)
    for k in (1, 2, 3)
    # Limit the number of possible drafts.
    if v ** (gamma * k) <= 9
]
"""Numbers of tokens, drafts of a chain, and chains, in order of preference."""

MAX_SHRINKING = 400
"""Largest number of instances that are tried while shrinking."""


def smallest_deviation(
    adapter: Adapter, deviation: Callable[[Instance], Seen | None], examples: int, seed: int
) -> Seen | None:
    """Search a number of instances for a deviation of a verifier, and shrink it.

    Instances with few tokens come first, then few drafts, then simple fractions.  Returns the
    observation of the smallest deviating instance; no instance is observed twice.
    """
    import hypothesis
    from hypothesis import strategies as st

    from otm.testing import strategies as ours

    shapes = [
        (v, gamma, k)
        for v, gamma, k in SHAPES
        if supports(adapter, pair([1] * v, [1] * v, gamma, k))
    ]
    if not shapes:
        return None
    known: dict[str, Seen | None] = {}
    errors: list[OTMError] = []

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
        """Try an instance, unless it was tried before or the limit of instances is reached."""
        if errors or not supports(adapter, instance):
            return False
        key = key_of(instance)
        if key not in known and len(known) < examples + MAX_SHRINKING:
            try:
                known[key] = deviation(instance)
            except OTMError as error:
                # Hypothesis would shrink the instance and cause the error many times.
                errors.append(error)
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
        found = None
    if errors:
        raise errors[0]
    return None if found is None else known[key_of(found)]
