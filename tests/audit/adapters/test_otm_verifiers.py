"""Our own loops and kernels pass the audit."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Adapter, lossless
from otm.audit.adapters.otm_verifiers import kernel, spectr_step, speculative_loop
from otm.audit.instances import INSTANCES
from otm.audit.observe.breakpoints import observe_by_breakpoints
from otm.audit.runs import Runner
from otm.coupling import PLANS, RecursiveRejectionWithoutReplacement
from otm.coupling.build import PlanBuilder
from otm.coupling.lossy import TypicalAcceptance
from otm.decoding import DeviceVerifier, tree_rules
from otm.errors import InvalidParameterError, UnknownMethodError
from otm.kernels import verify_probs

pytestmark = pytest.mark.usefixtures("no_diagnosis")

CHAINS = ("zeros", "three tokens", "two drafts, two tokens")
SEVERAL = (*CHAINS, "pairs")


def passes(adapter: Adapter, names: tuple[str, ...], method: str) -> None:
    """Assert that the audit has nothing to say."""
    report = lossless(adapter, instances=[INSTANCES[name] for name in names], examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, method), str(report)
    assert report.instances == len(names)


@pytest.mark.parametrize("rule", ["chain", "block", "greedy block"])
def test_loops_of_one_chain(rule: str) -> None:
    passes(speculative_loop(rule), CHAINS, "exact paths")


@pytest.mark.parametrize("prefix_tree", [False, True])
@pytest.mark.parametrize("rule", tree_rules())
def test_loops_of_several_chains(rule: str, prefix_tree: bool) -> None:
    names = ("zeros", "pairs", "two drafts, two tokens") if prefix_tree else ("zeros", "pairs")
    passes(spectr_step(rule, prefix_tree=prefix_tree), names, "exact paths")


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_definitions_of_kernels(rule: str) -> None:
    passes(kernel(rule), CHAINS, "exact paths")


@pytest.mark.parametrize("rule", ["grid k-Seq", "grid optimal", "grid walk and keep"])
def test_definitions_of_kernels_for_several_chains(rule: str) -> None:
    passes(kernel(rule), SEVERAL, "exact paths")


TORCH = [
    ("chain", CHAINS[2:]),
    ("block", CHAINS[2:]),
    ("grid k-Seq", SEVERAL[2:]),
    ("grid optimal", SEVERAL[3:]),
    ("grid walk and keep", SEVERAL[2:3]),
]


@pytest.mark.parametrize(("rule", "names"), TORCH)
def test_torch(rule: str, names: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    passes(kernel(rule, "torch"), names, "breakpoints")


@pytest.mark.parametrize("rule", [case[0] for case in TORCH])
def test_triton_decides_alike_on_every_piece(rule: str) -> None:
    """Catches an adapter that gives the kernels other arrays than it gives their reference.

    The audit finds the reference's pieces; the interpreter is too slow to find the kernels' pieces.
    """
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")
    instance = INSTANCES["zeros"]
    seen = observe_by_breakpoints(
        Runner(kernel(rule, "torch")), instance, np.random.default_rng(0), 10**6
    )
    rows = np.array([[*uniforms, *[0.5] * 8] for uniforms in seen.examples.values()])
    assert kernel(rule, "triton").outputs(instance, rows) == list(seen.examples)


DEVICE = [
    ("chain", CHAINS),
    ("block", CHAINS),
    ("grid k-Seq", ("zeros", *SEVERAL[2:])),
    ("grid optimal", SEVERAL[3:]),
    ("grid walk and keep", SEVERAL[2:3]),
]


@pytest.mark.parametrize(("rule", "names"), DEVICE)
def test_verifiers_on_a_device(rule: str, names: tuple[str, ...]) -> None:
    """Catches steps of the loop that mix up coins, rows or drafts, for all kernels."""
    pytest.importorskip("torch")
    instances = [INSTANCES[name] for name in names]
    report = lossless(DeviceVerifier(rule), instances=instances, examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, "breakpoints"), str(report)
    assert (report.verifier, report.instances) == (f"DeviceVerifier, {rule}", len(names))


COIN = "uniforms[:, gamma], uniforms[:, gamma + 1]", "uniforms[:, 0], uniforms[:, gamma + 1]"
SLIPS = [  # rule, instance, module, what is right in it, and what is wrong
    ("chain", "zeros", "chain", "* draft < target", "* draft <= target"),
    ("chain", "three tokens", "chain", "* draft < target", "< target"),
    ("chain", "three tokens", "chain", "(masses - draft_mass(", "(draft_mass("),
    ("chain", "three tokens", "chain", *COIN),
    ("chain", "three tokens", "chain", "[sequences, accepted]", "[sequences, 0 * accepted]"),
    ("block", "zeros", "block", "coin < weight, passes & (i < length)) & (weight > 0)",
     "coin <= weight, passes & (i < length))"),
    ("block", "after a block", "block", "* (excess + (1 - weight))", "* excess"),
    ("block", "three tokens", "block", "(residual - draft_mass(", "(draft_mass("),
    ("block", "three tokens", "block", *COIN),
    ("block", "three tokens", "block", "row = mass(target_probs[:, i])", "row = masses"),
    ("grid k-Seq", "zeros", "k_seq", "* of_draft < split", "* of_draft <= split"),
    ("grid k-Seq", "pairs", "k_seq", "everything - mass(", "mass(draft) - mass("),
    ("grid k-Seq", "pairs", "multi_draft", "uniforms[:, -2], ", "uniforms[:, 0], "),
    ("grid k-Seq", "rows differ", "multi_draft", "chain, gamma]", "chain, 0]"),
    ("grid optimal", "zeros", "optimal", "< of_target", "<= of_target"),
    ("grid optimal", "pairs", "optimal", "everything - mass(", "mass(draft) - mass("),
    ("grid walk and keep", "two drafts, two tokens", "walk_and_keep",
     "left = (mass(weighted)", "left = (mass(target.double())"),
]  # fmt: skip
"""Acceptance by u ≤ ratio or by another ratio, residuals of the draft or of none, the coin of the
first draft for the recovered token, and the bonus token from a row that it does not follow."""


@pytest.mark.parametrize(("rule", "instance", "name", "right", "wrong"), SLIPS)
def test_slips_of_verifiers_on_a_device_are_found(  # noqa: PLR0917
    rule: str, instance: str, name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls of the test above."""
    pytest.importorskip("torch")
    original = import_module(f"otm.kernels.{name}.torch")
    source = inspect.getsource(original)
    assert source.count(right) == 1
    slip = ModuleType(original.__name__)
    exec(compile(source.replace(right, wrong), str(original.__file__), "exec"), vars(slip))
    if name == "multi_draft":
        of_rule = import_module("otm.kernels.k_seq.torch")
        monkeypatch.setattr(of_rule, "verify", partial(slip.verify_chains, of_rule.select))
    else:
        monkeypatch.setitem(sys.modules, original.__name__, slip)
    report = lossless(DeviceVerifier(rule), instances=[INSTANCES[instance]], examples=0)
    assert (report.verdict, report.method) == (NOT_LOSSLESS, "breakpoints"), str(report)


@pytest.mark.parametrize(
    "slip",
    [
        lambda target, draft, *rest: (target.roll(1, -2), draft, *rest),
        lambda target, draft, *rest: (target, draft.roll(1, -1), *rest),
        lambda target, draft, *rest: (target.sqrt(), draft.sqrt(), *rest),
    ],
    ids=["rows of another position", "not what drafts are drawn from", "a temperature"],
)
def test_slips_around_kernels_are_found(slip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls too: what a kernel is given."""
    pytest.importorskip("torch")
    place = "otm.decoding.device.rounds.verify_probs"
    monkeypatch.setattr(place, lambda *given, **options: verify_probs(*slip(*given), **options))
    report = lossless(DeviceVerifier(), instances=[INSTANCES["three tokens"]], examples=0)
    assert (report.verdict, report.method) == (NOT_LOSSLESS, "breakpoints"), str(report)


def test_what_is_not_lossless_does_not_pass() -> None:
    """Catches adapters that show the audit something else than the loop."""
    lossy = spectr_step(TypicalAcceptance, name="typical acceptance")
    report = lossless(lossy, instances=[INSTANCES["zeros"], INSTANCES["pairs"]], examples=0)
    assert report.verdict == NOT_LOSSLESS
    assert report.verifier == "spectr, typical acceptance"


@pytest.mark.parametrize(
    "call",
    [
        lambda: kernel("k-Seq"),
        lambda: kernel("chain", "cuda"),
        lambda: kernel("kseq", "torch"),
        lambda: spectr_step("greedy rule"),
        lambda: speculative_loop("typo"),
        lambda: speculative_loop(None),  # type: ignore[arg-type]
    ],
)
def test_unknown_names_are_refused_at_once(call: Any) -> None:
    with pytest.raises(UnknownMethodError, match=r"there is no|cannot be used here"):
        call()


@pytest.mark.parametrize("rule", [RecursiveRejectionWithoutReplacement, PLANS["SpecHub"]])
def test_rules_for_drafts_of_other_laws_are_refused_at_once(rule: PlanBuilder) -> None:
    """Catches "not lossless" as the verdict on a rule that was given the wrong drafts."""
    with pytest.raises(InvalidParameterError, match="this tree has 2 IID drafts"):
        spectr_step(rule)


def test_rules_without_a_plan_are_refused_at_once() -> None:
    with pytest.raises(InvalidParameterError, match="returned None"):
        spectr_step(lambda problem: None)  # type: ignore[arg-type, return-value]
