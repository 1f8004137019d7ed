"""A pytest run that collects its tests once and runs them in one fork per mutant."""

import gc
import math
import os
import pickle
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from benchmarks.mutation.mutants import Mutant, functions_of

__all__ = ["Session", "interval"]

EXAMPLES = 30
"""Number of examples per property test, fewer than in normal test runs."""

PATIENCE = 10
"""Time limit of a test: this many times its usual processor time, plus this many seconds."""


class Session:
    """The pytest plugin that collects tests and runs mutants.

    Parameters
    ----------
    modules : list of modules
        Modules to mutate.
    use : callable
        Called with this object as soon as `kills` works.
    """

    def __init__(self, modules: list[ModuleType], use: Callable[["Session"], None]) -> None:
        self._functions = {
            (module.__name__, name): function
            for module in modules
            for name, function in functions_of(module).items()
        }
        self._use = use
        self._failed = False
        self._found: Counter[str] = Counter()
        self.timeouts: list[str] = []

    def pytest_configure(self) -> None:
        """Turn off Hypothesis' search for smaller failing examples."""
        phases = Phase.explicit, Phase.generate
        few = settings(settings.get_profile("ci"), phases=phases, max_examples=EXAMPLES)
        settings.register_profile("mutation", few)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        self._seconds, reached, loaded = _forked(self._measure)
        for name in loaded:  # import now, so that no test is slow because of its imports
            with suppress(Exception):
                import_module(name)
        gc.freeze()
        self._tests: dict[tuple[str, str], list[str]] = defaultdict(list)
        for test, functions in reached.items():
            for function in functions:
                self._tests[function].append(test)
        print(f"{len(self._items)} tests, {sum(self._seconds.values()):.0f} s", flush=True)
        self._use(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def kills(self, mutant: Mutant) -> bool:
        """Whether some test fails or takes too long with this mutant."""
        place = mutant.module, mutant.name
        tests = sorted(self._tests[place], key=lambda t: (-self._found[t], self._seconds[t]))

        def run() -> str | None:
            self._functions[place].__code__ = mutant.code
            for test in tests:
                limit = PATIENCE * (1 + self._seconds[test])
                signal.setitimer(signal.ITIMER_VIRTUAL, limit)
                if not self._passes(test):
                    return test
            return None

        killer = _forked(run)
        if killer == TIMEOUT:
            self.timeouts.append(mutant.key)
        if killer is not None:
            self._found[killer] += 1
        return killer is not None

    def _passes(self, test: str) -> bool:
        self._failed = False
        item = self._items[test]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self._failed

    def _measure(self) -> tuple[dict[str, float], dict[str, set[tuple[str, str]]], list[str]]:
        """Measure each passing test's processor time and functions, and list the loaded modules."""
        places = {function.__code__: place for place, function in self._functions.items()}
        seconds, reached = {}, {}
        ran: set[Any] = set()

        def trace(frame: Any, event: str, _: Any) -> None:
            ran.add(frame.f_code)

        for test in self._items:
            ran.clear()
            start = time.process_time()
            sys.settrace(trace)
            passes = self._passes(test)
            sys.settrace(None)
            if passes:
                seconds[test] = time.process_time() - start
                reached[test] = {places[code] for code in ran & places.keys()}
        loaded = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
        return seconds, reached, loaded


PACKAGES = {"highspy", "hypothesis", "otm", "scipy", "torch"}
TIMEOUT = "a test that did not end"


def _forked(function: Callable[[], Any]) -> Any:
    """Call a function in a silent fork of this process, and return its result."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            answer = pickle.dumps(function())
            with os.fdopen(write, "wb") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else TIMEOUT


def interval(hits: int, tries: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval for the probability of a hit."""
    share, weight = hits / tries, z * z / tries
    centre = (share + weight / 2) / (1 + weight)
    half = math.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
    return centre - half, centre + half
