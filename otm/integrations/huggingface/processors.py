"""Logits processors of transformers, for any rows of its batch at once.

`generate` calls a processor with the B rows of its batch, as long as they are by then.  Drafts need
scores of several rows of a sequence, and of sequences that do not grow alike.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from otm._core.tensors import is_tensor, on_device
from otm.errors import InvalidParameterError

STATEFUL = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "reads the batch with a cache of its own",
    "SynthIDTextWatermarkLogitsProcessor": "remembers the contexts of its calls",
    "ClassifierFreeGuidanceLogitsProcessor": "needs scores of a second batch",
    "DiaClassifierFreeGuidanceLogitsProcessor": "needs scores of a second batch",
    "DiaEOSChannelFilterLogitsProcessor": "needs several tokens at a time",
    "DiaEOSDelayPatternLogitsProcessor": "counts its calls",
    "WhisperNoSpeechDetection": "keeps what it sees in its first call",
}
"""Processors that are no functions of the tokens before, and why."""

BY_ROW = {
    *("TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper"),
    *("TopHLogitsWarper", "TypicalLogitsWarper", "EpsilonLogitsWarper", "EtaLogitsWarper"),
    *("MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "LogitNormalization"),
    *("NoRepeatNGramLogitsProcessor", "SequenceBiasLogitsProcessor", "NoBadWordsLogitsProcessor"),
    *("ForcedBOSTokenLogitsProcessor", "ForcedEOSTokenLogitsProcessor"),
    *("InfNanRemoveLogitsProcessor", "ExponentialDecayLengthPenalty", "WatermarkLogitsProcessor"),
    *("SuppressTokensLogitsProcessor", "SuppressTokensAtBeginLogitsProcessor"),
    "RepetitionPenaltyLogitsProcessor",
}
"""Processors to which it is all the same where in the batch a row stands."""


def kind_of(processor: Any) -> str:
    """Return the name of a processor of transformers, and nothing for those of others."""
    kind = type(processor)
    return kind.__name__ if kind.__module__.startswith("transformers.") else ""


def check_processors(processors: Sequence[Any]) -> None:
    """Refuse processors that are known to be no functions of the tokens before."""
    for processor in processors:
        for kind in type(processor).__mro__:
            if kind.__name__ in STATEFUL:
                raise InvalidParameterError(
                    f"{type(processor).__name__} cannot be honoured where drafts are verified, "
                    f"since it {STATEFUL[kind.__name__]}; leave it out, or leave out the drafts"
                )


class BatchProcessor:
    """The processors of a call of `generate`, as a `LogitsProcessor` of the decoding loop.

    A row begins with the input as `generate` has it, padding included.  Rows that go on behind an
    end token are left as they are: what is there is cut off, and `generate` never asks for it.
    """

    def __init__(
        self,
        processors: Sequence[Any],
        input_ids: Any,
        prompts: Sequence[Sequence[int]],
        end: Collection[int],
        size: int,
    ) -> None:
        self._processors, self._input_ids = processors, input_ids
        self._lengths = np.array([len(prompt) for prompt in prompts])  # without padding
        self._end = input_ids.new_tensor(list(end))
        self._size = size  # of the vocabulary that the processors know
        # these take anything; others may refuse what stands behind an end token
        self._any_rows = all(kind_of(processor) in BY_ROW for processor in processors)

    def __call__(self, tokens: Any, scores: Any, prompts: Any) -> Any:
        """Process scores [M, V] after tokens [M, L] of sequences [M], an array."""
        import torch

        device = self._input_ids.device
        given = scores.to(device, torch.float32, copy=True, non_blocking=True)  # as `generate` does
        if (cut := self._size - given.shape[1]) > 0:
            given = torch.nn.functional.pad(given, (0, cut), value=-torch.inf)
        processed, tokens = given.clone(), tokens.to(device, non_blocking=True)
        begun = self._lengths[prompts]
        for length in np.unique(begun):
            ended = torch.isin(tokens[:, length:], self._end).any(1)
            here = begun == length
            if not self._any_rows:
                here &= ~ended.cpu().numpy()
            rows = np.flatnonzero(here)
            if rows.size:
                index, chosen = on_device(rows, device), prompts[rows].tolist()
                first = self._input_ids[on_device(prompts[rows], device)]
                ids = torch.cat([first, tokens[index, length:]], dim=1)
                new = self._process(ids, given[index], chosen)
                processed[index] = torch.where(ended[index, None], given[index], new)
        return processed[:, : scores.shape[1]].to(scores.device, non_blocking=True)

    def _process(self, ids: Any, scores: Any, sequences: list[int]) -> Any:
        """Process scores after rows as `generate` has them, all of one length."""
        for processor in self._processors:
            placed = _for_rows(processor, sequences)
            if placed is None:
                scores = self._in_places(processor, ids, scores, sequences)
            else:
                scores = placed(ids, scores)
        return scores

    def _in_places(self, processor: Any, ids: Any, scores: Any, sequences: list[int]) -> Any:
        """Call a processor with B rows, each where its sequence stands in the batch."""
        seen = Counter[int]()
        turns = []
        for b in sequences:
            turns.append(seen[b])
            seen[b] += 1
        processed = scores.clone()
        for turn in range(max(turns) + 1):
            rows = [row for row, t in enumerate(turns) if t == turn]
            batch = rows[:1] * len(self._input_ids)  # for the sequences that have no row
            for row in rows:
                batch[sequences[row]] = row
            answer = processor(ids[batch], scores[batch])
            processed[rows] = answer[[sequences[row] for row in rows]]
        return processed


def _for_rows(processor: Any, sequences: list[int]) -> Any:
    """Return a processor for rows of these sequences; None if it must see its whole batch."""
    kind = kind_of(processor)
    if kind == "PrefixConstrainedLogitsProcessor":
        allowed = processor._prefix_allowed_tokens_fn
        return type(processor)(lambda row, tokens: allowed(sequences[row], tokens), 1)
    if is_tensor(getattr(processor, "prompt_ignore_length", None)):
        placed = copy.copy(processor)
        placed.prompt_ignore_length = processor.prompt_ignore_length[sequences]
        return placed if kind in BY_ROW else None
    return processor if kind in BY_ROW else None
