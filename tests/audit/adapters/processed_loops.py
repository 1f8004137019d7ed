"""Decoding loops with logits processors and ends, right ones and wrong ones, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Decode = Callable[..., list[int]]

MISTAKES = (
    "once a step", "first alone", "bonus alone", "tested raw", "dropped", "argmax",
    "end overrun", "stop overrun", "too long", "too short",
)  # fmt: skip


def row(model: Any, context: Sequence[int], processor: Any, history: Any, start: int) -> Any:
    """Probabilities after a context, processed by a history, or raw without one."""
    probs = np.asarray(model.probs(tuple(context)), dtype=float)
    if processor is None or history is None:
        return probs
    with np.errstate(divide="ignore"):
        logits = processor(tuple(history), np.log(probs), prompt_length=start)
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def drawn(weights: Any, uniform: Any) -> int:
    """Place a uniform among weights; only compare it, so that the audit follows each path."""
    cdf = np.cumsum(weights)
    return next(i for i, end in enumerate(cdf / cdf[-1]) if uniform < float(end))


def ratio(t: Any, d: Any) -> float:
    """Probability that a draft is accepted; one of probability 0 occurs only at u = 1."""
    return float(t / d) if d > 0 else 1.0


def ended(text: list[int], end: int | None, stop: Any) -> int | None:
    """Return the number of tokens up to the first end."""
    ends = [(end,)] * (end is not None) + [*stop]
    lengths = range(1, len(text) + 1)
    return next((n for n in lengths if any((*text[:n],)[-len(e) :] == (*e,) for e in ends)), None)


def decoding(
    processor: Any = None,
    *,
    end: int | None = None,
    stop: Sequence[Sequence[int]] = (),
    wrong: str = "",
    raw_drafts: bool = False,
    shorter_steps: bool = False,
    first: bool = False,
) -> Decode:
    """Make a loop of chain verification; `wrong` is one of `MISTAKES`, or empty."""

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> list[int]:
        start, text = len(prompt), list(prompt)

        def target_row(context: list[int], place: int, count: int, test: bool = True) -> Any:
            """Row of the target in a step of `count` drafts that began with `text`."""
            history: Any = context
            if wrong == "once a step":
                history = text
            last = place == count
            left_out = {
                "first alone": place > 0, "bonus alone": not last, "dropped": True,
                "tested raw": test and not last,
            }  # fmt: skip
            if left_out.get(wrong):
                history = None
            probs = row(target, context, processor, history, start)
            return np.eye(len(probs))[probs.argmax()] if wrong == "argmax" else probs

        if first:
            text.append(drawn(row(target, text, processor, text, start), uniforms(1)[0]))
        while len(text) - start < max_tokens and ended(text[start:], end, stop) is None:
            count = min(gamma, max_tokens - len(text) + start - 1) if shorter_steps else gamma
            xs, ds = list[int](), list[Any]()
            for _ in range(count):
                context = text + xs
                ds.append(row(draft, context, processor, None if raw_drafts else context, start))
                xs.append(drawn(ds[-1], uniforms(1)[0]))
            for i, x in enumerate(xs):
                t = target_row(text + xs[:i], i, count)
                if not uniforms(1)[0] < ratio(t[x], ds[i][x]):
                    t = target_row(text + xs[:i], i, count, test=False)
                    rest = np.maximum(t - ds[i], 0)
                    rest = rest if rest.sum() > 0 else t
                    new = [*xs[:i], drawn(rest, uniforms(1)[0])]
                    break
            else:
                new = [*xs, drawn(target_row(text + xs, count, count), uniforms(1)[0])]
            text += new
        new = text[start:]
        limit = None if wrong == "too long" else max_tokens - (wrong == "too short")
        if wrong not in {"end overrun", "stop overrun"}:
            new = new[: ended(new, end, stop)]
        return new[:limit]

    return decode
