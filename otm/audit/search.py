"""The smallest instance on which a verifier deviates, found and shrunk by Hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

from otm._core.optional import check_installed
from otm.audit.adapter import Adapter, Instance
from otm.audit.observation import laws_of
from otm.decoding.reading import Path
from otm.models.table import TableModel

KINDS = ("dense", "sparse", "one token", "ties")
"""Kinds of laws, of `otm.testing.strategies`, that do not depend on rounding."""

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


class Search:
    """A search for a small instance that the adapter takes and on which `deviates` is true.

    It tries a number of instances (`examples`), chosen by a seed.
    """

    def __init__(
        self, adapter: Adapter, deviates: Callable[[Instance], bool], examples: int, seed: int
    ) -> None:
        self._adapter, self._deviates = adapter, deviates
        self._examples, self._seed = examples, seed
        self._known: dict[str, bool] = {}
        self._tried = 0

    def smallest(self) -> Instance | None:
        """Find an instance, fewest tokens first, then drafts, then the simplest fractions."""
        import hypothesis
        from hypothesis import strategies as st

        from otm.testing import strategies as ours

        shapes = [shape for shape in SHAPES if self._adapter.supports(_plain(*shape))]
        if not shapes:
            return None

        @st.composite
        def models(draw: st.DrawFn, vocabulary: int, rows: int) -> TableModel:
            laws = ours.distributions(vocabulary, vocabulary, exact=True, kinds=KINDS)
            contexts: list[Path] = [(), (1,), (0, 0), *((token,) for token in range(2, vocabulary))]
            return TableModel({context: draw(laws) for context in contexts[:rows]})

        @st.composite
        def instances(draw: st.DrawFn) -> Instance:
            vocabulary, gamma, k = draw(st.sampled_from(shapes))
            rows = draw(st.integers(1, vocabulary + 1))
            target, draft = draw(models(vocabulary, rows)), draw(models(vocabulary, rows))
            return Instance(target, draft, gamma, k)

        settings = hypothesis.settings(
            max_examples=self._examples,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        try:
            return hypothesis.find(
                instances(), self._holds, settings=settings, random=Random(self._seed)
            )
        except hypothesis.errors.NoSuchExample:
            return None

    def _holds(self, instance: Instance) -> bool:
        """Judge an instance, each one once and not too many of them."""
        if not self._adapter.supports(instance):
            return False
        tables = [_table(model, instance.prompt) for model in (instance.target, instance.draft)]
        key = repr((instance.gamma, instance.k, tables))
        if key not in self._known:
            if self._tried >= self._examples + MAX_SHRINKING:
                return False
            self._tried += 1
            self._known[key] = self._deviates(instance)
        return self._known[key]


def check_hypothesis() -> None:
    """Refuse to begin an audit without Hypothesis: no search could be made in the end."""
    check_installed("hypothesis", advice="or do not search, with examples 0")


def _plain(vocabulary: int, gamma: int, k: int) -> Instance:
    """Build any instance of a shape."""
    uniform = TableModel({(): [Fraction(1, vocabulary)] * vocabulary})
    return Instance(uniform, uniform, gamma, k)


def _table(model: TableModel, prompt: Path) -> list[tuple[Path, list[str]]]:
    return [(path, list(map(str, law))) for path, law in laws_of(model, prompt, 2).items()]
