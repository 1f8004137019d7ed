"""Loops that feed a cache what it holds already."""

from __future__ import annotations

import itertools

from otm._core.arithmetic import Probs
from otm.audit.adapters.base import Instance, max_tokens
from otm.audit.diagnose.known_bugs.steps import Loop, Rows, Uniforms
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.kernels.common.distributions.numpy import locate
from otm.models import TableModel


class _Cache:
    """A model whose cache gets every sequence whole, behind what it has read before."""

    def __init__(self, model: TableModel) -> None:
        self._model, self._held = model, Path()

    def rows(self, sequence: Path, last: int = 0) -> list[Probs]:
        """Read a sequence; distributions behind it and behind what comes before its last tokens."""
        contexts = [sequence[: len(sequence) - i] for i in range(last, -1, -1)]
        found = [self._model.probs(self._held + context) for context in contexts]
        self._held += sequence
        return found

    def drop(self, count: int) -> None:
        """Forget the last tokens."""
        self._held = self._held[: len(self._held) - count]


class _CachedLoop(Loop):
    """A loop whose target reads the whole sequence again in each step, behind what it has read."""

    def output(self, instance: Instance, source: Randomness) -> Path:
        cache = _Cache(instance.target)

        def shown(step: Instance, rows: Rows) -> Rows:
            drafts = len(rows.tokens)
            target = cache.rows(step.prompt + rows.tokens, drafts)
            cache.drop(drafts)
            return rows._replace(target=target)

        return Loop(shown=shown).output(instance, source)


class _CachedModelsLoop(Loop):
    """A loop, begun by the target alone, whose models both read the whole sequence every time.

    A rejection takes the rejected drafts from the end of the caches, and one token more from the
    target's.
    """

    def output(self, instance: Instance, source: Randomness) -> Path:
        target, draft = _Cache(instance.target), _Cache(instance.draft)
        tokens: Path = (locate(target.rows(instance.prompt)[0], source(1)[0]),)
        limit = max_tokens(self, instance)
        for number in itertools.count():
            if len(tokens) >= limit:
                break
            gamma = min(instance.gamma_of(number), limit - len(tokens) - 1)
            before, drafts, stated = instance.prompt + tokens, Path(), []
            for uniform in source(gamma):
                stated += draft.rows(before + drafts)
                drafts = (*drafts, locate(stated[-1], uniform))
            rows = Rows(drafts, stated, target.rows(before + drafts, gamma))
            coins, last = source(gamma), source(1)[0]
            output = self.verify(rows, Uniforms((), coins, [last] * gamma, last, source))
            rejected = gamma + 1 - len(output)
            if rejected:
                draft.drop(rejected)
                target.drop(rejected + 1)
            tokens += output
        return tokens


CACHES = (
    _CachedLoop("cache fed twice").as_bug(
        mistake="cache",
        summary="Each step reads the whole sequence again, behind what the cache holds of it.",
        threads=("romsto/Speculative-Decoding #4",),
    ),
    _CachedModelsLoop("caches of both models fed twice").as_bug(
        mistake="cache",
        summary="Draft model and target read the whole sequence again behind their caches.",
        threads=("romsto/Speculative-Decoding #4",),
    ),
)
