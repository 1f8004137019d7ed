"""A model session on a device; the device knows tokens that the host does not know yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm._core.tensors import is_tensor, on_device
from otm.decoding.reading import (
    Context,
    LogitsProcessor,
    Path,
    check_processed,
    check_scores,
)
from otm.decoding.sampling_parameters import (
    SamplingParameters,
    as_sampling,
    dtype_on_device,
    probs_on_device,
)
from otm.models.base import LanguageModel, Session, common_length, padded

SUM_TOLERANCE = 1e-3
"""Tolerance for the sum of a model's probabilities, which are divided by their sum."""

Lengths = npt.NDArray[np.int64]
Live = npt.NDArray[np.bool_]


class DeviceSession:
    """A session with one or more rows per sequence, and their next-token distributions."""

    def __init__(
        self,
        model: LanguageModel,
        sampling: SamplingParameters | None,
        processor: LogitsProcessor | None = None,
    ) -> None:
        self.model, self._sampling, self._processor = model, as_sampling(sampling), processor
        self._memory: Any = None
        self._contexts: Sequence[Context] = ()
        self._contexts_on_device: list[tuple[Lengths, Any]] | None = None
        # Seconds in the model so far; on a GPU, the time of launching its kernels.
        self.seconds = 0.0
        self._started: Session | None = None
        # Tokens of each row that the host knows.
        self._texts: list[Context] = []
        # Index of the sequence that each row belongs to.
        self._owners: list[int] = []
        # Index of the prompt that each sequence began with.
        self._prompts: list[int] = []
        # [B]: place of the first node of the last tree among the tokens read with it.
        self._first: Lengths = np.zeros(0, np.int64)

    @property
    def _session(self) -> Session:
        if self._started is None:  # pragma: no cover
            raise RuntimeError("the session has no context; call `follow` first")
        return self._started

    def follow(self, contexts: Sequence[Context], parents: Sequence[int] | None) -> None:
        """Keep one row per sequence: the row of its parent that agrees longest with its context.

        The last token of a context always stays unread.
        """
        if self._started is None or parents is None:
            self._started = self._timed(self.model.start, len(contexts))
            self._texts, self._owners = [()] * len(contexts), list(range(len(contexts)))
            parents = self._prompts = list(range(len(contexts)))
        self._prompts = [self._prompts[p] for p in parents]
        self._contexts, self._contexts_on_device = contexts, None
        owned: dict[int, list[int]] = {}
        for r, owner in enumerate(self._owners):
            owned.setdefault(owner, []).append(r)
        rows, texts = [], []
        for context, parent in zip(contexts, parents, strict=True):
            agreed, best = max((common_length(context, self._texts[r]), -r) for r in owned[parent])
            rows.append(-best)
            texts.append(context[: min(agreed, len(context) - 1)])
        self._keep(rows, texts, range(len(contexts)))

    def repeat(self, count: int) -> None:
        """Replace each row by `count` rows with the tokens that the host knows; cut the others."""
        rows = [r for r in range(len(self._texts)) for _ in range(count)]
        texts, owners = [self._texts[r] for r in rows], [self._owners[r] for r in rows]
        lengths = np.array([len(text) for text in texts], np.int64)
        self._timed(self._session.keep, np.array(rows, np.int64), lengths)
        self._texts, self._owners = texts, owners

    def learn(self, texts: Sequence[Context]) -> None:
        """Record which tokens the rows have read, once the host knows these tokens."""
        self._texts = list(texts)

    def read_contexts(self, contexts: Sequence[Context]) -> Any:
        """Read the unread tokens of each context, and return the scores after it: [B, V]."""
        self.read_before(contexts, spared=1)
        unread = zip(contexts, self._texts, strict=True)
        tokens = padded([context[len(text) :] for context, text in unread])
        scores = self._scores(self._session.append, tokens)
        self._texts = list(contexts)
        if tokens.shape[1] == 1:
            return scores[:, 0]
        rows = np.stack([np.arange(len(tokens)), (tokens >= 0).sum(1) - 1])
        return scores[tuple(on_device(rows, scores.device))]

    def read_before(self, contexts: Sequence[Context], *, spared: int = 0) -> None:
        """Read each context up to its last token, if more than `spared` tokens are unread."""
        unread = zip(contexts, self._texts, strict=True)
        tokens = padded([context[len(text) : -1] for context, text in unread])
        if tokens.shape[1] > spared:
            self._timed(self._session.read, tokens)
            self._texts = [context[:-1] for context in contexts]

    def append(self, tokens: Any, counts: Lengths) -> Any:
        """Read tokens [R, L] on the device, `counts` [R] per row; return the scores [R, L, V]."""
        return self._scores(self._session.append_tensor, tokens, counts)

    def read_tree(self, tokens: Any, parents: Any) -> Any:
        """Read the unread tokens of each context and a tree of drafts after it, at once.

        `tokens` [B, N] has −1 at unused nodes, and `parents` [B, N] has −1 after the context.
        Returns scores [B, N, V] after the nodes; [B, N + 1, V], with the scores after the context
        first, if every context had unread tokens.
        """
        torch = require("torch")
        unread = [
            context[len(text) :] for context, text in zip(self._contexts, self._texts, strict=True)
        ]
        counts = np.array([len(part) for part in unread])
        width, (batch, nodes) = int(counts.max()) + tokens.shape[1], tokens.shape
        places = np.arange(width)
        # Each token follows the one before it; what follows the last one are unused nodes.
        before = np.where(places < counts[:, None], places, counts[:, None]) - 1
        ids = np.zeros((batch, width), np.int64)
        for row, part in zip(ids, unread, strict=True):
            row[: len(part)] = part
        columns = counts[:, None] + np.arange(nodes)
        first = counts[:, None]
        ids, before, columns, first = (
            on_device(x, tokens.device) for x in (ids, before, columns, first)
        )
        ids = ids.scatter(1, columns, tokens.clamp(min=0))
        before = before.scatter(1, columns, torch.where(parents < 0, first - 1, parents + first))
        scores = self._scores(self._session.append_tree, ids, before, counts)
        self._texts, self._first = list(self._contexts), counts
        if counts.max() <= 1:
            return scores
        after = torch.cat([first - 1, columns], 1)
        return scores[torch.arange(batch, device=tokens.device)[:, None], after]

    def keep_paths(self, paths: Sequence[Sequence[int]], drafts: Sequence[Path]) -> None:
        """Let each row keep the nodes `paths` of the last tree, whose tokens are `drafts`."""
        entries = padded(
            [[n + node for node in p] for n, p in zip(self._first, paths, strict=True)]
        )
        if entries.size:
            self._timed(self._session.keep_paths, entries)
            self._texts = [t + path for t, path in zip(self._texts, drafts, strict=True)]

    def memory(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Return memory for the distributions of these scores; it is valid until the next call.

        Memory is reused, because an allocation takes longer than the computation.
        """
        memory, dtype = self._memory, dtype_on_device(self._sampling, like)
        if memory is None or (memory.shape, memory.dtype, memory.device) != (
            shape,
            dtype,
            like.device,
        ):
            self._memory = like.new_empty(shape, dtype=dtype)
        return self._memory

    def tree_probs(self, scores: Any, *, keep: bool) -> tuple[Any, Any]:
        """Return distributions of scores [B, n, V] and their validity, without logits processors.

        With `keep`, the distributions stay valid after the next call.
        """
        shape = tuple(scores.shape)
        if keep:
            out = scores.new_empty(shape, dtype=dtype_on_device(self._sampling, scores))
        else:
            out = self.memory(scores, shape)
        return self.probs(scores, None, np.ones(shape[:2], np.bool_), out)

    def probs(self, scores: Any, drafts: Any, live: Live, out: Any) -> tuple[Any, Any]:
        """Return distributions of scores [B, C, V] after drafts [B, C, i], and their validity.

        Entries that are not `live` [B, C] lie after the end of a chain and are never read.  The
        distributions are written to `out`.
        """
        valid_sums = True
        if self.model.returns_probs:
            total = scores.double().sum(-1)
            valid_sums = ((total - 1).abs() <= SUM_TOLERANCE) & (scores.amin(-1) >= 0)
            if self._sampling == SamplingParameters() and self._processor is None:
                return out.copy_(scores / total[..., None]), valid_sums
            scores = scores.log()
        if self._processor is not None:
            scores = self._processed(self._processor, scores, drafts, live)
        probs, good = probs_on_device(self._sampling, scores, out)
        return probs, good & valid_sums

    def probs_along(self, scores: Any, drafts: Any, lengths: Lengths) -> tuple[Any, Any]:
        """Apply `probs` to scores [B, K, γ + 1, V] after each prefix of the drafts [B, K, γ].

        `lengths` [B, K] are the lengths of the chains.  The distributions are valid until the next
        call.
        """
        out = self.memory(scores, scores.shape)
        if self._processor is None:
            return self.probs(scores, drafts, lengths >= 0, out)
        good = [
            self.probs(scores[:, :, i], drafts[:, :, :i], lengths >= i, out[:, :, i])[1]
            for i in range(scores.shape[2])
        ]
        return out, require("torch").stack(good, 2)

    def _processed(self, processor: LogitsProcessor, scores: Any, drafts: Any, live: Live) -> Any:
        """Process the live scores [B, C, V], in groups of contexts of equal length."""
        torch = require("torch")
        # The processor may return another dtype than the model.
        wide = torch.promote_types(scores.dtype, torch.float32)
        result = scores.to(wide, copy=True)
        for sequences, known in self._contexts_by_length(scores.device):
            rows, chains = np.nonzero(live[sequences])
            if not rows.size:
                continue
            place = [on_device(x, scores.device) for x in (sequences[rows], chains)]
            before = known[on_device(rows, scores.device)]
            ids = torch.cat([before, drafts[tuple(place)]], 1)
            row_scores = scores[tuple(place)]
            prompts = np.array(self._prompts)[sequences[rows]]
            processed = self._timed(processor, ids, row_scores, prompts)
            check_processed(processed, tuple(row_scores.shape))
            result[tuple(place)] = torch.as_tensor(processed, dtype=wide, device=result.device)
        return result

    def _contexts_by_length(self, device: Any) -> list[tuple[Lengths, Any]]:
        """Return groups of sequences with contexts of equal length, and their contexts as tensors.

        The tensors are built once per step.
        """
        if self._contexts_on_device is None:
            lengths = np.array(list(map(len, self._contexts)))
            groups = [np.flatnonzero(lengths == length) for length in np.unique(lengths)]
            self._contexts_on_device = [
                (group, on_device(np.array([self._contexts[b] for b in group.tolist()]), device))
                for group in groups
            ]
        return self._contexts_on_device

    def _scores(self, append: Callable[..., Any], *arguments: Any) -> Any:
        """Read tokens with a method of the session, and return the scores as a tensor."""
        scores = self._timed(append, *arguments)
        check_scores(scores, (*arguments[0].shape, self.model.vocabulary), self.model)
        if is_tensor(scores):
            return scores
        return require("torch").from_numpy(scores.astype(np.float64))

    def _keep(self, rows: Sequence[int], texts: Sequence[Context], owners: Sequence[int]) -> None:
        """Make the session continue from the rows `rows`, cut to the tokens `texts`."""
        if list(rows) != list(range(len(self._texts))) or texts != self._texts:
            lengths = np.array([len(text) for text in texts], np.int64)
            self._timed(self._session.keep, np.array(rows, np.int64), lengths)
        self._texts, self._owners = list(texts), list(owners)

    def _timed(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        answer = ask(*arguments)
        self.seconds += time.perf_counter() - start
        return answer
