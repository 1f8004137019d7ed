"""Where a text ends: at the limit, or at the first end token that is stated; nowhere else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Adapter, loop, lossless
from otm.audit.adapters.base import Source
from otm.audit.adapters.huggingface import generate
from otm.audit.adapters.otm_verifiers import speculative_loop
from otm.audit.diagnose.known_bugs.steps import Loop
from otm.audit.instances import INSTANCES
from otm.audit.larger_instances import ONE_OF_EACH_KIND, ending, larger_instances, with_token
from otm.audit.runs import Runner
from otm.decoding import speculative
from otm.errors import InvalidParameterError
from tests.audit.helpers import drawn

pytestmark = pytest.mark.usefixtures("no_diagnosis")

Decode = Callable[..., Any]


def chain(target: Any, draft: Any, context: Any, gamma: int, uniforms: Any) -> list[int]:
    """One step of chain verification."""
    xs: list[int] = []
    for _ in range(gamma):
        xs.append(drawn(draft.probs((*context, *xs)), uniforms(1)[0]))
    for i, x in enumerate(xs):
        t, d = (model.probs((*context, *xs[:i])) for model in (target, draft))
        if uniforms(1)[0] * d[x] >= t[x]:
            return [*xs[:i], drawn(np.maximum(t - d, 0), uniforms(1)[0])]
    return [*xs, drawn(target.probs((*context, *xs)), uniforms(1)[0])]


def decoding(
    *,
    end: int | None = None,
    missing: Callable[[int], int] = lambda drawn: 0,  # tokens that are dropped at the limit
    stops: Callable[[list[int], int], int | None] = lambda new, end: new.index(end) + 1,
) -> Decode:
    """Make a loop that stops at an end token: `stops` says how much of a step is kept then."""

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> Any:
        output: list[int] = []
        while len(output) < max_tokens:
            new = chain(target, draft, (*prompt, *output), gamma, uniforms)
            if end in new:
                return (output + new[: stops(new, end)])[:max_tokens]
            output += new
        return output[: max_tokens - missing(max_tokens)]

    return decode


PAIRS = [INSTANCES[name] for name in ("rows differ", "three tokens", "two drafts, two tokens")]


def verdict(adapter: Adapter) -> str:
    return lossless(adapter, instances=PAIRS, examples=0).verdict


@pytest.mark.parametrize(
    ("missing", "method"),
    [
        (lambda limit: 1, "exact paths"),
        # The first token alone.
        (lambda limit: limit - 1, "exact paths"),
        # At some limits alone.
        (lambda limit: int(limit > 3), "exact paths"),
        (lambda limit: int(limit > 3), "breakpoints"),
        (lambda limit: int(limit > 3), "Monte Carlo"),
    ],
)
def test_a_short_text_is_a_finding(missing: Any, method: str) -> None:
    """Catches a loop that always drops its last token, whose distribution is that of the target."""
    adapter = loop(decoding(missing=missing))
    pairs = [*PAIRS, ending(1)[0]]
    report = lossless(adapter, instances=pairs, examples=0, method=method, delta=0.2)
    assert report.verdict == NOT_LOSSLESS
    assert "give loop(…, end=token)" in str(report)


def test_right_lengths_pass() -> None:
    """Catches an alarm on what returns as many tokens as asked for."""
    assert verdict(loop(decoding())) == LOSSLESS
    assert verdict(Loop()) == LOSSLESS
    assert verdict(speculative_loop()) == LOSSLESS


@pytest.mark.parametrize("end", [0, 60])
def test_a_loop_that_stops_at_its_end_token_passes(end: int) -> None:
    """Catches an expected distribution that goes on behind the end, and an end that never comes."""
    report = lossless(loop(decoding(end=end), end=end), examples=0)
    assert report.verdict == LOSSLESS, str(report)
    assert report.tv_distance == 0


def test_our_own_loop_with_an_end_token_passes() -> None:
    def decode(target: Any, draft: Any, prompt: Any, uniforms: Any, **options: Any) -> Any:
        return speculative(
            target, draft, [prompt], uniforms=[uniforms], eos_token_id=1, **options
        ).sequences[0]

    assert verdict(loop(decode, end=1)) == LOSSLESS
    assert verdict(loop(decode)) == NOT_LOSSLESS


WRONG: dict[str, tuple[Any, str]] = {
    # what stands behind the end token of a step is kept
    "overrun": (lambda new, end: None, "after the end token"),
    "the end token is dropped": (lambda new, end: new.index(end) or None, "the end token"),
    "stops at the last of two": (
        lambda new, end: len(new) - new[::-1].index(end),
        "after the end token",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("end", [0, 1])
def test_wrong_ends_are_found(name: str, end: int) -> None:
    """Catches tokens behind an end that was accepted in the middle of a block, and a lost end."""
    stops, text = WRONG[name]
    report = lossless(loop(decoding(end=end, stops=stops), end=end), instances=PAIRS, examples=0)
    assert report.verdict == NOT_LOSSLESS
    assert report.counterexample is not None
    assert text in str(report)


def test_a_loop_that_ends_without_its_token_is_found() -> None:
    """Catches a loop that may stop anywhere once it has stated an end token."""
    report = lossless(loop(decoding(end=0), end=1), instances=PAIRS, examples=0)
    assert report.verdict == NOT_LOSSLESS
    assert "the last one is not the end token 1" in str(report) or "after the end" in str(report)


def test_an_end_that_comes_too_often_is_found() -> None:
    """Catches a check of the form alone, which leaves the distribution of the ends out."""

    def decode(
        target: Any, draft: Any, prompt: Any, max_tokens: int, uniforms: Any, **_: Any
    ) -> Any:
        output: list[int] = []
        while len(output) < max_tokens and 1 not in output:
            probs = target.probs((*prompt, *output))
            output.append(1 if uniforms(1)[0] * 2 < 1 else drawn(probs, uniforms(1)[0]))
        return output

    report = lossless(loop(decode, end=1), instances=PAIRS, examples=0)
    assert report.verdict == NOT_LOSSLESS
    assert 0 < report.tv_distance < 1


@pytest.mark.parametrize("end", [-1, 0.5, True, 10_000, "</s>"])
def test_what_is_no_end_token_is_refused(end: Any) -> None:
    with pytest.raises(InvalidParameterError, match="end = "):
        loop(decoding(), end=end)


def test_models_have_the_end_token() -> None:
    """Catches an audit on models in which the end token never comes, or always."""
    for end in (0, 1, 7):
        adapter = loop(decoding(end=end), end=end)
        assert not adapter.supports(INSTANCES["rows differ"]) or end < 2
        for instance in ending(end):
            assert adapter.supports(instance)
            outputs = [
                Runner(adapter).run(instance, Source(row))
                for row in np.random.default_rng(0).random((60, 64))
            ]
            lengths = {len(output) for output in outputs if isinstance(output, tuple)}
            assert lengths == {1, 2, 3, 4}


def test_generate_has_a_length() -> None:
    """Catches an adapter of a whole generation that lets short texts pass."""
    pytest.importorskip("transformers")
    plain, at_end, shorter = generate(), generate(eos_token_id=1), generate(max_new_tokens=1)
    assert (plain.whole, plain.end) == (True, None)
    assert (at_end.whole, at_end.end) == (True, 1)
    assert (shorter.whole, shorter.end) == (False, None)
    assert not generate(eos_token_id=2).supports(INSTANCES["rows differ"])


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "3"])
def test_what_is_no_limit_is_refused(limit: Any) -> None:
    """Bug: a right loop is "not lossless" where it is asked for no token."""
    with pytest.raises(InvalidParameterError, match="max_tokens = "):
        loop(decoding(), max_tokens=limit)


def test_two_end_tokens_are_told_from_a_mistake() -> None:
    """Bug: no advice for a correct loop with two end tokens, only one of them stated."""

    def at_either(new: list[int], end: int) -> int | None:
        return min((new.index(x) + 1 for x in (end, 0) if x in new), default=None)

    report = lossless(loop(decoding(end=1, stops=at_either), end=1), instances=PAIRS, examples=0)
    assert report.verdict == NOT_LOSSLESS
    assert "if the loop stops at other tokens too" in str(report)


def test_a_late_mistake_is_found_whatever_the_end_token() -> None:
    """Bug: of models that have the token 60 there were three pairs, on which texts differ at first.

    So a loop that draws from the target after each rejection but the first one's was lossless.
    """
    end = 60

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> Any:
        output: list[int] = []
        while len(output) < max_tokens and end not in output:
            context = (*prompt, *output)
            x = drawn(d := draft.probs(context), uniforms(1)[0])
            t = target.probs(context)
            if uniforms(1)[0] * d[x] >= t[x]:
                x = drawn(t if output else np.maximum(t - d, 0), uniforms(1)[0])
            output.append(x)
        return output

    report = lossless(loop(decode, end=end), examples=0)
    assert report.verdict == NOT_LOSSLESS


def test_renamed_models_are_the_same_models() -> None:
    """Catches a token that is renamed in the rows and not in their contexts."""
    assert with_token(1) == ()
    for name, instance in zip(ONE_OF_EACH_KIND, with_token(7), strict=True):
        known = (INSTANCES | larger_instances())[name]
        last = known.vocabulary - 1
        assert instance.vocabulary == 8
        for length in range(4):
            for context in itertools.product(range(last + 1), repeat=length):
                told = tuple(7 if x == last else x for x in context)
                for of, expected in (
                    (instance.target, known.target),
                    (instance.draft, known.draft),
                ):
                    probs = of.probs(told)
                    assert [*probs[:last], probs[7]] == expected.probs(context).tolist()
