"""Scoring draft trees with a model, whose cache makes it read each token only once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import is_exact
from otm._core.probs.sparse import SparseProbs
from otm._core.tensors import is_array, is_tensor, like, to_host
from otm.decoding.sampling_parameters import SamplingParameters, as_sampling
from otm.errors import InvalidDistributionError
from otm.models.base import LanguageModel, Session, common_length, padded

Context = tuple[int, ...]
"""All tokens of a sequence so far."""

Path = tuple[int, ...]
"""Draft tokens after a context."""

ProbsAfter = Callable[[int, Path], SparseProbs]
"""Function of a sequence index b and a path; it returns the next-token distribution after them."""


LogitsProcessor = Callable[[Any, Any, Any], Any]
"""A function that adjusts scores before sampling.

The first argument is token ids [M, L] (int64): all tokens of M rows of equal length.  The second
argument is the scores [M, V] of the next tokens, which the function may change in place.  The third
argument is the prompt index [M] of each row as an int64 array.  The result is scores [M, V].  If
the model returns tensors, ids and scores are tensors on one device.  Each row of the result must
depend only on the same row of the arguments, not on other rows or earlier calls.
"""


class _Row(NamedTuple):
    """Tokens in the cache of one row of a session, and the sequence that owns the row."""

    owner: int
    context: Context
    path: Path


class Reader:
    """Computes a model's distributions after contexts and paths; the model reads only new tokens.

    Each sequence names the earlier sequence that it continues.  Among the rows of the earlier
    sequence, the reader keeps the row with the longest common prefix, cut to this prefix.  Apart
    from rounding, the cache does not change the distributions.
    """

    def __init__(
        self,
        model: LanguageModel,
        sampling: SamplingParameters | None = None,
        processor: LogitsProcessor | None = None,
    ) -> None:
        self.model = model
        self.sampling = as_sampling(sampling)
        # Adjusts scores before sampling.
        self.processor = processor
        self.seconds = 0.0
        # Number of forward passes of the model so far.
        self.calls = 0
        self._session: Session | None = None
        self._rows: list[_Row] = []
        # Index of the prompt that each sequence began with.
        self._prompts: list[int] = []

    def read(
        self,
        contexts: Sequence[Context],
        paths: Sequence[Sequence[Path]],
        parents: Sequence[int] | None,
        *,
        whole: bool,
    ) -> ProbsAfter:
        """Score distinct paths after each context; a sequence without paths keeps its cache.

        `parents[b]` is the sequence of the last call that sequence b continues.  Returns a function
        from b and a path to probabilities: for all prefixes of the paths if `whole`, else only for
        complete paths.
        """
        if self._session is None or parents is None:
            self.follow(contexts, None)
            parents = self._prompts
        self._prompts = prompts = [self._prompts[p] for p in parents]
        session: Any = self._session
        rows, sources, kept, starts = self._place(contexts, paths, parents, whole=whole)
        self._keep(sources, kept)
        # Read a single unread token together with the paths below, not in a separate call.
        if any(b - a > 1 for a, b in zip(kept, starts, strict=True)):
            self._timed(session.read, _tokens(rows, kept, starts))
            self.calls += 1
            kept = starts
        tokens = _tokens(rows, kept, [None] * len(rows))
        scores: Any = None
        if tokens.size:
            scores = self._timed(session.append, tokens)
            # A processor runs before the scores move to the host.
            if self.processor is None:
                scores = self._timed(partial(to_host, widen=False), scores)
            check_scores(scores, (*tokens.shape, self.model.vocabulary), self.model)
            self.calls += 1
        self._rows = rows

        places: dict[tuple[int, Path], tuple[int, int]] = {}
        for r, (row, start) in enumerate(zip(rows, kept, strict=True)):
            known = len(row.context) - 1 - start
            for i in range(max(-known, 0), len(row.path) + 1):
                places.setdefault((row.owner, row.path[:i]), (r, known + i))

        def probs_of(queries: Sequence[tuple[int, Path]]) -> list[SparseProbs]:
            rows, columns = zip(*(places[query] for query in queries), strict=True)
            if self.processor is None:
                first, alike = rows[0], len(set(columns)) == 1
                # Consecutive rows are a slice, which needs no copy.
                if alike and rows == tuple(range(first, first + len(rows))):
                    return self._probs(scores[first : first + len(rows), columns[0]])
                return self._probs(scores[list(rows), list(columns)])
            # Indexing by lists copies the scores [M, V], so the processor may change them.
            chosen = scores[list(rows), list(columns)]
            before = [contexts[b] + path for b, path in queries]
            indices = [prompts[b] for b, _ in queries]
            return self._processed(self.processor, chosen, before, indices)

        # Distributions are computed on demand, because a verifier may need only a few of them.
        if whole:
            return lambda b, path: probs_of([(b, path)])[0]
        found = dict(zip(places, probs_of(list(places)) if places else [], strict=True))
        return lambda b, path: found[b, path]

    def _timed(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the session, and add its time to `seconds`."""
        begin_time = time.perf_counter()
        result = ask(*arguments)
        self.seconds += time.perf_counter() - begin_time
        return result

    def follow(self, contexts: Sequence[Context], parents: Sequence[int] | None) -> None:
        """Read each context up to its last token, once for all paths; `parents` as for `read`.

        Without parents, a session is opened.  The next `read` or `follow` continues these contexts:
        sequence b has parent b.  Drafters that need the model's hidden states need this call before
        their drafts.
        """
        if self._session is None or parents is None:
            parents = self._prompts = list(range(len(contexts)))
            self._session = self.model.start(len(contexts))
            self._rows = [_Row(b, (), ()) for b in parents]
        self._prompts = [self._prompts[p] for p in parents]
        only_root: list[Sequence[Path]] = [[()]] * len(contexts)
        rows, sources, kept, ends = self._place(contexts, only_root, parents, whole=True)
        self._keep(sources, kept)
        tokens = _tokens(rows, kept, ends)
        if tokens.size:
            session: Any = self._session
            self._timed(session.read, tokens)
            self.calls += 1
        self._rows = [_Row(b, context[:-1], ()) for b, context in enumerate(contexts)]

    def _keep(self, sources: Sequence[int], kept: Sequence[int]) -> None:
        """Replace the rows of the session by prefixes of these lengths of its rows."""
        session: Any = self._session
        lengths = [len(row.context) + len(row.path) for row in self._rows]
        if kept != lengths or sources != list(range(len(lengths))):
            self._timed(session.keep, np.array(sources, np.int64), np.array(kept, np.int64))

    def _place(
        self,
        contexts: Sequence[Context],
        paths: Sequence[Sequence[Path]],
        parents: Sequence[int],
        *,
        whole: bool,
    ) -> tuple[list[_Row], list[int], list[int], list[int]]:
        """Return the new rows, their source rows, the kept lengths, and the first scored tokens."""
        rows: list[_Row] = []
        places: list[tuple[int, int, int]] = []
        owned: dict[int, list[int]] = {}
        for r, row in enumerate(self._rows):
            owned.setdefault(row.owner, []).append(r)
        for b, context in enumerate(contexts):
            earlier = owned[parents[b]]
            if not paths[b]:
                for r in earlier:
                    row = self._rows[r]
                    length = len(row.context) + len(row.path)
                    rows.append(row._replace(owner=b))
                    places.append((r, length, length))
            # All rows of a sequence have the same context.
            before = self._rows[earlier[0]].context
            agreed = common_length(context, before)
            for path in paths[b]:
                source, most = earlier[0], agreed
                if agreed == len(before):
                    source, length = self._closest(context[agreed:] + path, earlier)
                    most = agreed + length
                start = len(context) + (0 if whole else len(path)) - 1
                rows.append(_Row(b, context, path))
                places.append((source, min(most, start), start))
        sources, kept, starts = ([place[i] for place in places] for i in range(3))
        return rows, sources, kept, starts

    def _closest(self, tokens: Path, earlier: Sequence[int]) -> tuple[int, int]:
        """Return the row whose path has the longest common prefix with `tokens`, and its length."""
        agreed = tokens[:-1]
        for r in earlier:
            # The usual case: a draft extends the path of a row by one token.
            if self._rows[r].path == agreed:
                return r, len(agreed)
        best = max(earlier, key=lambda r: common_length(tokens, self._rows[r].path))
        return best, common_length(tokens, self._rows[best].path)

    def _probs(self, scores: Any) -> list[SparseProbs]:
        """Return the next-token distributions of scores [M, V]."""
        if not self.model.returns_probs:
            return self.sampling.sparse_probs_rows(scores)
        if self.sampling == SamplingParameters():
            return [SparseProbs.from_dense(probs) for probs in scores]
        return self.sampling.sparse_probs_rows(_logarithms(scores))

    def _processed(
        self,
        processor: LogitsProcessor,
        scores: Any,
        before: Sequence[Path],
        prompts: Sequence[int],
    ) -> list[SparseProbs]:
        """Process scores [M, V] after the tokens `before`, in groups of equal length."""
        scores = _logarithms(scores) if self.model.returns_probs else scores
        groups: dict[int, list[int]] = {}
        for r, tokens in enumerate(before):
            groups.setdefault(len(tokens), []).append(r)
        found: dict[int, SparseProbs] = {}
        for rows in groups.values():
            index, ids = (
                like(scores, np.array(values, dtype=np.int64))
                for values in (rows, [before[r] for r in rows])
            )
            numbers = np.array([prompts[r] for r in rows])
            row_scores = scores[index]
            processed = self._timed(processor, ids, row_scores, numbers)
            processed = self._timed(partial(to_host, widen=False), processed)
            check_processed(processed, tuple(row_scores.shape))
            found |= zip(rows, self.sampling.sparse_probs_rows(processed), strict=True)
        return [found[r] for r in range(len(before))]


def _logarithms(probs: Any) -> Any:
    """Convert probabilities to scores; log(0) = −∞ excludes a token."""
    if is_tensor(probs):
        return probs.log()
    with np.errstate(divide="ignore"):
        return np.log(probs.astype(np.float64) if is_exact(probs) else probs)


def check_scores(scores: Any, shape: tuple[int, ...], model: LanguageModel) -> None:
    """Raise unless a session returned scores of this shape [R, L, V]."""
    if not is_array(scores) or tuple(scores.shape) != shape:
        returned = getattr(scores, "shape", type(scores).__name__)
        raise InvalidDistributionError(
            f"a session of {type(model).__name__} returned scores {returned} for tokens "
            f"{shape[:2]}; they must be an array or a tensor {shape}, one number for each token "
            "of the vocabulary"
        )


def check_processed(scores: Any, shape: tuple[int, ...]) -> None:
    """Raise unless a logits processor returned scores of this shape [M, V]."""
    if not is_array(scores) or tuple(scores.shape) != shape:
        returned = getattr(scores, "shape", type(scores).__name__)
        raise InvalidDistributionError(
            f"the logits processor returned scores {returned} for scores {shape}; it must return "
            "one number for each token of the vocabulary in each row"
        )


def _tokens(
    rows: Sequence[_Row], starts: Sequence[int], ends: Sequence[int | None]
) -> npt.NDArray[np.int64]:
    """Return tokens `starts` to `ends` of each row, padded with −1 to an array."""
    triples = zip(rows, starts, ends, strict=True)
    return padded([(row.context + row.path)[a:b] for row, a, b in triples])
