"""Loops that pass tokens to a cache that contains them already."""

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
    """A model whose cache appends every sequence, with all its tokens, to earlier sequences."""

    def __init__(self, model: TableModel) -> None:
        self._model, self._read = model, Path()

    def rows(self, sequence: Path, last: int = 0) -> list[Probs]:
        """Read a sequence; return the distributions before its last tokens and at its end."""
        contexts = [sequence[: len(sequence) - i] for i in range(last, -1, -1)]
        rows = [self._model.probs(self._read + context) for context in contexts]
        self._read += sequence
        return rows

    def drop(self, count: int) -> None:
        """Remove the last tokens from the cache."""
        self._read = self._read[: len(self._read) - count]


class _CachedLoop(Loop):
    """A loop whose target reads the whole sequence again in each step, after the cached tokens."""

    def output(self, instance: Instance, source: Randomness) -> Path:
        cache = _Cache(instance.target)

        def shown(step: Instance, rows: Rows) -> Rows:
            drafts = len(rows.tokens)
            target = cache.rows(step.prompt + rows.tokens, drafts)
            cache.drop(drafts)
            return rows._replace(target=target)

        return Loop(shown=shown).output(instance, source)


class _CachedModelsLoop(Loop):
    """A loop whose two models read the whole sequence again in every call.

    The target samples the first token.  After a rejection, the loop removes the rejected drafts
    from both caches, and one more token from the target's cache.
    """

    def output(self, instance: Instance, source: Randomness) -> Path:
        target, draft = _Cache(instance.target), _Cache(instance.draft)
        tokens: Path = (locate(target.rows(instance.prompt)[0], source(1)[0]),)
        limit = max_tokens(self, instance)
        for number in itertools.count():
            if len(tokens) >= limit:
                break
            gamma = min(instance.gamma_at_step(number), limit - len(tokens) - 1)
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
        summary="Each step reads the whole sequence again, after its copy in the cache.",
        threads=("romsto/Speculative-Decoding #4",),
    ),
    _CachedModelsLoop("caches of both models fed twice").as_bug(
        mistake="cache",
        summary="Draft model and target read the whole sequence again after their caches.",
        threads=("romsto/Speculative-Decoding #4",),
    ),
)
