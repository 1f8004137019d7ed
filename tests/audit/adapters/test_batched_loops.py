"""Loops over several prompts: right rows, rows that depend on others, and named mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Report, loops, lossless, processors
from otm.audit.adapters.base import AFTER_END, TOO_SHORT, Failure
from otm.audit.adapters.neighbours import (
    DEPENDENT,
    MIXED,
    OTHER_ROW,
    SHOWN,
    STALE,
    START,
    STOPPED,
    Ends,
    fault_of,
    models_of_rows,
    neighbours_of,
)
from otm.audit.instances import INSTANCES
from otm.decoding import speculative
from tests.audit.adapters import processed_loops

SMALL, LARGER = INSTANCES["rows differ"], INSTANCES["two drafts, two tokens"]


def audit(adapter: Any, *instances: Any, **options: Any) -> Report:
    return lossless(adapter, instances=instances or [SMALL], examples=0, **options)


def names(report: Report) -> list[str]:
    assert report.verdict == NOT_LOSSLESS, str(report)
    return [diagnosis.name for diagnosis in report.diagnoses]


def of_otm(end: int | None = None) -> Callable[..., Any]:
    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> Any:
        options: dict[str, Any] = {"gamma": gamma, "max_tokens": max_tokens, "uniforms": uniforms}
        if end is not None:
            options["eos_token_id"] = end
        return speculative(target, draft, prompts, **options).sequences

    return decode


@pytest.mark.parametrize("instance", [SMALL, LARGER], ids=["1 draft", "2 drafts"])
@pytest.mark.parametrize("end", [None, 1])
def test_otm_s_own_loop_is_lossless(instance: Any, end: int | None) -> None:
    """Catches neighbours that a right loop cannot decode, or whose texts are expected wrongly."""
    report = audit(loops(of_otm(end), end=end, max_tokens=2), instance)
    assert report.verdict == LOSSLESS, str(report)
    assert (report.method, report.tv_distance) == ("exact paths", 0)


def test_rows_that_end_with_others_are_named() -> None:
    """Catches a verdict on the audited row alone: its text is right where it is alone."""

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, rng: Any
    ) -> Any:
        text = of_otm(1)
        sources = [rng.random] * len(prompts)
        texts = text(target, draft, prompts, gamma, max_tokens, sources)
        return [each[: min(map(len, texts))] for each in texts]

    assert names(audit(loops(decode, end=1))) == [STOPPED]


def of_generator(wrong: str = "") -> Callable[..., Any]:
    """Draw for all rows at once from one generator; rows are verified in vectors."""

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, rng: Any
    ) -> Any:
        texts: list[list[int]] = [[] for _ in prompts]
        while not all(len(text) >= max_tokens for text in texts):
            before = [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]
            d, t = draft.probs(before), target.probs(before)
            xs = [int(rng.choice(len(row), p=row)) for row in d]
            coins = rng.random(len(xs))
            if wrong == "one coin":
                coins = np.repeat(coins[:1], len(xs))
            after = target.probs([[*b, x] for b, x in zip(before, xs, strict=True)])
            for b, x in enumerate(xs):
                if len(texts[b]) >= max_tokens:
                    continue
                if coins[b] * d[b, x] < t[b, x]:
                    texts[b] += [x, int(rng.choice(len(after[b]), p=after[b]))]
                else:
                    rest = np.maximum(t[b] - d[b], 0)
                    if wrong == "neighbour":
                        rest = t[(b + 1) % len(xs)]
                    texts[b].append(int(rng.choice(len(rest), p=rest / rest.sum())))
        return [text[:max_tokens] for text in texts]

    return decode


@pytest.mark.parametrize(
    ("wrong", "name"), [("", None), ("one coin", DEPENDENT), ("neighbour", OTHER_ROW)]
)
def test_loops_with_one_generator(wrong: str, name: str | None) -> None:
    """Catches rows that share a coin: each row alone has the right distribution."""
    length = 1 if wrong == "neighbour" else 2
    report = audit(loops(of_generator(wrong), max_tokens=length), INSTANCES["two tokens"])
    if name is None:
        assert report.verdict == LOSSLESS, str(report)
    else:
        assert names(report) == [name]


def with_processor(processor: Any, wrong: bool = False) -> Callable[..., Any]:
    single = processed_loops.decoding(processor, shorter_steps=True)

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompts: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> Any:
        rows = range(len(prompts))
        sources = [uniforms[(b + wrong) % len(prompts)] for b in rows]
        return [single(target, draft, prompts[b], gamma, max_tokens, sources[b]) for b in rows]

    return decode


def test_loops_with_a_processor_that_allows_few_tokens() -> None:
    """Catches neighbours whose tokens the processor excludes: a right loop would divide by 0."""

    def first_two(tokens: Any, logits: Any, prompt_length: int) -> Any:
        logits[2:] = -np.inf
        return logits

    for processor in (first_two, processors.penalties(repetition=2.0)):
        for wrong in (False, True):
            adapter = loops(with_processor(processor, wrong), processor=processor, max_tokens=2)
            report = audit(adapter, SMALL, max_seconds=60)
            if wrong:
                assert names(report) == [DEPENDENT]
            else:
                assert report.verdict == LOSSLESS, str(report)


def always(texts: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    return lambda target, draft, prompts, gamma, max_tokens, uniforms: texts(prompts)


def test_results_that_are_no_texts_are_described() -> None:
    """Catches a crash of the audit, and a row that is taken from the wrong place."""
    for texts, message in (
        (lambda prompts: [(0, 0, 0)] * 2, "returned 2 texts for 1 prompts"),
        (lambda prompts: [(0, 0, 0)], "returned 1 texts for 3 prompts"),
        (lambda prompts: None, "returned None of type NoneType"),
        (lambda prompts: "text", "returned 'text' of type str"),
        (lambda prompts: [None for _ in prompts], "of type NoneType, not tokens"),
        (lambda prompts: [("a", 0) for _ in prompts], "as a token"),
        (lambda prompts: [(0,) for _ in prompts], "returned 1 of 3 tokens"),
    ):
        report = audit(loops(always(texts), max_tokens=3))
        assert message in str(report), str(report)
        if "1 of 3" in message:
            assert names(report) == [TOO_SHORT]


def test_the_faults_of_texts() -> None:
    """Catches a name that a later token gives, although an earlier one is wrong."""
    ends = Ends(((1,),), 4)
    first, second = neighbours_of(SMALL, ends.tokens)
    model, _ = models_of_rows(SMALL, (first, second), False)
    special = {name: model.special + i for i, name in enumerate(SHOWN)}

    def name(
        text: Any, row: Any, some_complete: bool = True, is_longest: bool = True
    ) -> str | None:
        fault = fault_of(text, row, model, ends, some_complete, is_longest=is_longest)
        assert fault is None or isinstance(fault, Failure)
        return None if fault is None else fault.mistake

    right, ended = first.text(ends), second.text(ends)
    assert (len(right), ended[-1], len(ended)) == (4, 1, 2)
    assert name(right, first) is name(ended, second) is name((0, 1), None) is None
    assert name(right[:2], first) == STOPPED
    assert name(right[:2], first, False) == TOO_SHORT
    assert name((*ended, 0), second) == AFTER_END
    assert name((*right[:1], special[MIXED]), first) == MIXED
    assert name((special[START],), None) == name((special[START],), second) == START
    # One token before a shorter row may be padding.
    assert name((special[START],), first, is_longest=False) == MIXED
    assert name((0, special[STALE]), None) == STALE
    assert name((0, second.first), None) == name((second.first,), first) == OTHER_ROW
    # The draft model's wrong token was accepted; what follows it shows nothing.
    assert name((first.wrong, special[STALE]), first) == ""


def test_contexts_of_no_row_are_recognized() -> None:
    """Catches a model that answers after padding, after tokens of two rows, or after drafts."""
    first, second = neighbours_of(SMALL, ())
    model, draft = models_of_rows(SMALL, (first, second), True)
    special = dict(zip(SHOWN, range(model.special, model.vocabulary), strict=False))
    prompt = first.prompt
    contexts: list[Any] = [
        (model.pad, *prompt), (0, *prompt), (model.pad, 0),
        (model.pad, model.pad, *prompt), (*prompt, 0), (*prompt, second.first),
        (*prompt, first.wrong), (*prompt, prompt[-1]),
    ]  # fmt: skip
    faults = [int(row.argmax()) for row in model.probs(contexts)]
    assert faults == [special[START]] * 3 + [special[MIXED]] * 3 + [special[STALE]] * 2
    assert model.probs((0,)).tolist()[:2] == SMALL.target.probs((0,)).tolist()
    assert draft.probs((0,)).sum() == model.probs((0,)).sum() == 1
    assert [int(x) for x in model.probs(prompt).argmax(keepdims=True)] == [
        first.text(Ends((), 1))[0]
    ]
