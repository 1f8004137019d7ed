"""Logits processors of transformers, applied to any rows of the batch.

`generate` calls a processor with all B rows of its batch, which have the same length.  Verification
of drafts needs scores of several rows per sequence, and the sequences differ in length.
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
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "reads the batch with its own cache",
    "SynthIDTextWatermarkLogitsProcessor": "remembers the contexts of its calls",
    "ClassifierFreeGuidanceLogitsProcessor": "needs scores of a second batch",
    "DiaClassifierFreeGuidanceLogitsProcessor": "needs scores of a second batch",
    "DiaEOSChannelFilterLogitsProcessor": "needs several tokens at a time",
    "DiaEOSDelayPatternLogitsProcessor": "counts its calls",
    "WhisperNoSpeechDetection": "stores the input of its first call",
}
"""Processors whose result does not depend on the tokens of a row alone, each with the reason."""

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
"""Processors whose result does not depend on the position of a row in the batch."""


def kind_of(processor: Any) -> str:
    """Return the class name of a transformers processor; an empty string for other processors."""
    kind = type(processor)
    return kind.__name__ if kind.__module__.startswith("transformers.") else ""


def check_processors(processors: Sequence[Any]) -> None:
    """Raise if a known processor does not compute its result from the tokens of a row alone."""
    for processor in processors:
        for kind in type(processor).__mro__:
            if kind.__name__ in STATEFUL:
                raise InvalidParameterError(
                    f"{type(processor).__name__} is not possible with drafts, because it "
                    f"{STATEFUL[kind.__name__]}; remove the processor, or decode without drafts"
                )


class BatchProcessor:
    """The processors of a `generate` call, as one `LogitsProcessor` of the decoding loop.

    Each row begins with the input of `generate`, including padding.  Rows that continue after an
    end token stay unprocessed: the loop cuts these tokens off, and `generate` never computes them.
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
        # Lengths of the prompts without padding.
        self._lengths = np.array([len(prompt) for prompt in prompts])
        self._end = input_ids.new_tensor(list(end))
        # Vocabulary size that the processors expect.
        self._size = size
        # Known processors accept any row; others may fail on tokens after an end token.
        self._any_rows = all(kind_of(processor) in BY_ROW for processor in processors)

    def __call__(self, tokens: Any, scores: Any, prompts: Any) -> Any:
        """Return processed scores [M, V] after tokens [M, L]; `prompts` [M] are prompt indices.

        The arguments are tensors, or arrays for a draft model without torch.
        """
        import torch

        device = self._input_ids.device
        tokens, scores = torch.as_tensor(tokens), torch.as_tensor(scores)
        # `generate` also processes scores in float32.
        padded = scores.to(device, torch.float32, copy=True, non_blocking=True)
        if (missing := self._size - padded.shape[1]) > 0:
            padded = torch.nn.functional.pad(padded, (0, missing), value=-torch.inf)
        processed, tokens = padded.clone(), tokens.to(device, non_blocking=True)
        prompt_lengths = self._lengths[prompts]
        for length in np.unique(prompt_lengths):
            ended = torch.isin(tokens[:, length:], self._end).any(1)
            here = prompt_lengths == length
            if not self._any_rows:
                here &= ~ended.cpu().numpy()
            rows = np.flatnonzero(here)
            if rows.size:
                index, chosen = on_device(rows, device), prompts[rows].tolist()
                first = self._input_ids[on_device(prompts[rows], device)]
                ids = torch.cat([first, tokens[index, length:]], dim=1)
                new = self._process(ids, padded[index], chosen)
                processed[index] = torch.where(ended[index, None], padded[index], new)
        return processed[:, : scores.shape[1]].to(scores.device, non_blocking=True)

    def _process(self, ids: Any, scores: Any, sequences: list[int]) -> Any:
        """Process scores after rows of equal length, in the format of `generate`."""
        for processor in self._processors:
            row_processor = _for_rows(processor, sequences)
            if row_processor is None:
                scores = self._in_places(processor, ids, scores, sequences)
            else:
                scores = row_processor(ids, scores)
        return scores

    def _in_places(self, processor: Any, ids: Any, scores: Any, sequences: list[int]) -> Any:
        """Call a processor with B rows; each row stands at the batch index of its sequence."""
        seen = Counter[int]()
        turns = []
        for b in sequences:
            turns.append(seen[b])
            seen[b] += 1
        processed = scores.clone()
        for turn in range(max(turns) + 1):
            rows = [row for row, t in enumerate(turns) if t == turn]
            # Sequences without a row get a copy of the first row, whose result is not used.
            batch = rows[:1] * len(self._input_ids)
            for row in rows:
                batch[sequences[row]] = row
            answer = processor(ids[batch], scores[batch])
            processed[rows] = answer[[sequences[row] for row in rows]]
        return processed


def _for_rows(processor: Any, sequences: list[int]) -> Any:
    """Return a processor for rows that continue `sequences`; None if it needs the whole batch."""
    kind = kind_of(processor)
    if kind == "PrefixConstrainedLogitsProcessor":
        allowed = processor._prefix_allowed_tokens_fn
        return type(processor)(lambda row, tokens: allowed(sequences[row], tokens), 1)
    if is_tensor(getattr(processor, "prompt_ignore_length", None)):
        copied = copy.copy(processor)
        copied.prompt_ignore_length = processor.prompt_ignore_length[sequences]
        return copied if kind in BY_ROW else None
    return processor if kind in BY_ROW else None
