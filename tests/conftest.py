"""Settings of the whole suite, and what tests need that not every machine has."""

import gc
import importlib.metadata
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

# Triton reads this once, when it is first imported: the kernels then run without a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")
# torch reads this when it is first imported: pytest-xdist has a worker for each core already.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

collect_ignore = ["installed/tasks"]  # scripts, which test_examples.py runs

# Nothing is timed: other work on the machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", UNTIMED, derandomize=True, max_examples=100)
settings.register_profile("long", UNTIMED, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    """Look for old garbage rarely, and leave out modules that cannot be read without torch."""
    gc.set_threshold(*gc.get_threshold()[:2], 100)  # there are thousands of tests to look through
    config.add_cleanup(gc.unfreeze)  # for extensions that look in the end for what they have left
    if find_spec("torch") is None:
        kernels = f"{config.rootpath}/otm/*"
        modules = ("kernels/*/torch", "kernels/*/triton*", "clocks/torch", "clocks/triton")
        modules += ("kernels/self_check/*", "chain/sigmoid")
        modules += tuple(
            f"common/{name}" for name in ("draw", "host", "one_chain", "runtime", "softmax")
        )
        files = [f"{kernels}{name}.py" for name in modules]
        config.option.ignore_glob = [*(config.option.ignore_glob or []), *files]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage while tests are collected, nor later among them: nearly all stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup() -> None:
    """Once Triton's interpreter is imported, make it quicker."""
    if "triton.runtime.interpreter" in sys.modules:
        from tests.interpreter import quicken

        quicken()


CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"


@pytest.fixture(scope="session")
def need_pinned() -> Callable[[str], None]:
    """Skip where a package has another version than committed outputs were made with."""
    pinned = CONSTRAINTS.read_text(encoding="utf-8").splitlines()

    def need(package: str) -> None:
        here = f"{package}=={importlib.metadata.version(package)}"
        if here not in pinned:
            pytest.skip(f"{here} is not the version that the committed outputs were made with")

    return need


@pytest.fixture
def hears_ctrl_c() -> None:
    """Skip where processes that a test starts do not hear Ctrl-C."""
    if sys.platform == "win32":
        pytest.skip("signals are others there")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        pytest.skip("started in the background, where child processes ignore Ctrl-C")


@pytest.fixture
def each_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build plans of loops once: their paths meet the same few problems a thousand times."""
    from otm.coupling.build import build_plan

    plans: dict[Any, Any] = {}

    def build(rule: Any, problem: Any) -> Any:
        arrays = problem.tokens, problem.draft, problem.target
        key = (rule, problem.k, *(None if array is None else tuple(array) for array in arrays))
        if key not in plans:
            plans[key] = build_plan(rule, problem)
        return plans[key]

    monkeypatch.setattr("otm.decoding.verifiers.recursion.build_plan", build)


@pytest.fixture
def device() -> Iterator[str]:
    """Where Triton's kernels run: a GPU, or the CPU if they are interpreted.

    New memory is full of NaN and of large numbers, so that to read it is seen.
    """
    torch = pytest.importorskip("torch")
    from otm.kernels.common.runtime import compiles

    empty = torch.empty

    def filled(*shape: Any, **options: Any) -> Any:
        memory = empty(*shape, **options)
        return memory.fill_(math.nan if memory.is_floating_point() else 2**30)

    place = "cuda" if compiles() else "cpu"
    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("Triton's kernels need a GPU, or TRITON_INTERPRET=1")
    if place == "cpu":  # older interpreters fail with NumPy 2.4, and some do not know all types
        reason = "interprets kernels from Triton 3.7 on"
        pytest.importorskip("triton", minversion="3.7", reason=reason)
    # not by monkeypatch, which undoes it last: what `small_blocks` has put there would come back
    with mock.patch.object(torch, "empty", filled):
        yield place


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Blocks of 8 tokens, so that small vocabularies have many.

    If the kernels are interpreted, no program may touch what lies outside of its arguments, and
    none what another one writes in the same launch.
    """
    pytest.importorskip("torch")
    from otm.kernels.common import runtime

    monkeypatch.setattr(runtime, "BLOCK", 8)
    if runtime.triton is None or runtime.compiles():
        yield 8
        return
    from tests.kernels.compiled.accesses import recorded

    with recorded(forget=True) as launches:
        yield 8
    assert sorted({fault for launch in launches for fault in launch.faults}) == []
