"""Bugs in loops that apply logits processors at wrong positions, or end texts at wrong positions.

Each mistake of a processor is a verifier of one step on the processed target of the audit
(`otm.audit.adapters.processed`); a loop repeats it.  `otm.audit.diagnose.processor_diagnosis`
recognizes these mistakes.
"""

from __future__ import annotations

from otm._core.arithmetic import Probs
from otm.audit import processors
from otm.audit.adapters.base import AFTER_END, AFTER_STOP, TOO_LONG, TOO_SHORT, Instance
from otm.audit.adapters.processed import ProcessedModel, Processing, first_end, raw
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.audit.diagnose.known_bugs.steps import (
    Chain,
    Repeated,
    Rows,
    TestedRows,
    greedy_probs,
)
from otm.decoding.reading import Path

EXAMPLE = Processing(processors.penalties(repetition=2, presence=1))
"""Processor for audits of these bugs themselves (`otm audit --known-bugs`)."""


def _raw(instance: Instance, rows: Rows) -> list[Probs]:
    """Return the unprocessed target rows of a step."""
    model, path = raw(instance.target), instance.prompt + rows.tokens
    return [model.probs(path[: len(instance.prompt) + i]) for i in range(len(rows.tokens) + 1)]


def _dropped(instance: Instance, rows: Rows) -> Rows:
    return rows._replace(target=_raw(instance, rows))


def _bonus_alone(instance: Instance, rows: Rows) -> Rows:
    return rows._replace(target=[*_raw(instance, rows)[:-1], rows.target[-1]])


def _first_alone(instance: Instance, rows: Rows) -> Rows:
    return rows._replace(target=[rows.target[0], *_raw(instance, rows)[1:]])


def _once_a_step(instance: Instance, rows: Rows) -> Rows:
    model, path = instance.target, instance.prompt + rows.tokens
    if not isinstance(model, ProcessedModel):
        return rows
    ends = range(len(instance.prompt), len(path) + 1)
    return rows._replace(target=[model.after(path[:end], instance.prompt) for end in ends])


def _tested_raw(instance: Instance, rows: Rows) -> Rows:
    """Test the drafts by raw rows; replace them, and draw the bonus token, by processed rows."""
    return TestedRows.of(rows, _raw(instance, rows)[:-1])


PROCESSED: tuple[KnownBug, ...] = tuple(
    KnownBug(Repeated(step, False, processor=EXAMPLE), mistake, summary, threads)
    for step, mistake, summary, threads in (
        (
            Chain("processor applied once a step", shown=_once_a_step),
            "processor with a stale history",
            "All rows of a step are processed with the tokens before the step, without the drafts.",
            ("sgl-project/sglang #33643", "sgl-project/sglang #28180", "sgl-project/sglang #22049"),
        ),
        (
            Chain("processor at the first position alone", shown=_first_alone),
            "processor missing at some positions",
            "Only the first row of a step is processed; masks and lengths are ignored at others.",
            ("vllm-project/vllm #44297",),
        ),
        (
            Chain("processor on the bonus token alone", shown=_bonus_alone),
            "processor missing at some positions",
            "Only the row after all accepted drafts is processed.",
            ("vllm-project/vllm #42744",),
        ),
        (
            Chain("processor missing in the test of drafts", shown=_tested_raw),
            "processor missing at some positions",
            "Unprocessed rows test drafts; replacements and bonus tokens come from processed rows.",
            (),
        ),
        (
            Chain("processor dropped", shown=_dropped),
            "processor missing",
            "The processor is ignored: all tokens follow the unprocessed target.",
            ("NVIDIA/TensorRT-LLM #17701", "NVIDIA/TensorRT-LLM #17955"),
        ),
        (
            Chain("filter, then argmax", aim=greedy_probs),
            "argmax in place of sampling",
            "The processed target is used at temperature 0: its most probable token is certain.",
            (),
        ),
    )
)
"""Mistakes of loops with a processor; the audit names them only for such loops."""


def _kept(tokens: Path, ends: tuple[Path, ...], limit: int) -> Path:
    """Keep the tokens of the last step after the end of the text."""
    return tokens[:limit]


def _kept_at_limit(tokens: Path, ends: tuple[Path, ...], limit: int) -> Path:
    """Keep the tokens of the last step beyond the limit."""
    found = first_end(tokens, ends)
    return tokens[: found[0]] if found else tokens


def _without_last(tokens: Path, ends: tuple[Path, ...], limit: int) -> Path:
    """Drop the last token."""
    return tokens[: limit - 1]


ENDINGS: tuple[KnownBug, ...] = tuple(
    KnownBug(Repeated(Chain(name), True, finish=finish, **options), mistake, summary, threads)
    for name, mistake, finish, options, summary, threads in (
        (
            AFTER_END, "tokens after the end", _kept, {"end": 1},
            "An end token inside a block stops the loop, which keeps the tokens after it.",
            ("huggingface/transformers #47912",),
        ),
        (
            AFTER_STOP, "tokens after the end", _kept, {"stop": ((0, 1),)},
            "The text continues after the first stop sequence that it contains.",
            ("sgl-project/sglang #31599", "sgl-project/sglang #33758"),
        ),
        (
            TOO_LONG, "wrong length", _kept_at_limit, {},
            "The tokens of the last step are kept, even if the text exceeds max_tokens.",
            (),
        ),
        (
            TOO_SHORT, "wrong length", _without_last, {},
            "The text has fewer than max_tokens tokens, and no end.",
            (),
        ),
    )
)  # fmt: skip
"""Mistakes at the end of a text; the audit recognizes them by the failures that they cause."""
