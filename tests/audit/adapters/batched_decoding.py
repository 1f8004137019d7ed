"""Loops over several prompts, right ones and wrong ones, for tests.

These loops share no code with the audit.  They read padded tensors, with masks, positions and
caches, as loops of transformers do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from otm.audit.adapters.huggingface import causal_lm

Decode = Callable[..., list[list[int]]]


def drawn(weights: Any, uniform: Any) -> int:
    """Place a uniform among weights; only compare it, so that the audit follows each path."""
    ends = np.cumsum(weights)
    return next(i for i, end in enumerate(ends / ends[-1]) if uniform < float(end))


def ended(text: list[int], end: int | None, limit: int) -> bool:
    return len(text) >= limit or (end is not None and end in text)


def cut(text: list[int], end: int | None, limit: int) -> list[int]:
    text = text[:limit]
    return text[: text.index(end) + 1] if end in text else text


def verified(
    xs: list[int], target: Any, draft: Any, uniforms: Callable[[int], Any]
) -> tuple[int, int]:
    """Return the number of accepted drafts, and the token after them."""
    for i, x in enumerate(xs):
        t, d = float(target[i][x]), float(draft[i][x])
        if not uniforms(1)[0] < (t / d if d > 0 else 1.0):
            rest = np.maximum(target[i] - draft[i], 0)
            return i, drawn(rest if rest.sum() > 0 else target[i], uniforms(1)[0])
    return len(xs), drawn(target[len(xs)], uniforms(1)[0])


def probs_of(logits: Any) -> Any:
    return torch.softmax(logits.double(), dim=-1).numpy()


def drafts_of(
    draft: Any, prompts: Any, texts: Any, gamma: int, uniforms: Any
) -> tuple[list[list[int]], list[list[Any]]]:
    """Draw drafts without a cache, each row alone."""
    xs: list[list[int]] = []
    rows: list[list[Any]] = []
    for prompt, text, source in zip(prompts, texts, uniforms, strict=True):
        x: list[int] = []
        d: list[Any] = []
        for _ in range(gamma):
            d.append(np.asarray(draft.probs((*prompt, *text, *x)), dtype=float))
            x.append(drawn(d[-1], source(1)[0]))
        xs.append(x)
        rows.append(d)
    return xs, rows


def with_cache(
    wrong: str = "", *, end: int | None = None, at_row: int | None = None, from_step: int = 0
) -> Decode:
    """Make a loop whose cache keeps rejected drafts, hidden by the mask and skipped by positions.

    `wrong` names a mistake, in all rows or in one row, from a step on.
    """

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> list[list[int]]:
        model, size = causal_lm(target), len(prompts)
        pad = model.config.pad_token_id
        widest = max(map(len, prompts))
        ids = torch.tensor([[pad] * (widest - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (widest - len(p)) + [1] * len(p) for p in prompts])
        affected = [at_row in (None, b) for b in range(size)]
        if wrong == "padding unmasked":
            mask[affected] = 1
        texts: list[list[int]] = [[] for _ in prompts]
        before: Any = None
        cache, step = None, 0
        while not all(ended(text, end, max_tokens) for text in texts):
            now = wrong if step >= from_step else ""
            xs, ds = drafts_of(draft, prompts, texts, gamma, uniforms)
            new = torch.cat([ids, torch.tensor(xs).reshape(size, -1)], dim=1)
            mask = torch.cat([mask, torch.ones(size, gamma, dtype=mask.dtype)], dim=1)
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -new.shape[1] :]
            if now == "positions of the widest row":
                counted = torch.arange(mask.shape[1])[-new.shape[1] :]
                places[affected] = counted
            output = model(new, attention_mask=mask, position_ids=places, past_key_values=cache)
            cache = output.past_key_values
            rows = probs_of(output.logits[:, -gamma - 1 :])
            if now == "row of a neighbour":
                rows[affected] = np.roll(rows, 1, axis=0)[affected]
            if now == "row of the step before" and before is not None:
                rows, before = np.where(np.array(affected)[:, None, None], before, rows), rows
            else:
                before = rows
            done = [ended(text, end, max_tokens) for text in texts]
            last = torch.zeros(size, 1, dtype=torch.long)
            for b in range(size):
                accepted, token = verified(xs[b], rows[b], ds[b], uniforms[b])
                if not done[b]:
                    texts[b] += [*xs[b][:accepted], token]
                last[b] = token
                if not (now == "rejected drafts unmasked" and affected[b]):
                    mask[b, mask.shape[1] - gamma + accepted :] = 0
            if now == "all rows end with the first" and any(
                ended(text, end, max_tokens) for text in texts
            ):
                break
            ids, step = last, step + 1
            mask = torch.cat([mask, torch.ones(size, 1, dtype=mask.dtype)], dim=1)
        if wrong == "end overrun":
            return [text[:max_tokens] for text in texts]
        return [cut(text, end, max_tokens) for text in texts]

    return decode


def with_state(kind: str, wrong: bool = False) -> Decode:
    """Make a loop that copies the target's cache before the drafts, or crops it if `wrong`.

    All rows read the accepted tokens again, padded on the right.
    """

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> list[list[int]]:
        model = causal_lm(target, cache=kind)
        states = [model(torch.tensor([list(p[:-1] or p)])).past_key_values for p in prompts]
        left = [list(p[-1:]) if len(p) > 1 else [] for p in prompts]
        texts: list[list[int]] = [[] for _ in prompts]
        for b, prompt in enumerate(prompts):
            if len(prompt) == 1:
                # A state that has read nothing.
                states[b], left[b] = None, list(prompt)
            while len(texts[b]) < max_tokens:
                xs, ds = drafts_of(draft, [prompt], [texts[b]], gamma, [uniforms[b]])
                copied = copy.deepcopy(states[b])
                output = model(torch.tensor([left[b] + xs[0]]), past_key_values=states[b])
                accepted, token = verified(
                    xs[0], probs_of(output.logits[0, -gamma - 1 :]), ds[0], uniforms[b]
                )
                read = left[b] + xs[0][:accepted]
                if wrong:
                    states[b] = output.past_key_values
                    if accepted < gamma:
                        states[b].crop(accepted - gamma)
                    left[b] = [token]
                else:
                    states[b], left[b] = copied, [*read, token]
                texts[b] += [*xs[0][:accepted], token]
        return [text[:max_tokens] for text in texts]

    return decode
