"""Draws that a verifier makes by generators, taken from the audit's uniforms.

The generators are the global ones, or one that it takes as a parameter.  While such a verifier
runs, functions of `random` and `numpy.random`, and operations of torch
(`otm.audit.intercept.torch`), draw from the source of the run.  So its output is a function of
uniforms, whose distribution can be computed.  A generator that the verifier seeds is left to
itself: then the same numbers come again, and the audit shall see that.  What is drawn elsewhere
shows, as the same uniforms do not always give the same output.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otm.audit.adapters.base import Adapter, Instance, Outcome, Source, run
from otm.audit.intercept.generators import (
    GeneratorWatch,
    StandInOfNumPy,
    StandInOfPython,
    of_its_own,
)
from otm.audit.intercept.races import Race
from otm.decoding.draft_tree import Randomness

AnySource = TypeVar("AnySource", bound=Randomness)

OF_PYTHON = ("random", "uniform", "choice", "choices", "randint", "randrange", "sample", "shuffle")
"""Functions of the module `random` that draw from the source."""

OF_NUMPY = (
    "random", "random_sample", "ranf", "sample", "rand", "uniform", "choice", "multinomial",
    "exponential", "standard_exponential", "gumbel",
)  # fmt: skip
"""Functions of `numpy.random` that do."""


MT19937_BYTES = 4 * (624 + 1)
"""Bytes of the state of that generator: 624 words and a place."""


def with_own_draws(adapter: Adapter) -> Adapter:
    """Return a verifier that draws for itself as one whose uniforms are an argument."""
    return OwnDraws(adapter) if adapter.own_draws else adapter


class OwnDraws(Adapter):
    """A verifier that draws for itself, with all its draws from the source of a run."""

    repeatable = True

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self.name, self.several, self.exact = adapter.name, adapter.several, adapter.exact
        self.max_tokens, self.loops = adapter.max_tokens, adapter.loops
        self.whole, self.end = adapter.whole, adapter.end
        self.reset = False  # whether a run has set a generator in a way that its draws do not show
        self.looked = False  # whether a run has looked at the values of noise
        if (drafted := getattr(adapter, "drafted", None)) is not None:
            self.drafted = drafted

    def supports(self, instance: Instance) -> bool:
        """Whether the verifier can run on an instance."""
        return self._adapter.supports(instance)

    def output(self, instance: Instance, source: Randomness) -> Any:
        """Run once, whatever happens."""
        ((_, outcome),) = self.runs(instance, [source])
        return outcome

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> list[Any]:
        """Run many times, whatever happens."""
        return [outcome for _, outcome in self.runs(instance, map(Source, uniforms))]

    def runs(
        self, instance: Instance, sources: Iterable[AnySource]
    ) -> Iterator[tuple[AnySource, Outcome]]:
        """Run on each source, with generators that are replaced once."""
        with own_generators() as generators:
            for source in sources:
                generators.begin(source)
                outcome = run(self._adapter, instance, source)
                generators.end()
                self.reset = self.reset or any(watch.reset for watch in generators.watches)
                self.looked = self.looked or any(race.looked_at for race in generators.races)
                yield source, outcome


def runs(
    adapter: Adapter, instance: Instance, sources: Iterable[AnySource]
) -> Iterator[tuple[AnySource, Outcome]]:
    """Run a verifier on one source after another."""
    if isinstance(adapter, OwnDraws):
        yield from adapter.runs(instance, sources)
    else:
        for source in sources:
            yield source, run(adapter, instance, source)


class Generators:
    """Stand-ins of the global generators, which draw from the source of a run.

    `races` is noise of the run that may make races.
    """

    def __init__(self) -> None:
        self.races: list[Race] = []
        self.python, self.numpy = StandInOfPython(), StandInOfNumPy(self.races)
        self.watches = [
            GeneratorWatch(random.getstate, random.random),
            GeneratorWatch(_state_of_numpy, np.random.random),
        ]
        self.drawing: list[Any] = [self.python, self.numpy]  # what has a source
        self._made: StandInOfNumPy | None = None
        self.torch: Any = None  # the generator of torch whose draws are the run's

    def begin(self, source: Randomness) -> None:
        """Begin a run."""
        self.races.clear()
        for watch in self.watches:
            watch.begin()
        for each in self.drawing:
            each.source = source

    def end(self) -> None:
        """End a run; a generator that the verifier has kept draws by itself from now on."""
        for watch in self.watches:
            watch.check()
        self.let_go()

    def let_go(self) -> None:
        """Let all draw by themselves, and those that were handed out for good."""
        for each in self.drawing:
            each.source = of_its_own
        if self._made is not None:
            self.drawing.remove(self._made)
            self._made = None

    def make(self) -> StandInOfNumPy:
        """Make what `numpy.random.default_rng()` returns in a run, and what a verifier is given."""
        if self._made is None:
            self._made = StandInOfNumPy(self.races, self.numpy.source)
            self.drawing.append(self._made)
        return self._made


@contextmanager
def own_generators() -> Iterator[Generators]:
    """Replace global generators, but for those that are seeded in a run."""
    generators = Generators()
    python, numpy = generators.watches
    with ExitStack() as stack:
        stack.callback(generators.let_go)
        stack.enter_context(_until_seeded(random, generators.python, OF_PYTHON, python))
        stack.enter_context(_until_seeded(np.random, generators.numpy, OF_NUMPY, numpy))
        real = np.random.default_rng

        def default_rng(seed: Any = None) -> np.random.Generator:
            return generators.make() if seed is None else real(seed)

        stack.enter_context(_replaced(np.random, {"default_rng": default_rng}))
        if "torch" in sys.modules:
            from otm.audit.intercept.torch import TorchDraws

            draws = TorchDraws(of_its_own, generators.races)
            generators.watches.append(draws.watch)
            generators.drawing.append(draws)
            generators.watches.append(draws.watch_of_handed)
            generators.torch = draws.handed
            stack.enter_context(draws.following())
        stack.callback(_replacing.pop)
        _replacing.append(generators)
        yield generators


_replacing: list[Generators] = []
"""Generators that are replaced now, the innermost last."""


def handed_out(name: str) -> Any:
    """Return the "rng" or "generator" for a verifier's parameter; None if none is replaced."""
    if not _replacing:
        return None
    return _replacing[-1].make() if name == "rng" else _replacing[-1].torch


@contextmanager
def drawing_from(source: Randomness) -> Iterator[Generators]:
    """Let global generators draw from a source, but for those that are seeded meanwhile."""
    with own_generators() as generators:
        generators.begin(source)
        yield generators
        generators.end()


def _state_of_numpy() -> Any:
    """State of the global generator of NumPy, of which `numpy.random.get_state` takes long."""
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # NumPy forgets it
    if type(generator) is np.random.MT19937:
        return ctypes.string_at(generator.ctypes.state_address, MT19937_BYTES)
    name, key, *others = np.random.get_state()  # noqa: NPY002
    return name, np.asarray(key).tobytes(), others


@contextmanager
def _replaced(module: Any, functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Replace functions of a module for a while."""
    kept = {name: getattr(module, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in kept.items():
            setattr(module, name, function)


def _until_seeded(module: Any, stand_in: Any, names: Sequence[str], watch: GeneratorWatch) -> Any:
    """Let functions of a module be those of a stand-in, until its generator is seeded."""

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
