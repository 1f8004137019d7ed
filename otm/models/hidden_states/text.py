"""Training text: a target's own answers to requests, with its hidden states, in files.

File b holds the answers to one batch of requests.  Its contents depend only on the target and on
b, so an interrupted run continues, and several processes can share the work.  The target writes the
requests of every second file itself, by continuing the beginning of a user's turn
([xu2025magpie]_).  All other requests come from templates.

References
----------
.. [xu2025magpie] Xu et al., "Magpie: Alignment Data Synthesis from Scratch by Prompting Aligned
   LLMs with Nothing", ICLR 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otm._core.optional import require
from otm.errors import InvalidInputError
from otm.models.hidden_states.prompts import prompts
from otm.models.huggingface.chat import chat_tokens, tokens_around
from otm.models.huggingface.model import HuggingFaceModel

KINDS = "article", "chat", "code", "chat", "story", "summary"
"""Kinds of six consecutive files of templates; the last one summarizes texts of the first one."""

COOL = 3
"""One file in five, those with b % 5 == 3, is sampled at temperature 0.7, and all others at 1."""

ANSWER = 192
"""Largest number of tokens of an answer."""

OWN, OWN_TEMPERATURE = 48, 0.8
"""Largest number of tokens of a request by the target, and the temperature of such requests."""

REQUESTS = 1500
"""Number of requests from templates; those of the most frequent length become a file."""

SOURCE = 150, 230
"""Range of the length of prompts with a text to summarize."""

Encode = Callable[[str], list[int]]


class Text(NamedTuple):
    """Answers to B prompts, as tensors."""

    # int64 [B, T]: prompts and answers.
    tokens: Any
    # bfloat16 [B, T, S · D]: the target's hidden states after each token.
    states: Any
    # float32 [B, T]: log Σ exp of the logits after each token of an answer, at temperature 1.
    log_totals: Any
    # int64 [B]: number of tokens of prompt and answer.
    lengths: Any
    # int64 [B]: number of tokens of each prompt.
    prompts: Any


def text_file(folder: Path, batch: int, *, held_out: bool) -> Path:
    """Return the path of a file of text."""
    return folder / f"{'held_out' if held_out else 'text'}_{batch:03}.safetensors"


def load_text(path: Path) -> Text:
    """Read a file of text."""
    return Text(**require("safetensors.torch").load_file(path))


def write_text(
    target: HuggingFaceModel,
    layers: Sequence[int],
    folder: Path,
    batch: int,
    rows: int,
    *,
    held_out: bool,
) -> Path:
    """Sample a file of text, unless it exists, and return its path."""
    torch_files = require("safetensors.torch")
    torch = require("torch")
    path = text_file(folder, batch, held_out=held_out)
    if path.exists():
        return path
    if target.tokenizer is None:
        raise InvalidInputError("the target has no tokenizer; give tokenizer= to HuggingFaceModel")
    generator = torch.Generator().manual_seed(1000 * held_out + batch)
    temperature = 0.7 if batch % 5 == COOL else 1.0
    if held_out or batch % 2:
        chosen = _prompts(target.tokenizer, folder, batch, rows, held_out=held_out)
        text = sample(target, layers, torch.tensor(chosen), temperature, generator)
    else:
        start, end = tokens_around(target.tokenizer)
        text = sample(
            target, layers, torch.tensor([start] * rows), temperature, generator, end_of_turn=end
        )
    part = path.with_suffix(".part")
    torch_files.save_file({k: v.contiguous() for k, v in text._asdict().items()}, part)
    return part.replace(path)


def sample(
    target: HuggingFaceModel,
    layers: Sequence[int],
    starts: Any,
    temperature: float,
    generator: Any,
    *,
    end_of_turn: Sequence[int] = (),
) -> Text:
    """Sample answers until three quarters of them have ended.

    Without `end_of_turn`, the starts [B, L] are prompts.  Otherwise the target continues each of
    them to a request, which ends with these tokens, and then answers it.
    """
    torch = require("torch")
    count, given = starts.shape
    target.remember_states(layers)
    session: Any = target.start(count)
    ones = np.ones(count, np.int64)
    ends = target.model.generation_config.eos_token_id
    ends = torch.tensor(ends if isinstance(ends, list) else [ends])
    closing = torch.tensor(end_of_turn, dtype=torch.int64)
    # For each row: tokens of its prompt, or 0 while unknown, and tokens of `closing` so far.
    prompts = torch.full((count,), 0 if end_of_turn else given)
    closed = torch.zeros(count, dtype=torch.int64)
    longest = given + ANSWER + (OWN + len(end_of_turn) if end_of_turn else 0)
    lengths = torch.full((count,), longest)
    totals = []
    new = starts[:, -1:]
    tokens = [starts]
    with torch.inference_mode():
        session.read(starts[:, :-1].numpy())
        for length in range(given + 1, longest + 1):
            logits = session.append_tensor(new, ones)[:, 0].float()
            totals.append(logits.logsumexp(-1))
            asks = prompts == 0
            heat = torch.where(asks, OWN_TEMPERATURE, temperature)[:, None]
            sums = (logits / heat).softmax(-1).cumsum(-1)
            points = torch.rand(count, 1, generator=generator) * sums[:, -1:]
            new = torch.searchsorted(sums, points, right=True).clamp(max=logits.shape[-1] - 1)
            ended = torch.isin(new[:, 0], ends)
            closes = asks & ((closed > 0) | ended | (length > given + OWN))
            new[closes, 0] = closing[closed[closes]]
            closed[closes] += 1
            prompts[closes & (closed == len(end_of_turn))] = length
            tokens.append(new)
            lengths[ended & ~asks & (lengths > length)] = length
            if (lengths <= length).float().mean() > 0.75:
                break
    # A request without an end has no answer.
    prompts[prompts == 0] = length
    states = torch.stack([session.states.of(row) for row in range(count)])
    log_totals = torch.nn.functional.pad(torch.stack(totals, 1), (given - 1, 0))
    # Nothing was read after the last token.
    every = torch.cat(tokens, 1)[:, : states.shape[1]]
    lengths, prompts = (counts.clamp(max=every.shape[1]) for counts in (lengths, prompts))
    return Text(every, states.bfloat16(), log_totals, lengths, prompts)


def _prompts(
    tokenizer: Any, folder: Path, batch: int, rows: int, *, held_out: bool
) -> list[list[int]]:
    """Return at most `rows` prompts of equal length from the templates of a file."""
    rng = np.random.default_rng([0, batch, held_out])

    encode = partial(chat_tokens, tokenizer)
    # Every second file for training has templates.
    apart = 1 if held_out else 2
    kind = KINDS[batch // apart % len(KINDS)]
    if kind == KINDS[-1]:
        first = batch - apart * (len(KINDS) - 1)
        source = load_text(text_file(folder, first, held_out=held_out))
        requests = prompts(kind, len(source.tokens), rng, held_out=held_out)
        length = int(rng.integers(*SOURCE))
        texts = [
            tokenizer.decode(ids[start:end].tolist(), skip_special_tokens=True).strip()
            for ids, start, end in zip(source.tokens, source.prompts, source.lengths, strict=True)
        ]
        pairs = zip(requests, texts, strict=True)
        cut = (_cut(request, text, length, tokenizer, encode) for request, text in pairs)
        return [ids for ids in cut if ids is not None][:rows]
    by_length: dict[int, list[list[int]]] = {}
    for request in dict.fromkeys(prompts(kind, REQUESTS, rng, held_out=held_out)):
        ids = encode(request)
        by_length.setdefault(len(ids), []).append(ids)
    most = max(by_length.values(), key=len)
    return (most * rows)[:rows]


def _cut(request: str, text: str, length: int, tokenizer: Any, encode: Encode) -> list[int] | None:
    """Return a prompt of exactly `length` tokens with the beginning of a text; None if it fails."""
    ids = tokenizer(text).input_ids
    over = len(encode(f"{request}\n\n{text}")) - length
    # Tokens at the cut can merge differently, so that several cuts are tried.
    for cut in range(over, min(over + 4, len(ids))) if over >= 0 else ():
        prompt = encode(f"{request}\n\n{tokenizer.decode(ids[: len(ids) - cut])}")
        if len(prompt) == length:
            return prompt
    return None
