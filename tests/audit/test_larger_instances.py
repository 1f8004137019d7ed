"""Mistakes that small models do not show: found on larger ones, and named by size and place."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.audit import Report, chain, loop, lossless
from otm.audit.adapters.base import Adapter
from otm.audit.diagnose.known_bugs.size_and_place import (
    passes_at,
    residual_cut_to,
    temperature_lost_at,
)
from otm.audit.diagnose.known_bugs.steps import Block, Chain, Loop
from otm.audit.diagnose.self_drafting import samples_twice
from otm.audit.instances import INSTANCES
from otm.audit.larger_instances import larger_instances, of_size, spread
from otm.audit.observe.exact import observe_by_paths
from otm.audit.runs import Runner
from otm.errors import InvalidParameterError
from otm.testing.exact import regions, summed

Residual = Callable[[Any], Any]


def draw(weights: Any, uniform: Any) -> int:
    cdf = np.cumsum(weights)
    return int(np.searchsorted(cdf, uniform * cdf[-1], side="right"))


def verifier(
    *,
    passes: int = -1,
    residual: Residual = lambda rest: rest,
    find: Callable[[Any, Any], int] = draw,
    least: Any = 0,
    edge: bool = False,
) -> Callable[..., list[int]]:
    """Chain verification as somebody else would write it, with one mistake."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> list[int]:
        target = np.maximum(target_probs, least) if least else target_probs
        for i, x in enumerate(draft_tokens):
            ratio = uniforms[i] * draft_probs[i][x]
            if not (i == passes or ratio < target[i][x] or (edge and ratio <= target[i][x])):
                rest = residual(np.maximum(target[i] - draft_probs[i], 0))
                return [*map(int, draft_tokens[:i]), find(rest, uniforms[-2])]
        return [*map(int, draft_tokens), find(target[-1], uniforms[-1])]

    return verify


def largest(count: int) -> Residual:
    def kept(rest: Any) -> Any:
        first = np.argsort(-rest, kind="stable")[:count]
        return np.where(np.isin(np.arange(rest.size), first), rest, 0 * rest)

    return kept


def in_tiles(size: int) -> Callable[[Any, Any], int]:
    """Sum in tiles; the sum before a tile is that of the last tile alone."""

    def find(weights: Any, uniform: Any) -> int:
        point, before = uniform * sum(weights), 0
        for start in range(0, len(weights), size):
            tile = weights[start : start + size]
            if point < before + sum(tile):
                return start + int(np.searchsorted(before + np.cumsum(tile), point, side="right"))
            before = sum(tile)
        return len(weights) - 1

    return find


def fed_twice(  # noqa: PLR0917 - as loops are called
    target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
) -> list[int]:
    """Verify in a loop, with a cache that gets the whole sequence in each step."""
    tokens: list[int] = []
    cache: list[int] = []
    while len(tokens) < max_tokens:
        context = [*prompt, *tokens]
        drafts: list[int] = []
        rows: list[Any] = []
        for _ in range(min(gamma, max_tokens - len(tokens) - 1)):
            rows.append(draft.probs(tuple(context + drafts)))
            drafts.append(draw(rows[-1], uniforms(1)[0]))
        ends = range(len(drafts) + 1)
        wanted = [target.probs(tuple(cache + context + drafts[:i])) for i in ends]
        step = verifier()(wanted, rows, drafts, uniforms(len(drafts) + 2))
        tokens, cache = tokens + step, cache + context
    return tokens


def by_n_grams(  # noqa: PLR0917
    target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
) -> list[int]:
    """Draft what followed the last two tokens before, and sample again after a mismatch."""
    context = list(prompt)
    while len(context) < len(prompt) + max_tokens:
        probs = target.probs(tuple(context))
        token = draw(probs, uniforms(1)[0])
        for i in range(len(context) - 2, 0, -1):
            if context[i - 1 : i + 1] == context[-2:]:
                if token != context[i + 1]:
                    token = draw(probs, uniforms(1)[0])
                break
        context.append(token)
    return context[len(prompt) :]


FOUND = {
    "residual of its 3 largest tokens": verifier(residual=largest(3)),
    "residual of its 37 largest tokens": verifier(residual=largest(37)),
    "draft 4 always accepted": verifier(passes=3),
    "draft 11 always accepted": verifier(passes=10),
    "sums of tiles of 8 tokens": verifier(find=in_tiles(8)),
    "sums of tiles of 72 tokens": verifier(find=in_tiles(72)),
    "target probabilities of at least 1/100": verifier(least=Fraction(1, 100)),
    "target probabilities of at least 3/400": verifier(least=Fraction(3, 400)),
    "cache fed twice": loop(fed_twice),
}


def of_larger(name: str, *names: str) -> Report:
    smaller = [INSTANCES[each] for each in ("zeros", "four tokens", "two drafts")]
    larger = [larger_instances()[each] for each in ("six drafts", *names)]
    return lossless(FOUND[name], instances=[*smaller, *larger], examples=0)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("residual of its 3 largest tokens", "40 tokens"),
        ("residual of its 37 largest tokens", "48 tokens"),
        ("draft 4 always accepted", "four drafts"),
        ("draft 11 always accepted", "twelve drafts"),
        ("sums of tiles of 8 tokens", "40 tokens"),
        ("sums of tiles of 72 tokens", "300 tokens"),
        ("target probabilities of at least 1/100", "four drafts"),
        ("target probabilities of at least 3/400", "four drafts"),
        ("cache fed twice", "five tokens back"),
    ],
)
def test_mistakes_of_size_are_found_and_named(name: str, where: str) -> None:
    """Bug: an audit of three tokens and two drafts, to which all of these are lossless.

    Those of odd sizes and places were found by luck or not at all, and had no name.
    """
    report = of_larger(name, where)
    assert report.verdict == "not lossless"
    assert report.method == "exact paths"
    assert [diagnosis.name for diagnosis in report.diagnoses] == [name]


@pytest.mark.parametrize("place", range(1, 14))
def test_every_rung_of_a_ladder_shows_its_mistakes(place: int) -> None:
    """Bug: rows that are certain where a chain is deep, or too seldom reached to matter."""
    instance = larger_instances()["twelve drafts"]
    hot = observe_by_paths(Runner(temperature_lost_at(place).verifier), instance)
    assert hot.tv_distance > Fraction(1, 50)
    assert hot.runs < 250
    passed = observe_by_paths(Runner(passes_at(place).verifier), instance)
    assert passed.tv_distance > Fraction(1, 60) * (place <= instance.gamma) - Fraction(1, 10**9)


@pytest.mark.parametrize("kept", [12, 30, 44])
def test_the_widest_row_shows_a_residual_of_any_size(kept: int) -> None:
    """Bug: residuals of 12 tokens at most, to which a cut behind the 12 largest does nothing."""
    seen = observe_by_paths(Runner(residual_cut_to(kept).verifier), larger_instances()["48 tokens"])
    assert seen.tv_distance > Fraction(1, 1000)
    assert seen.runs < 300


@pytest.mark.parametrize("place", [9, 14])
def test_places_in_chains_made_to_order_are_named(place: int) -> None:
    """Bug: names end with the chains that every audit has."""
    chosen = [INSTANCES["two drafts"], larger_instances()["twelve drafts"]]
    chosen.append(of_size(None, place, None, 0)[-1])
    report = lossless(verifier(passes=place - 1), instances=chosen, examples=0)
    assert [diagnosis.name for diagnosis in report.diagnoses] == [f"draft {place} always accepted"]


def test_n_grams_are_found_by_a_prompt_that_repeats() -> None:
    """Bug: prompts of one token, after which few n-grams come again."""
    wrong = loop(by_n_grams)
    report = lossless(wrong, instances=[larger_instances()["a prompt that repeats"]], examples=0)
    assert report.verdict == "not lossless"
    example = report.counterexample
    assert example is not None
    assert "prompt 2 0 1 2 0 1 2, max_tokens 4" in str(report)
    assert [diagnosis.name for diagnosis in report.diagnoses] == ["second sample after a mismatch"]


@pytest.mark.parametrize(
    ("again", "named"), [("sample", ["second sample after a mismatch"]), ("draft", []), ("", None)]
)
def test_drafts_of_a_loop_s_own_are_told_by_the_law_of_a_token(
    again: str, named: list[str] | None
) -> None:
    """Drafts of the last follower; after a mismatch the draft, another sample, or the first one."""

    def decode(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> list[int]:
        tokens = list(prompt)
        while len(tokens) < len(prompt) + max_tokens:
            for _ in range(gamma):
                guess = dict(itertools.pairwise(tokens)).get(tokens[-1], 0)
                token = draw(target.probs(tuple(tokens)), uniforms(1)[0])
                if token != guess:
                    other = draw(target.probs(tuple(tokens)), uniforms(1)[0]) if again else token
                    tokens.append({"draft": guess}.get(again, other))
                    break
                tokens.append(token)
        return tokens[len(prompt) : len(prompt) + max_tokens]

    chosen = [INSTANCES[name] for name in ("rows differ", "three tokens")]
    report = lossless(loop(decode), instances=chosen, examples=0)
    assert report.lossless == (named is None)
    assert [diagnosis.name for diagnosis in report.diagnoses] == (named or [])


def test_other_mistakes_of_loops_are_no_second_samples() -> None:
    def draft_alone(  # noqa: PLR0917
        target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
    ) -> list[int]:
        return [draw(draft.probs(prompt), uniforms(1)[0])]

    assert not samples_twice(
        [observe_by_paths(Runner(loop(draft_alone)), INSTANCES["three tokens"])]
    )


def test_nothing_else_is_called_wrong() -> None:
    """Negative control: the same code without its mistakes."""
    report = lossless(verifier(), instances=[*larger_instances().values()], examples=0)
    assert report.lossless
    assert (report.tv_distance, report.method) == (0, "exact paths")
    assert "--vocabulary, --gamma, --prompt" in str(report).splitlines()[-1]


@pytest.mark.parametrize(
    ("edge", "seen"), [(False, "no deviation"), (True, "only isolated outcomes")]
)
def test_larger_instances_are_sampled_where_breakpoints_leave_them_out(
    edge: bool, seen: str
) -> None:
    """Bug: "lossless", or wrong by 2^-24, after the small instances, which hide a mistake of size.

    romsto/Speculative-Decoding makes both: it accepts a draft at u = 0, and feeds its cache twice.
    """
    wrong = chain(verifier(passes=2, edge=edge), convert=np.asarray)
    report = lossless(wrong, examples=0, max_runs=5_000)
    assert (report.verdict, report.method) == ("not lossless", "Monte Carlo")
    assert f"breakpoints: {seen}, but" in report.why_not_exact[-1]
    if edge:
        return
    right = chain(verifier(), convert=np.asarray)
    report = lossless(right, examples=0, max_runs=5_000)
    assert (report.verdict, report.method) == ("lossless on everything tried", "breakpoints")
    assert report.skipped > 0
    assert report.sampled is not None
    assert f"sampled in addition: {report.sampled.instances} larger pairs" in str(report)


def test_coins_that_depend_on_each_other_from_the_third_on_are_seen() -> None:
    """Bug: "lossless" by Monte Carlo, whose pairs had two drafts at most."""
    right = verifier()

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> list[int]:
        uniforms[2:-2] = (uniforms[1:-3] + uniforms[2:-2]) / 2  # no steps along one of them
        return right(target_probs, draft_probs, draft_tokens, uniforms)

    report = lossless(chain(verify), method="Monte Carlo", max_runs=40_000)
    assert report.verdict == "not lossless"
    assert report.counterexample is not None
    assert report.counterexample.instance == larger_instances()["four drafts"]


def test_instances_are_made_to_order() -> None:
    """Bug: sizes that are asked for and not tried."""
    few = [INSTANCES["zeros"]]
    right = verifier()
    report = lossless(right, instances=few, vocabulary=100, gamma=7, prompt=(5, 99), examples=0)
    assert report.lossless
    assert report.largest_instance == (100, 7, 1)
    *made, chain_alone = of_size(50, 5, (49, 0, 49), seed=3)
    assert chain_alone.gamma == 5
    for instance in made:
        assert instance.vocabulary == 50
        assert instance.prompt == (49, 0, 49)
        assert instance.gamma == (5 if instance.k == 1 else instance.gamma)
        row = instance.target.probs(instance.prompt)
        assert sum(row) == 1
    assert of_size(None, None, (7, 7), seed=0)[0].vocabulary == 8


def test_long_chains_end_in_time() -> None:
    """Bug: gigabytes for the 2^21 sequences that follow a chain of 20 drafts."""
    for instance in of_size(None, 20, None, 0):
        ways = [instance.prompt]
        for _ in range(instance.gamma + 1):
            rows = [(way, instance.target.probs(way)) for way in ways]
            ways = [(*way, token) for way, row in rows for token in np.flatnonzero(row > 0)]
            assert len(ways) < 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": 1}, "vocabulary"),
        ({"gamma": 33}, "gamma"),
        ({"prompt": []}, "the prompt is empty"),
        ({"vocabulary": 5, "prompt": [5]}, "prompt"),
        ({"max_seconds": 0}, "max_seconds"),
    ],
)
def test_sizes_out_of_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        lossless(verifier(), examples=0, **options)


@pytest.mark.parametrize(("tokens", "count"), [(2, 4), (3, 3), (40, 12), (300, 12), (5, 1)])
def test_tokens_are_spread(tokens: int, count: int) -> None:
    chosen = spread(tokens, count)
    assert len(set(chosen)) == min(tokens, count)
    assert chosen[0] == 0
    assert chosen[-1] == (tokens - 1 if count > 1 else 0)


def test_what_has_an_effect_comes_first() -> None:
    """Bug: a mistake of TV 1/10 that is reported as an event of probability zero."""
    wrong = verifier(edge=True, residual=lambda rest: 0 * rest + 1 if rest.any() else rest)
    report = lossless(wrong, instances=[INSTANCES["zeros"], INSTANCES["ties"]], examples=0)
    example, besides = report.counterexample, report.isolated
    assert example is not None
    assert example.tv_distance > Fraction(1, 20)
    assert example.probability > Fraction(1, 20)
    assert besides is not None
    assert besides.probability == 0
    assert "isolated uniforms or rounding give outputs that are impossible under the target" in str(
        report
    )


def test_isolated_outcomes_alone_are_the_counterexample() -> None:
    report = lossless(verifier(edge=True), instances=[INSTANCES["zeros"]], examples=0)
    assert report.verdict == "not lossless"
    assert report.tv_distance == 0
    assert report.isolated is None
    assert ": not lossless, but only at isolated values of a uniform, such as 0" in str(report)
    assert [diagnosis.name for diagnosis in report.diagnoses] == ["u ≤ ratio"]


def test_a_mistake_is_named_with_such_outcomes_set_aside() -> None:
    """Bug: no diagnosis, because the same verifier also takes u = 0 for a coin that accepts."""
    wrong = verifier(edge=True, passes=0)
    chosen = [INSTANCES[name] for name in ("two tokens", "two drafts")]
    (diagnosis,) = lossless(wrong, instances=chosen, examples=0).diagnoses
    assert (diagnosis.name, diagnosis.apart) == ("draft 1 always accepted", True)


def no_residual(  # noqa: PLR0917
    target: Any, draft: Any, prompt: Any, gamma: int, max_tokens: int, uniforms: Any
) -> list[int]:
    """Decode in a loop of full steps, cut off in the end, without a residual."""
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        context = (*prompt, *tokens)
        x = draw(draft.probs(context), uniforms(1)[0])
        if uniforms(1)[0] * draft.probs(context)[x] < target.probs(context)[x]:
            tokens += [x, draw(target.probs((*context, x)), uniforms(1)[0])]
        else:
            tokens.append(draw(target.probs(context), uniforms(1)[0]))
    return tokens[:max_tokens]


def test_mistakes_in_the_steps_of_loops_are_named() -> None:
    report = lossless(loop(no_residual), instances=[INSTANCES["two tokens"]], examples=0)
    assert [diagnosis.name for diagnosis in report.diagnoses] == ["no residual"]


def test_two_mistakes_at_once_are_named() -> None:
    """Bug: nothing is said of a verifier that has two of the known mistakes."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> list[int]:
        for i, x in enumerate(draft_tokens):
            if not uniforms[i] * draft_probs[i][x] < target_probs[i][x]:
                return [*draft_tokens[:i], draw(target_probs[i], uniforms[-1])]  # no residual
        return [*draft_tokens, draw(target_probs[-2], uniforms[-1])]  # the row before

    chosen = [INSTANCES[name] for name in ("two tokens", "rows differ", "two drafts, two tokens")]
    report = lossless(verify, instances=chosen, examples=0)
    names = [diagnosis.name for diagnosis in report.diagnoses]
    assert names == ["no residual + bonus of the row before"]
    assert "no residual, and bonus from the wrong position" in str(report)


@pytest.mark.parametrize("adapter", [Chain(), Block(), Loop()], ids=lambda each: each.name)
def test_following_fewer_isolated_values_changes_no_distribution(adapter: Adapter) -> None:
    """Catches a comparison that is decided although both outcomes have a probability."""
    instance = INSTANCES["zeros"]
    whole = summed(regions(lambda source: adapter.output(instance, source)))
    few = observe_by_paths(Runner(adapter), instance).probs
    assert {x: p for x, p in whole.items() if p} == {x: p for x, p in few.items() if p}
