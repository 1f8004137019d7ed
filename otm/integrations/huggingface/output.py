"""Return values of `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otm.models.huggingface.model import HuggingFaceModel


def as_output(
    target: HuggingFaceModel,
    input_ids: Any,
    prompts: Sequence[Sequence[int]],
    new: Sequence[Sequence[int]],
    *,
    processors: Any,
    config: Any,
) -> Any:
    """Return the sequences in the format of `generate`, with scores and logits if requested."""
    import torch
    from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

    pad = getattr(config, "_pad_token_tensor", None)
    rows = torch.nn.utils.rnn.pad_sequence(
        [input_ids.new_tensor(row) for row in new], True, 0 if pad is None else int(pad)
    )
    sequences = torch.cat([input_ids, rows], dim=1)
    if not config.return_dict_in_generate:
        return sequences
    more = {}
    if config.output_scores or config.output_logits:
        logits = _recompute_logits(target, prompts, rows.tolist())
        logits = logits.to(input_ids.device, torch.float32)
        if config.output_logits:
            more["logits"] = logits.unbind(1)
        if config.output_scores:
            cut = target.model.config.get_text_config(decoder=True).vocab_size - logits.shape[2]
            wide = torch.nn.functional.pad(logits, (0, cut), value=-torch.inf)
            befores = [sequences[:, : t - rows.shape[1]] for t in range(rows.shape[1])]
            more["scores"] = tuple(
                processors(before, wide[:, t].clone())[:, : logits.shape[2]]
                for t, before in enumerate(befores)
            )
    if target.model.config.is_encoder_decoder:
        return GenerateEncoderDecoderOutput(sequences=sequences, **more)
    return GenerateDecoderOnlyOutput(sequences=sequences, **more)


def _recompute_logits(
    target: HuggingFaceModel, prompts: Sequence[Sequence[int]], new: Sequence[Sequence[int]]
) -> Any:
    """Return the logits [B, T, V] of new tokens [B, T] from another pass over the output."""
    session = target.start(len(prompts))
    heads = np.full((len(prompts), max(map(len, prompts)) - 1), -1)
    for b, prompt in enumerate(prompts):
        heads[b, : len(prompt) - 1] = prompt[:-1]
    if heads.size:
        session.read(heads)
    tails = [[prompt[-1], *row[:-1]] for prompt, row in zip(prompts, new, strict=True)]
    return session.append(np.array(tails))
