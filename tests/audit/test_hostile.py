"""Verifiers that are right in unusual ways pass; what breaks all rules is a finding."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.audit import Instance, chain, loop, lossless
from otm.audit.diagnose import diagnosis
from otm.audit.instances import INSTANCES
from otm.errors import InvalidParameterError
from otm.models import TableModel

FEW = [INSTANCES[name] for name in ("rows differ", "three tokens", "two drafts, two tokens")]


def verified(laws: Any, tokens: Any, coins: Any, last: Any, row: int = 0) -> list[int]:
    """Chain verification; with row = 1 the residual takes the next row of the target."""
    target, draft = laws
    output: list[int] = []
    for i, x in enumerate(tokens.tolist()):
        if not coins[i] * draft[i][x] < target[i][x]:
            return [*output, drawn(np.maximum(target[i + row] - draft[i], 0), last)]
        output.append(x)
    return [*output, drawn(target[-1], last)]


def drawn(weights: Any, uniform: Any) -> int:
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))


def in_floats(*arrays: Any) -> list[Any]:
    return [np.asarray(array, dtype=float) for array in arrays]


def pays_no_heed(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    own = [random.random() for _ in uniforms]
    return verified(in_floats(target_probs, draft_probs), draft_tokens, own, own[-1])


def bonus_of_its_own(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    tokens = verified((target_probs, draft_probs), draft_tokens, uniforms, uniforms[-1])
    if len(tokens) <= len(draft_tokens):
        return tokens
    law = target_probs[-1].astype(float)
    return [*tokens[:-1], random.choices(range(law.size), law)[0]]


def constant_for_fractions(
    target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any
) -> Any:
    coins = [u if isinstance(u, float) else 0.25 for u in uniforms]
    return verified(in_floats(target_probs, draft_probs), draft_tokens, coins, coins[-1])


def seeds_numpy(target_probs: Any, draft_probs: Any, draft_tokens: Any, seed: int) -> Any:
    own = np.random.RandomState(seed).random_sample(len(draft_tokens) + 1)
    return verified((target_probs, draft_probs), draft_tokens, own, own[-1])


@pytest.mark.parametrize(
    ("verify", "method"),
    [
        (pays_no_heed, "Monte Carlo"),
        (bonus_of_its_own, "Monte Carlo"),
        (constant_for_fractions, "breakpoints"),
        (seeds_numpy, "Monte Carlo"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_verifier_is_not_called_lossy(
    verify: Callable[..., Any], method: str, seed: int
) -> None:
    """Bug: a correct verifier gets the verdict "not lossless".

    The audit took a verifier with its own draws for repeatable, judged another one by its different
    behaviour on fractions, and passed a third one a seed that NumPy rejects.
    """
    report = lossless(
        verify, instances=[INSTANCES["two tokens"], *FEW], examples=5, delta=0.2, seed=seed
    )
    assert report.lossless, str(report)
    assert report.method == method


def test_right_on_fractions_alone_is_not_right() -> None:
    """Bug: the distribution on fractions passes for that of the floats in use."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        row = int(target_probs.dtype != object)
        return verified((target_probs, draft_probs), draft_tokens, uniforms, uniforms[-1], row)

    report = lossless(verify, instances=FEW, examples=0)
    assert report.verdict == "not lossless"
    assert "its outputs on floats differ from those on fractions" in report.why_not_exact[0]


def test_uniforms_may_be_overwritten() -> None:
    """Bug: what a verifier writes into its uniforms was read back by the audit."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        given = np.array(uniforms, dtype=float)
        uniforms[:] = 0
        laws = in_floats(target_probs, draft_probs)
        return verified(laws, draft_tokens, given, given[-1])

    report = lossless(verify, instances=FEW, examples=0)
    assert (report.verdict, report.method) == ("lossless on everything tried", "breakpoints")


def test_laws_of_models_cannot_be_overwritten() -> None:
    """Bug: a loop that subtracts in place changes the models of all runs after it."""

    def decode(target: Any, draft: Any, prompt: Any, *, gamma: int, max_tokens: int) -> Any:
        law = target.probs(prompt)
        law -= draft.probs(prompt)
        return [0]

    report = lossless(loop(decode), instances=FEW, delta=0.2)
    assert "read-only" in str(report)


class Unprintable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), Unprintable()])
def test_an_exit_is_a_finding(error: BaseException) -> None:
    """Bug: a verifier that calls sys.exit() ended the audit with the status of a lossless one."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        raise error

    report = lossless(verify, instances=FEW, examples=0)
    assert report.verdict == "not lossless"
    assert f"crashed with {type(error).__name__}" in str(report)


@pytest.mark.parametrize(
    "value", [object(), iter([0]), 10**5000], ids=["object", "iterator", "long"]
)
def test_what_is_returned_is_described_alike_in_all_runs(value: Any) -> None:
    """Bug: addresses in the text made equal outcomes differ, and a long integer ended the audit."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        return [value] if isinstance(value, int) else value

    report = lossless(verify, instances=FEW, examples=0)
    assert (report.verdict, report.method) == ("not lossless", "exact paths")
    assert "0x" not in str(report)


def test_a_rule_that_fails_before_it_has_drafts_is_a_finding() -> None:
    """Bug: the drafts of a counterexample were asked for again, outside of all precautions."""
    report = lossless(len, examples=0)
    assert "crashed with TypeError" in str(report)
    assert report.counterexample is not None
    assert report.counterexample.drafts is None


def test_what_returns_no_tokens_is_near_no_mistake() -> None:
    """Bug: a crash was said to be at distance 0 from a mistake that fails in another way."""

    def decode(target: Any, draft: Any, prompt: Any, *, gamma: int, max_tokens: int) -> Any:
        raise ValueError

    report = lossless(loop(decode), instances=FEW, delta=0.2)
    assert report.diagnoses == ()
    assert report.nearest is None


def test_what_cannot_be_called_so_is_refused() -> None:
    """Bug: a coroutine or a TypeError of the call itself was reported as a lossy verifier."""

    async def later(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        return [0]

    def by_place(
        target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any, /
    ) -> Any: ...

    with pytest.raises(InvalidParameterError, match="async"):
        lossless(later)
    with pytest.raises(InvalidParameterError, match="only by position"):
        lossless(by_place)


@pytest.mark.parametrize("raises", [False, True])
def test_the_wrong_row_is_named_however_it_fails_where_its_residual_is_empty(raises: bool) -> None:
    """Bug: a token out of range, or a crash, where a known mistake does something else hid it."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        output = verified((target_probs, draft_probs), draft_tokens, uniforms, uniforms[-1], row=1)
        assert not raises or output[-1] < target_probs.shape[1]
        return output

    half = Fraction(1, 2)
    target, draft = TableModel({(): [1, 0], (1,): [half, half]}), TableModel({(): [half, half]})
    several = [*FEW, INSTANCES["four tokens"], Instance(target, draft, 1)]
    report = lossless(verify, instances=several, examples=0)
    assert {(found.mistake, found.partly) for found in report.diagnoses} == {
        ("residual of the wrong row", True)
    }
    assert "same distribution as: residual of the wrong row (" in str(report)
    assert "; compared where the verifier always returns tokens" in str(report)


def test_the_report_says_what_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: "lossless" without a word on what the audit cannot see, such as a narrow interval."""
    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", ())

    def narrow(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        laws = in_floats(target_probs, draft_probs)
        coins = [1.0 if 0.3 < u < 0.3001 else float(u) for u in uniforms]
        return verified(laws, draft_tokens, coins, float(uniforms[-1]))

    report = lossless(chain(narrow), instances=[*INSTANCES.values()], examples=0)
    assert report.lossless
    assert report.largest_instance == (4, 3, 1)
    assert "no model with more than 4 tokens, γ = 3, k = 1 was tried" in str(report)
    assert "in fewer than 0.017 of the runs may have been missed" in str(report)
    assert "up to 1e-06 counts as rounding" in str(report)


def test_tokens_of_small_probability_are_tried() -> None:
    """Bug: no pair of models had a probability that underflows in half precision."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        rare = (target_probs[0] > 0) & (target_probs[0] * 10**6 < 1)
        if rare[draft_tokens[0]]:
            uniforms[0] = 0
        return verified((target_probs, draft_probs), draft_tokens, uniforms, uniforms[-1])

    assert lossless(verify, examples=0).verdict == "not lossless"
