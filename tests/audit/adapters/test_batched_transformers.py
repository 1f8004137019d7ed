"""Loops of transformers over padded batches, with masks, positions, caches and states."""

from __future__ import annotations

from typing import Any

import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Report, loops, lossless
from otm.audit.adapters.base import AFTER_END
from otm.audit.adapters.huggingface import causal_lm
from otm.audit.adapters.huggingface.caches import LOST, POSITIONS
from otm.audit.adapters.neighbours import MIXED, OTHER_ROW, STALE, STOPPED
from otm.audit.instances import INSTANCES

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.audit.adapters.batched_decoding import with_cache, with_state  # noqa: E402

ONE, TWO = INSTANCES["two tokens"], INSTANCES["two drafts, two tokens"]


def audit(decode: Any, instance: Any = ONE, max_tokens: int = 3, **options: Any) -> Report:
    adapter = loops(decode, max_tokens=max_tokens, **options)
    return lossless(adapter, instances=[instance], examples=0, max_seconds=300)


RIGHT = {
    "masked drafts": with_cache(),
    "a recurrent state, copied": with_state("recurrent"),
    "a rotating cache, copied": with_state("rotating"),
    "keys and values, cropped": with_state("keys and values", wrong=True),
}


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", RIGHT)
def test_right_loops_are_lossless(name: str, size: int) -> None:
    """Catches a stand-in that is wrong for masks, positions, holes, copies or cropping."""
    report = audit(RIGHT[name], ONE if size == 1 else TWO, max_tokens=2 + (size == 1))
    assert report.verdict == LOSSLESS, str(report)
    assert report.tv_distance < 1e-6


PLACES = [
    ("padding unmasked", None, 0, MIXED),
    ("padding unmasked", 0, 0, MIXED),
    ("positions of the widest row", None, 0, POSITIONS),
    ("positions of the widest row", 1, 0, POSITIONS),
    ("row of a neighbour", None, 0, OTHER_ROW),
    ("row of a neighbour", 1, 1, OTHER_ROW),
    ("rejected drafts unmasked", None, 0, STALE),
    ("rejected drafts unmasked", 0, 0, STALE),
]
"""Mistakes in all rows or in one row, from a step on, and their names."""


@pytest.mark.parametrize(("wrong", "row", "step", "name"), PLACES)
def test_wrong_loops_are_named(wrong: str, row: int | None, step: int, name: str) -> None:
    """Catches a mistake in one row or a later step that is missed, or gets another name."""
    report = audit(with_cache(wrong, at_row=row, from_step=step))
    assert report.verdict == NOT_LOSSLESS, str(report)
    assert [diagnosis.name for diagnosis in report.diagnoses] == [name]


@pytest.mark.parametrize(
    ("decode", "name", "options"),
    [
        (with_state("recurrent", wrong=True), STALE, {}),
        (with_state("rotating", wrong=True), LOST, {}),
        (with_cache("all rows end with the first", end=1), STOPPED, {"end": 1}),
        (with_cache("end overrun", end=1), AFTER_END, {"end": 1}),
    ],
    ids=["recurrent", "rotating", "stopped", "overrun"],
)
def test_states_and_ends_are_named(decode: Any, name: str, options: dict[str, Any]) -> None:
    """Catches a state that the stand-in rewinds, and an end that stops or extends other rows."""
    report = audit(decode, **options)
    assert report.verdict == NOT_LOSSLESS, str(report)
    assert [diagnosis.name for diagnosis in report.diagnoses] == [name]


@pytest.mark.parametrize("masked", [True, False])
def test_generate_on_a_batch(masked: bool) -> None:
    """Catches a batch that the generation of transformers cannot make, and an unread mask."""

    def decode(target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int) -> Any:
        model = causal_lm(target)
        pad, widest = model.config.pad_token_id, max(map(len, prompts))
        ids = torch.tensor([[pad] * (widest - len(p)) + list(p) for p in prompts])
        mask = (ids != pad).long() if masked else torch.ones_like(ids)
        return model.generate(
            ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=max_tokens,
            eos_token_id=None, pad_token_id=pad,
        )[:, widest:].tolist()  # fmt: skip

    adapter = loops(decode, max_tokens=1 + masked)
    # The pair of independent rows takes long.
    adapter.more = ()
    report = lossless(adapter, instances=[ONE], examples=0, max_seconds=60)
    if masked:
        assert report.verdict == LOSSLESS, str(report)
    else:
        assert [diagnosis.name for diagnosis in report.diagnoses] == [MIXED]
