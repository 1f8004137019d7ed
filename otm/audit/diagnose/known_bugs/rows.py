"""Bugs of loops over several prompts, where rows accept different numbers of drafts.

Rows of a batch then need their own positions, masks and states (arXiv 2510.22876).  The audit
recognizes these bugs by the texts that they cause (`otm.audit.adapters.neighbours`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.batched_loops import loops
from otm.audit.adapters.huggingface.caches import LOST, POSITIONS
from otm.audit.adapters.loops import loop
from otm.audit.adapters.neighbours import (
    DEPENDENT,
    MIXED,
    OTHER_ROW,
    STALE,
    START,
    STOPPED,
)
from otm.audit.adapters.processed import first_end
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.audit.diagnose.known_bugs.steps import Chain, Rows, cut_at_end
from otm.decoding.reading import Path

END = 1
"""End token of the loop whose rows end together."""


@dataclass(frozen=True)
class Batch:
    """The prompts and texts of a batch in a step, and the memory of earlier steps of each row."""

    prompts: list[Path]
    texts: list[Path]
    memory: dict[int, Any] = field(default_factory=dict)

    def padding(self, b: int) -> int:
        """Return the number of tokens by which a prompt is shorter than the longest."""
        return max(map(len, self.prompts)) - len(self.prompts[b])


Reads = Callable[[Batch, int, Instance, Rows], Rows]
"""Function that returns the rows of a step, from a batch, a row, its step and its right rows."""


def decoding(
    reads: Reads | None = None,
    *,
    cut: bool = False,
    ends: tuple[Path, ...] = (),
    first_ends_all: bool = False,
    shared: bool = False,
) -> Callable[..., Any]:
    """Make a loop of chain verification over several prompts; without arguments it is right.

    Near the limit the loop drafts fewer tokens; with `cut` it cuts the text instead.
    """

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> list[Path]:
        batch = Batch(list(map(tuple, prompts)), [()] * len(prompts))
        # The steps of known bugs need fractions.
        models = [getattr(model, "in_fractions", model) for model in (target, draft)]
        texts, rows = batch.texts, range(len(prompts))

        def has_ended(b: int) -> bool:
            return len(texts[b]) >= max_tokens or first_end(texts[b], ends) is not None

        def advance(b: int) -> None:
            drafts = gamma if cut else min(gamma, max_tokens - len(texts[b]) - 1)
            here = Instance(models[0], models[1], drafts, prompt=batch.prompts[b] + texts[b])
            step = Chain(shown=lambda here, right: reads(batch, b, here, right) if reads else right)
            output = step.output(here, uniforms[0 if shared else b])
            texts[b] = cut_at_end(texts[b] + output, ends, max_tokens)

        while not all(map(has_ended, rows)):
            for b in rows:
                if not has_ended(b):
                    advance(b)
            if first_ends_all and any(map(has_ended, rows)):
                break
        return texts

    return decode


def for_one_prompt(decode: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a loop over several prompts into a loop over one prompt."""

    def decode_one(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> Path:
        text: Path = decode(target, draft, [prompt], gamma, max_tokens, [uniforms])[0]
        return text

    return decode_one


def _next_row(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    other = (b + 1) % len(batch.texts)
    path = batch.prompts[other] + batch.texts[other]
    return rows._replace(target=[step.target.probs(path) for _ in rows.target])


def _after(path: Path, step: Instance, rows: Rows) -> Rows:
    """Read the target after a path and each of the drafts."""
    paths = [path + rows.tokens[:i] for i in range(len(rows.target))]
    return rows._replace(target=[step.target.probs(each) for each in paths])


def _with_padding(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    target: Any = step.target
    return _after((target.pad,) * batch.padding(b) + step.prompt, step, rows)


def _after_a_start(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    target: Any = step.target
    return _after((target.pad, *step.prompt), step, rows)


def _with_fault(fault: str, step: Instance, rows: Rows) -> Rows:
    target: Any = step.target
    return rows._replace(target=[target.wrong_row(fault) for _ in rows.target])


def _counting_padding(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    return _with_fault(POSITIONS, step, rows) if batch.padding(b) else rows


def _all_read(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    """Read the drafts of all earlier steps, also the rejected ones."""
    path = (*batch.memory[b], step.prompt[-1]) if b in batch.memory else step.prompt
    batch.memory[b] = path + rows.tokens
    return _after(path, step, rows)


def _cropped(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    """Lose tokens of the window if drafts of an earlier step were rejected."""
    read = batch.memory.get(b, ())
    batch.memory[b] = step.prompt + rows.tokens
    return rows if read == step.prompt[: len(read)] else _with_fault(LOST, step, rows)


def _target_before(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    before = batch.memory.get(b, rows.target)
    batch.memory[b] = rows.target
    return rows._replace(target=[*before, *rows.target[len(before) :]][: len(rows.target)])


def _draft_before(batch: Batch, b: int, step: Instance, rows: Rows) -> Rows:
    before = batch.memory.get(b, rows.draft)
    batch.memory[b] = rows.draft
    return rows._replace(draft=[*before, *rows.draft[len(before) :]][: len(rows.draft)])


ROWS: tuple[KnownBug, ...] = tuple(
    KnownBug(loops(decode, name=name, **options), mistake, summary, threads)
    for name, decode, options, mistake, summary, threads in (
        (
            OTHER_ROW, decoding(_next_row), {}, "rows mixed up",
            "A row gets tokens, or distributions, that belong to another row of the batch.",
            ("vllm-project/vllm #14645",),
        ),
        (
            MIXED, decoding(_with_padding), {}, "wrong mask",
            "Padding, or tokens of another row, are read as a part of a row's text.",
            (),
        ),
        (
            START, decoding(_after_a_start), {}, "another prompt",
            "The loop adds a token, such as a start token, in front of each prompt.",
            (),
        ),
        (
            POSITIONS, decoding(_counting_padding), {}, "wrong positions",
            "The positions of a row count padding or rejected drafts, or do not count its tokens.",
            (),
        ),
        (
            STALE, decoding(_all_read), {}, "state not rewound",
            "After a rejection, the rejected drafts stay in a row's cache or state.",
            ("vllm-project/vllm #39273", "ml-explore/mlx-lm #1109", "ml-explore/mlx-lm #1423"),
        ),
        (
            LOST, decoding(_cropped), {}, "state not rewound",
            "A rotating cache is cropped, although it has overwritten earlier tokens.",
            (),
        ),
        (
            STOPPED, decoding(ends=((END,),), first_ends_all=True), {"end": END},
            "rows end together",
            "The text of a row ends where the text of another row ends.",
            (),
        ),
        (
            DEPENDENT, decoding(shared=True), {}, "rows mixed up",
            "With the same uniforms, the text of a row changes with the other rows of the batch.",
            (),
        ),
    )
)  # fmt: skip
"""Bugs of batches; the audit names them only for loops over several prompts."""

EARLIER: tuple[KnownBug, ...] = tuple(
    KnownBug(loop(for_one_prompt(decoding(reads)), name=name), "rows of an earlier step", summary,
             threads)
    for name, reads, summary, threads in (
        (
            "target rows of the step before", _target_before,
            "From the second step on, drafts are verified by the target rows of the step before.",
            (),
        ),
        (
            "draft rows of the step before", _draft_before,
            "From the second step on, drafts are verified by the draft rows of the step before.",
            ("vllm-project/vllm #37639",),
        ),
    )
)  # fmt: skip
"""Bugs of loops that keep rows from step to step."""

READS: dict[str, Reads] = {
    EARLIER[0].name: _target_before, EARLIER[1].name: _draft_before, STALE: _all_read,
}  # fmt: skip
"""Functions that read the rows for mistakes across steps, which other loops may make too."""


@lru_cache(maxsize=1024)
def in_loop(
    reads: Reads, cut: bool, limit: int | None, end: int | None, stop: tuple[Path, ...]
) -> Adapter:
    """Make a loop over one prompt with a mistake across steps."""
    ends = (() if end is None else ((end,),)) + stop
    decode = for_one_prompt(decoding(reads, cut=cut, ends=ends))
    return loop(decode, max_tokens=limit, end=end, stop=stop)
