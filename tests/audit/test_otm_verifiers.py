"""Our own loops and kernels pass the audit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Adapter, lossless
from otm.audit.adapters.otm_verifiers import kernel, spectr_step, speculative_loop
from otm.audit.breakpoints import by_breakpoints
from otm.audit.instances import INSTANCES
from otm.coupling import PLANS, RecursiveRejectionWithoutReplacement, TypicalAcceptance
from otm.coupling.build import PlanBuilder
from otm.decoding import tree_rules
from otm.errors import InvalidParameterError, UnknownMethodError
from otm.kernels.numpy import grid_optimal

CHAINS = ("zeros", "three tokens", "two drafts, two tokens")
SEVERAL = (*CHAINS, "pairs")


def passes(adapter: Adapter, names: tuple[str, ...], method: str) -> None:
    """Assert that the audit has nothing to say."""
    report = lossless(adapter, instances=[INSTANCES[name] for name in names], examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, method), str(report)
    assert report.instances == len(names)


@pytest.mark.parametrize("rule", ["chain", "block"])
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


@pytest.fixture
def one_table_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tables of nodes: thousands of paths pass the same few, in slow fractions."""
    find, kept = grid_optimal.at_node, dict[Any, Any]()

    def at_node(target: Any, draft: Any, *numbers: int) -> Any:
        key = (target.dtype, *target, *draft, *numbers)
        if key not in kept:
            kept[key] = find(target, draft, *numbers)
        return kept[key]

    monkeypatch.setattr(grid_optimal, "at_node", at_node)


@pytest.mark.usefixtures("one_table_a_node")
@pytest.mark.parametrize("rule", ["grid k-Seq", "grid optimal"])
def test_definitions_of_kernels_for_several_chains(rule: str) -> None:
    passes(kernel(rule), SEVERAL, "exact paths")


TORCH = [
    ("chain", CHAINS[1:]),
    ("block", CHAINS[1:]),
    ("grid k-Seq", SEVERAL[2:]),
    ("grid optimal", SEVERAL[2:]),
]


@pytest.mark.parametrize(("rule", "names"), TORCH)
def test_torch(rule: str, names: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    passes(kernel(rule, "torch"), names, "breakpoints")


@pytest.mark.parametrize("rule", [case[0] for case in TORCH])
def test_triton_decides_alike_on_every_piece(rule: str) -> None:
    """Catches an adapter that gives the kernels other arrays than it gives their reference.

    The law of the reference is known piece by piece; the interpreter is too slow to find its own.
    """
    pytest.importorskip("torch")
    pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")
    instance = INSTANCES["zeros"]
    seen = by_breakpoints(kernel(rule, "torch"), instance, np.random.default_rng(0), 10**6)
    rows = np.array([[*uniforms, *[0.5] * 8] for uniforms in seen.examples.values()])
    assert kernel(rule, "triton").outputs(instance, rows) == list(seen.examples)


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
    with pytest.raises(InvalidParameterError, match="not a rule for k independent drafts"):
        spectr_step(rule)


def test_rules_without_a_plan_are_refused_at_once() -> None:
    with pytest.raises(InvalidParameterError, match="returned None"):
        spectr_step(lambda problem: None)  # type: ignore[arg-type, return-value]
