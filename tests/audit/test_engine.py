"""The audit finds what is wrong, says so, and passes what is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from otm.audit import METHODS, Adapter, Instance, Report, chain, lossless
from otm.audit.instances import INSTANCES
from otm.audit.observe.breakpoints import observe_by_breakpoints
from otm.audit.observe.exact import observe_by_paths
from otm.audit.observe.observation import UnsuitedError
from otm.audit.runs import Runner
from otm.coupling.build import PLANS
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError, UnknownMethodError
from otm.kernels import verify_probs
from otm.models import TableModel

pytestmark = pytest.mark.usefixtures("no_diagnosis")

Verify = Callable[[Any, Any, Any, Any], Any]


def right(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    arrays = (target_probs, draft_probs, draft_tokens, uniforms)
    return verify_probs(*(a[None] for a in arrays), validate=False).tokens[0]


def verifier(
    accepts: Callable[[Any, Any, Any], Any] = lambda u, d, t: u * d < t,
    weights: Callable[[Any, Any, int], Any] = lambda t, d, i: np.maximum(t[i] - d[i], 0),
    coin_for_residual: bool = False,
) -> Verify:
    """Leviathan's algorithm, written again, with a part that can be replaced."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        output: list[int] = []
        for i, x in enumerate(draft_tokens.tolist()):
            if not accepts(uniforms[i], draft_probs[i][x], target_probs[i][x]):
                left = weights(target_probs, draft_probs, i)
                last = uniforms[i] if coin_for_residual else uniforms[-2]
                return [*output, draw(left if left.any() else target_probs[i], last)]
            output.append(x)
        return [*output, draw(target_probs[len(output)], uniforms[-1])]

    return verify


def draw(weights: Any, uniform: Any) -> int:
    cumulative = np.cumsum(weights)
    return min(
        int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")), len(weights) - 1
    )


FEW = [INSTANCES[name] for name in ("rows differ", "three tokens", "two drafts, two tokens")]


MUTANTS: dict[str, Verify] = {
    "no residual": verifier(weights=lambda t, d, i: t[i]),
    "residual of the next row": verifier(
        weights=lambda t, d, i: np.maximum(t[i + 1] - d[min(i + 1, len(d) - 1)], 0)
    ),
    "shared coin": verifier(coin_for_residual=True),
    "accepts too much": verifier(accepts=lambda u, d, t: u * d < 2 * t),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_right_verifier_passes_by_each_method(method: str) -> None:
    """Bug: a method that sees deviations where there are none."""
    for verify in (right, verifier()):
        report = lossless(chain(verify), method=method, instances=FEW, examples=5, delta=0.2)
        assert report.lossless
        assert report.method == method
        assert report.counterexample is None
        assert report.worst_prefix is None
        assert report.tv_interval.lower == 0


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("method", METHODS)
def test_mutants_are_found_by_each_method(name: str, method: str) -> None:
    """Bug: a method that is blind to a mistake."""
    report = lossless(chain(MUTANTS[name]), method=method, instances=FEW, examples=0, delta=0.05)
    assert report.verdict == "not lossless"
    assert report.tv_interval.lower > 0.005
    assert report.worst_prefix is not None
    assert report.counterexample is not None
    assert report.counterexample.tv_distance > 0


@pytest.mark.parametrize("name", [name for name in PLANS if name != "optimal"])
def test_the_rules_of_the_literature_are_lossless(name: str) -> None:
    assert lossless(PLANS[name], examples=0).verdict == "lossless on everything tried"


def test_the_optimal_plan_is_lossless() -> None:
    few = [i for i in INSTANCES.values() if i.gamma == 1 and i.k < 3 and i.vocabulary < 4]
    assert lossless(PLANS["optimal"], instances=few, examples=0).lossless


@pytest.mark.parametrize("method", ["exact paths", "breakpoints"])
def test_u_at_most_the_ratio(method: str) -> None:
    """Bug: what u = 0 alone does is overlooked, since it has no part in the distribution."""
    verify = chain(verifier(lambda u, d, t: u * d <= t))
    report = lossless(verify, method=method, instances=[INSTANCES["zeros"]], examples=0)
    assert not report.lossless
    assert report.tv_distance < 1e-9
    example = report.counterexample
    assert example is not None
    assert example.impossible
    assert example.uniforms is not None
    assert 0 in example.uniforms
    assert example.drafts == example.output[: len(example.drafts or ())]


def test_the_counterexample_is_small_and_shows_the_deviation() -> None:
    """Bug: a counterexample that is not minimal, or does not reproduce."""
    verify = MUTANTS["no residual"]
    example = lossless(chain(verify), instances=FEW, examples=30).counterexample
    assert example is not None
    instance = example.instance
    assert (instance.vocabulary, instance.gamma, instance.k) == (2, 1, 1)
    target, draft = instance.target.probs((0,)), instance.draft.probs((0,))
    assert max(p.denominator for p in (*target, *draft)) <= 3
    assert observe_by_paths(Runner(chain(verify)), instance).tv_distance == example.tv_distance
    assert example.uniforms is not None
    assert example.drafts is not None
    x, *coins = example.uniforms
    assert example.drafts == (0 if x < draft[0] else 1,)
    laws = np.array([target, instance.target.probs((0, *example.drafts))]), np.array([draft])
    output = verify(*laws, np.array(example.drafts), np.array(coins, dtype=object))
    assert tuple(output) == example.output


def test_the_worst_prefix_is_where_the_mistake_is() -> None:
    """Bug: prefixes are not weighted, or their distributions are those of another prefix."""

    def bonus_is_zero(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        tokens = right(target_probs, draft_probs, draft_tokens, uniforms)
        return [*tokens[:-1], 0] if tokens[-1] >= 0 else tokens

    half = Fraction(1, 2)
    equal = TableModel({(): [half, half]})
    report = lossless(bonus_is_zero, instances=[Instance(equal, equal, 2)], examples=0)
    worst = report.worst_prefix
    assert worst is not None
    assert len(worst.prefix) == 2
    assert worst.probability == half**2
    assert worst.output_probs.tolist() == [1, 0]
    assert worst.target_probs.tolist() == [half, half]
    assert report.tv_distance == half


def _returns(value: Any) -> Verify:
    return lambda target_probs, draft_probs, draft_tokens, uniforms: value


def _raises(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
    raise IndexError("index 3 is out of bounds")


@pytest.mark.parametrize(
    ("verify", "text"),
    [
        (_returns([]), "returned no token"),
        (_returns([-1, -1]), "returned no token"),
        (_returns([7]), "returned token 7, but the vocabulary has 2 tokens"),
        (_returns([-1, 0]), "returned token -1, but the vocabulary has 2 tokens"),
        (_returns([0] * 9), "returned 9 tokens; one run may return at most 2"),
        (_returns([0.5]), "returned 0.5 of type float as a token"),
        (_returns(np.array([np.nan])), "returned nan"),
        (_returns(None), "returned None of type NoneType, not tokens"),
        (_returns([[0, 1]]), "as a token"),
        (_raises, "crashed with IndexError: index 3 is out of bounds"),
    ],
)
def test_nonsense_is_a_finding_and_no_traceback(verify: Verify, text: str) -> None:
    """Bug: the audit itself fails on what a broken verifier returns."""
    report = lossless(chain(verify), examples=0)
    assert report.verdict == "not lossless"
    assert text in str(report)
    json.dumps(report.to_dict())


def test_a_crash_at_some_uniforms_alone_is_found_with_them() -> None:
    """Bug: an exception makes the audit change its method instead of reporting it."""

    def divides(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        if uniforms[0] < Fraction(1, 8):
            raise ZeroDivisionError
        return right(target_probs, draft_probs, draft_tokens, uniforms)

    report = lossless(divides, examples=0)
    assert report.method == "exact paths"
    assert "ZeroDivisionError (" in str(report) or "ZeroDivisionError:" in str(report)
    example = report.counterexample
    assert example is not None
    assert example.uniforms is not None
    assert example.probability == Fraction(1, 8)
    assert example.uniforms[1] < Fraction(1, 8)


def test_what_cannot_take_fractions_is_audited_by_breakpoints() -> None:
    """Bug: a TypeError over fractions is reported as a crash of the verifier."""

    def floats(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        arrays = (np.asarray(a, dtype=float) for a in (target_probs, draft_probs))
        return right(*arrays, draft_tokens, np.asarray(uniforms, dtype=float))

    report = lossless(floats, instances=FEW, examples=0)
    assert report.lossless
    assert report.method == "breakpoints"
    assert report.why_not_exact == ("exact paths: it computes in floats, not in fractions",)


def test_draws_of_its_own_are_noticed() -> None:
    """Bug: a verifier that takes uniforms, but draws the residual itself, passes for repeatable."""

    def half_inside(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        exact = uniforms.dtype == object
        rest = np.random.random(2)  # noqa: NPY002
        own = np.array([Fraction(u) for u in rest]) if exact else rest
        return right(target_probs, draft_probs, draft_tokens, np.append(uniforms[:-2], own))

    report = lossless(half_inside, instances=FEW, delta=0.2)
    assert report.lossless
    assert report.method == "Monte Carlo"
    assert len(report.why_not_exact) == 2


def test_breakpoints_find_the_law_of_float32() -> None:
    """Bug: the distribution by breakpoints is off by more than its stated error and rounding."""

    def narrow(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        arrays = (a.astype(np.float32) for a in (target_probs, draft_probs))
        return right(*arrays, draft_tokens, uniforms.astype(np.float32))

    for name in ("two drafts", "four tokens"):
        seen = observe_by_breakpoints(
            Runner(chain(narrow)), INSTANCES[name], np.random.default_rng(1), max_runs=10**6
        )
        assert 0 <= seen.tv_distance < 1e-6
        assert seen.error < 1e-8
        assert seen.impossible is None


def test_breakpoints_stop_where_the_runs_end() -> None:
    """Bug: what was found before the runs ended is thrown away, or what was not tried is hidden."""
    report = lossless(right, method="breakpoints", instances=FEW, examples=10, max_runs=2_000)
    assert report.verdict == "undecided"
    assert (report.instances, report.skipped) == (2, 1)
    assert "(1 skipped: too large, or no time)" in str(report)
    assert "No deviation was found, but too few pairs were tried: allow more runs" in str(report)


def test_a_seed_among_the_uniforms_has_no_breakpoints() -> None:
    """Bug: bisection without end in a function that is chaotic."""

    class Seeded(Adapter):
        name = "seeded"
        exact = False

        def output(self, instance: Instance, source: Randomness) -> Path:
            seed = int(source(1)[0] * 2**53)
            return (int(np.random.default_rng(seed).integers(instance.vocabulary)),)

    with pytest.raises(UnsuitedError, match=r"steps in one uniform|not constant"):
        observe_by_breakpoints(
            Runner(Seeded()), INSTANCES["two tokens"], np.random.default_rng(0), 10**6
        )


def test_too_few_runs_leave_it_undecided() -> None:
    """Bug: an audit that saw next to nothing says "lossless"."""
    report = lossless(right, method="Monte Carlo", instances=FEW, max_runs=500)
    assert report.verdict == "undecided"
    assert not report.lossless
    assert report.delta > 0.03
    assert "allow more runs" in str(report)


def test_the_audit_repeats_itself_and_leaves_global_generators_alone() -> None:
    """Bug: a seed that does not determine the report, or an audit that reseeds its caller."""

    def inside(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        uniforms = np.random.random(len(draft_tokens) + 2)  # noqa: NPY002
        return right(target_probs, draft_probs, draft_tokens, uniforms)

    def audit() -> Report:
        return lossless(inside, instances=FEW, delta=0.3, seed=4)

    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    assert audit().to_dict() == audit().to_dict()
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "guess"}, "no method 'guess'; there are exact paths"),
        ({"false_alarms": 0}, "false_alarms = 0"),
        ({"delta": 1.5}, "delta = 1.5"),
        ({"delta": 1e-300}, "delta = 1e-300"),
        ({"examples": -1}, "examples = -1"),
        ({"max_runs": 0}, "max_runs = 0"),
        ({"tolerance": "much"}, "tolerance = 'much'"),
        ({"seed": 0.5}, "seed = 0.5"),
        ({"instances": []}, "at least one"),
        ({"instances": [INSTANCES["pairs"]]}, "supports none of the 1 instances"),
        ({"kind": "beam"}, "no kind of verifier 'beam'; there are chain"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidParameterError, UnknownMethodError), match=message):
        lossless(right, **arguments)


def test_a_method_that_does_not_serve_is_refused() -> None:
    own = np.random.default_rng(0)

    def inside(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        return [int(own.integers(2))]

    with pytest.raises(InvalidParameterError, match="do not always give the same output"):
        lossless(inside, method="breakpoints")
