"""From an entry to the computation: at most ten modules deep, and always downwards.

A layer calls what is above it in three ways only: methods that it declares and a subclass gives,
functions that it was handed (the verifier that is audited, a predicate), and operators of values.
"""

import tempfile
from collections.abc import Callable
from functools import cache, partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

import otm
from benchmarks.chains import CALLS as TRACED
from benchmarks.chains import trace
from otm.audit import lossless
from otm.audit.instances import INSTANCES
from tests.repo.test_import import LAYERS, package

OPERATORS = {f"__{name}__" for name in ("gt", "ge", "lt", "le", "eq", "mul", "rmul", "add", "radd")}


@cache
def rank(module: str) -> int:
    """Height of a module's layer."""
    return next(i for i, layer in enumerate(LAYERS) if package(module) in layer)


def is_override(frame: FrameType, caller: str) -> bool:
    """Whether a call is that of a method which a class of the caller's layer declares."""
    owner = type(frame.f_locals.get("self"))
    return any(
        frame.f_code.co_name in vars(base) and rank(base.__module__) <= rank(caller)
        for base in owner.__mro__[1:]
        if base.__module__.startswith("otm")
    )


def is_handed_down(frame: FrameType) -> bool:
    """Whether the caller holds the function as a value, or what is called is an operator of one."""
    held = frame.f_back.f_locals.values() if frame.f_back else ()
    codes = [getattr(getattr(value, "__func__", value), "__code__", None) for value in held]
    return frame.f_code.co_name in OPERATORS or not frame.f_back or frame.f_code in codes


def watched(call: Callable[[], Any]) -> tuple[list[str], set[tuple[str, str]]]:
    """Return the modules on the deepest stack of a call, and its calls to higher layers."""
    upwards = set()

    def watch(frame: FrameType, caller: str, module: str) -> None:
        up = rank(module) > rank(caller)
        if up and not is_override(frame, caller) and not is_handed_down(frame):
            upwards.add((caller, f"{module}:{frame.f_code.co_qualname}"))

    return trace(call, watch).deepest, upwards


PAIR = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


def solve() -> None:
    solution = otm.solve(*PAIR, 2)
    solution.plan.select([0, 1], [0.5] * 4)
    solution.certificate.check()


def generate(rule: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from otm.integrations.huggingface import AssistedDecoding

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(vocab_size=2048, **sizes, num_attention_heads=2)
    target, draft = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
    decoding = AssistedDecoding(draft, k=2, gamma=2, rule=rule)
    options = {"custom_generate": decoding, "do_sample": True, "top_k": 0, "max_new_tokens": 4}
    target.generate(torch.tensor([[1, 2, 3]]), **options)


def audit() -> None:
    def accept_all(target_probs: Any, draft_probs: Any, draft_tokens: Any, uniforms: Any) -> Any:
        return draft_tokens

    lossless(accept_all, examples=0, instances=[next(iter(INSTANCES.values()))])


def report() -> None:
    for name in ("typer", "rich", "joblib", "jinja2", "matplotlib"):
        pytest.importorskip(name)
    from otm.cli import main

    draft, target = np.random.default_rng(0).normal(size=(2, 4, 3))
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/pair.npz"
        np.savez(file, prompts=[0, 0, 1, 1], tokens=[0, 1, 2, 0], draft=draft, target=target)
        options = f"--output {folder} --workers 1 --latency 0.1"
        assert main(["report", file, *options.split()]) == 0


CALLS = {
    "solve": solve,
    "compare": lambda: repr(otm.compare(*PAIR, 2)),
    "generate": partial(generate, "k-Seq"),
    "generate, on the device": partial(generate, "grid optimal"),
    "generate, coupled on the device": partial(generate, "list coupling"),
    "report": report,
    "audit": audit,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_goes_down_at_most_ten_modules(name: str) -> None:
    """Bug: a layer that only passes on, or one that asks the layer above it."""
    CALLS[name]()  # imports do not count as calls
    deepest, upwards = watched(CALLS[name])
    assert 3 <= len(deepest) <= 10, " > ".join(deepest)
    assert not upwards


def test_a_call_upwards_is_seen_and_files_are_counted() -> None:
    """The controls: `shown` asks for the `repr` of a comparison; a trace misses no file."""
    from otm._core.display.text import shown

    comparison = otm.compare(*PAIR, 2, rules=["k-Seq"])
    _, upwards = watched(lambda: shown(comparison))
    assert any(callee.startswith("otm.coupling.compare.comparison:") for _, callee in upwards)
    TRACED["solve(…).plan.select"]()
    found = trace(TRACED["solve(…).plan.select"])
    own = {str(file) for file in found.own_files}
    assert {"solve.py", "solution.py", "optimum/cut.py"} <= own
    assert {str(file) for file in found.files - found.own_files} >= {"_core/ratios/bins.py"}
    assert len(own) <= 10
