"""Replace draws of a verifier's generators by the audit's uniforms.

The verifier uses the global generators, or one that is its parameter.  While the verifier runs,
functions of `random` and `numpy.random`, and operations of torch (`otm.audit.intercept.torch`),
draw from the source of the run.  So the verifier's output is a function of the source's uniforms,
and the audit can compute the distribution of the output.  A generator that the verifier seeds is
not replaced, because the audit must detect that its numbers repeat.  The audit detects draws from
other generators, because equal uniforms then give different outputs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np

from otm.audit.intercept.generators import NumPyStandIn, PythonStandIn, default_uniforms
from otm.audit.intercept.races import Race
from otm.audit.intercept.watch import GeneratorWatch, numpy_state
from otm.decoding.draft_tree import Randomness

AnySource = TypeVar("AnySource", bound=Randomness)
Result = TypeVar("Result")

PYTHON_FUNCTIONS = (
    "random",
    "uniform",
    "choice",
    "choices",
    "randint",
    "randrange",
    "sample",
    "shuffle",
)
"""Functions of the module `random` that draw from the source."""

NUMPY_FUNCTIONS = (
    "random", "random_sample", "ranf", "sample", "rand", "uniform", "choice", "multinomial",
    "exponential", "standard_exponential", "gumbel",
)  # fmt: skip
"""Functions of `numpy.random` that draw from the source."""


class InterceptedRng:
    """A runner of code whose generators draw from the source; records resets and reads of noise."""

    def __init__(self) -> None:
        # Whether a run has set the state of a generator.
        self.was_reset = False
        # Whether a run has read the values of noise.
        self.reads_noise = False

    def run_each(
        self, run: Callable[[AnySource], Result], sources: Iterable[AnySource]
    ) -> Iterator[tuple[AnySource, Result]]:
        """Run on each source; replace the generators once for all runs."""
        with replaced_generators() as generators:
            for source in sources:
                generators.begin(source)
                result = run(source)
                generators.end()
                self.was_reset |= any(watch.reset for watch in generators.watches)
                self.reads_noise |= any(race.was_read for race in generators.races)
                yield source, result


class Generators:
    """Substitutes for the global generators, which draw from the source of a run.

    `races` contains the noise of the run that may determine a winner (`otm.audit.intercept.races`).
    """

    def __init__(self) -> None:
        self.races: list[Race] = []
        self.python, self.numpy = PythonStandIn(), NumPyStandIn(self.races)
        self.watches = [
            GeneratorWatch(random.getstate, random.random),
            GeneratorWatch(numpy_state, np.random.random),
        ]
        # Objects with a source.
        self.drawing: list[Any] = [self.python, self.numpy]
        self._made: NumPyStandIn | None = None
        # The torch generator whose draws come from the source.
        self.torch: Any = None

    def begin(self, source: Randomness) -> None:
        """Begin a run."""
        self.races.clear()
        for watch in self.watches:
            watch.begin()
        for each in self.drawing:
            each.source = source

    def end(self) -> None:
        """End a run.  If the verifier has kept a generator, the generator now draws by itself."""
        for watch in self.watches:
            watch.check()
        self.detach()

    def detach(self) -> None:
        """Detach all substitutes from the source, and remove the substitute of a verifier."""
        for each in self.drawing:
            each.source = default_uniforms
        if self._made is not None:
            self.drawing.remove(self._made)
            self._made = None

    def make(self) -> NumPyStandIn:
        """Return the substitute for `numpy.random.default_rng()` and for a parameter `rng`."""
        if self._made is None:
            self._made = NumPyStandIn(self.races, self.numpy.source)
            self.drawing.append(self._made)
        return self._made


@contextmanager
def replaced_generators() -> Iterator[Generators]:
    """Replace global generators, except those that a run seeds."""
    generators = Generators()
    python, numpy = generators.watches
    with ExitStack() as stack:
        stack.callback(generators.detach)
        stack.enter_context(_until_seeded(random, generators.python, PYTHON_FUNCTIONS, python))
        stack.enter_context(_until_seeded(np.random, generators.numpy, NUMPY_FUNCTIONS, numpy))
        real = np.random.default_rng

        def default_rng(seed: Any = None) -> np.random.Generator:
            return generators.make() if seed is None else real(seed)

        stack.enter_context(_replaced(np.random, {"default_rng": default_rng}))
        if "torch" in sys.modules:
            from otm.audit.intercept.torch import TorchDraws

            draws = TorchDraws(default_uniforms, generators.races)
            generators.watches.append(draws.watch)
            generators.drawing.append(draws)
            generators.watches.append(draws.handed_watch)
            generators.torch = draws.handed
            stack.enter_context(draws.following())
        stack.callback(_replacing.pop)
        _replacing.append(generators)
        yield generators


_replacing: list[Generators] = []
"""Generators in use; the innermost is last."""


def active_generator(name: str) -> Any:
    """Return the "rng" or "generator" for a verifier's parameter; None outside of audited runs."""
    if not _replacing:
        return None
    return _replacing[-1].make() if name == "rng" else _replacing[-1].torch


@contextmanager
def _replaced(module: Any, functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Replace functions of a module temporarily."""
    kept = {name: getattr(module, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in kept.items():
            setattr(module, name, function)


def _until_seeded(module: Any, stand_in: Any, names: Sequence[str], watch: GeneratorWatch) -> Any:
    """Replace functions of a module by those of a substitute until its generator is seeded."""

    def seed(*arguments: Any, _seed: Callable[..., None] = module.seed, **options: Any) -> None:
        watch.seed()
        _seed(*arguments, **options)

    def function(real: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*arguments: Any, **options: Any) -> Any:
            if watch.seeded:
                return real(*arguments, **options)
            watch.check()
            try:
                return own(*arguments, **options)
            finally:
                watch.drawn()

        return draw

    own = {name: function(getattr(module, name), getattr(stand_in, name)) for name in names}
    return _replaced(module, {"seed": seed, **own})
