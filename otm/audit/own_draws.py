"""Draws that a verifier makes by generators, taken from the audit's uniforms.

The generators are the global ones, or one that it takes as a parameter.  While such a verifier
runs, functions of `random` and `numpy.random`, and operations of torch
(`otm.audit.own_draws_torch`), draw from the source of the run.  So its output is a function of
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
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otm.audit.adapter import Adapter, Instance, Outcome, Source, run
from otm.audit.races import Form, Noise, Race, draw_place
from otm.decoding.draft_tree import Randomness

AnySource = TypeVar("AnySource", bound=Randomness)

OF_PYTHON = ("random", "uniform", "choice", "choices", "randint", "randrange", "sample", "shuffle")
"""Functions of the module `random` that draw from the source."""

OF_NUMPY = (
    "random", "random_sample", "ranf", "sample", "rand", "uniform", "choice", "multinomial",
    "exponential", "standard_exponential", "gumbel",
)  # fmt: skip
"""Functions of `numpy.random` that do."""


FEW = 64
"""Most numbers of which each is a place of its own for a uniform."""

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


class Watch:
    """Whether a generator is where its last draw has left it, or was set to another state.

    The generator draws along with the source, so that a state that comes again is seen.
    """

    def __init__(self, state: Callable[[], Any], step: Callable[[], Any]) -> None:
        self._state, self._step = state, step
        self._step()
        self._kept = state()
        self.reset = self.seeded = self._drawn = False

    def begin(self) -> None:
        """Begin a run, in the state that the one before has left."""
        if self.reset or self.seeded:
            self._kept = self._state()
        self.reset = self.seeded = self._drawn = False

    def seed(self) -> None:
        """Leave the generator to itself; what it drew before should have been seeded as well."""
        self.check()
        self.seeded, self.reset = True, self.reset or self._drawn

    def check(self) -> None:
        """Compare the states."""
        self.reset = self.reset or not (self.seeded or self._state() == self._kept)

    def drawn(self, *, step: bool = True) -> None:
        """Go on after a draw."""
        self._drawn = True
        if step:
            self._step()
        self._kept = self._state()


class Generators:
    """Stand-ins of the global generators, which draw from the source of a run.

    `races` is noise of the run that may make races.
    """

    def __init__(self) -> None:
        self.races: list[Race] = []
        self.python, self.numpy = _Python(), _NumPy(self.races)
        self.watches = [
            Watch(random.getstate, random.random),
            Watch(_state_of_numpy, np.random.random),
        ]
        self.drawing: list[Any] = [self.python, self.numpy]  # what has a source
        self._made: _NumPy | None = None
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
            each.source = _of_its_own
        if self._made is not None:
            self.drawing.remove(self._made)
            self._made = None

    def make(self) -> _NumPy:
        """Make what `numpy.random.default_rng()` returns in a run, and what a verifier is given."""
        if self._made is None:
            self._made = _NumPy(self.races, self.numpy.source)
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
            from otm.audit.own_draws_torch import TorchDraws

            draws = TorchDraws(_of_its_own, generators.races)
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


def _of_its_own(m: int) -> npt.NDArray[np.float64]:
    return _OTHERS.random(m)


class _Python(random.Random):
    """A generator of the standard library with uniforms from a source."""

    def __init__(self) -> None:
        super().__init__(0)
        self.source: Randomness = _of_its_own

    def random(self) -> Any:
        return self.source(1)[0]

    def uniform(self, a: Any, b: Any) -> Any:
        return self.random() if (a, b) == (0, 1) else super().uniform(a, b)

    def _randbelow(self, n: int) -> int:
        """Draw a whole number below n, which `choice`, `randrange` and others ask for."""
        if n <= FEW:
            return draw_place(self.source, [1] * n)
        point, low, high = self.random() * n, 0, n - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (low, middle - 1) if point < middle else (middle, high)
        return low

    def choices(
        self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[Any]:
        weights, cum_weights = (x if x is None else list(x) for x in (weights, cum_weights))
        super().choices(population, weights, cum_weights=cum_weights, k=0)  # refuses what is wrong
        if weights is None:
            cumulative = range(1, len(population) + 1) if cum_weights is None else cum_weights
            weights = [b - a for a, b in zip([0, *cumulative], cumulative, strict=False)]
        return [population[draw_place(self.source, weights)] for _ in range(k)]


_REAL = np.random.PCG64()
_OTHERS = np.random.Generator(np.random.PCG64())
"""Draws for what a verifier has kept from an earlier run."""


class _NumPy(np.random.Generator):
    """A generator of NumPy with uniforms from a source; it has the names of older functions too."""

    def __init__(self, races: list[Race], source: Randomness = _of_its_own) -> None:
        super().__init__(_REAL)
        self.source, self.races = source, races

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if out is not None:
            out[...] = self.random(out.shape, dtype)
            return out
        drawn = self.source(_count(size))
        if np.dtype(dtype) == np.float32:
            drawn = (np.floor(drawn * 2.0**24) / 2.0**24).astype(np.float32)
        return drawn[0] if size is None else drawn.reshape(size)

    random_sample = ranf = sample = random

    def rand(self, *shape: int) -> Any:
        return self.random(shape or None)

    def uniform(self, low: Any = 0, high: Any = 1, size: Any = None) -> Any:
        drawn = self.random(size)
        return drawn if (low, high) == (0, 1) else low + (high - low) * drawn

    def choice(  # noqa: PLR0917 - as NumPy has them
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Any:
        places: list[int] = []
        entries = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        weights = [1] * entries.shape[axis] if p is None else list(p)
        floats = None if p is None else np.asarray(p, np.float64)
        super().choice(entries.shape[axis], size, replace, floats)  # refuses what is wrong
        for _ in range(_count(size)):
            places.append(draw_place(self.source, weights))
            if not replace:
                weights[places[-1]] = 0
        return entries.take(places[0] if size is None else np.reshape(places, size), axis)

    def multinomial(self, n: Any, pvals: Any, size: Any = None) -> npt.NDArray[np.int64]:
        super().multinomial(n, np.asarray(pvals, np.float64), size)  # refuses what is wrong
        counts = np.zeros((_count(size), len(pvals)), np.int64)
        weights = [*pvals[:-1], max(1 - sum(pvals[:-1]), 0)]  # NumPy gives the last what is left
        for row in counts:
            for _ in range(n):
                row[draw_place(self.source, weights)] += 1
        return counts[0] if size is None else counts.reshape(*np.atleast_1d(size), -1)

    def exponential(self, scale: Any = 1, size: Any = None) -> Any:
        super().exponential(scale, size)  # refuses what is wrong
        return self._noise("multiple", scale, 1, np.shape(scale), size)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        if out is None:
            return self.exponential(1, size)
        out[...] = -np.log1p(-self.source(out.size).reshape(out.shape))
        return out

    def gumbel(self, loc: Any = 0, scale: Any = 1, size: Any = None) -> Any:
        super().gumbel(loc, scale, size)
        shape = np.broadcast_shapes(np.shape(loc), np.shape(scale))
        noise = self._noise("log", 0, -1, shape, size)
        return noise * scale + loc

    def _noise(self, kind: str, part: Any, power: int, shape: Any, size: Any) -> Any:
        shape = shape if size is None else tuple(np.atleast_1d(size).tolist())
        if not shape:  # a single number
            value = -np.log1p(-self.source(1)[0])
            return part * value if kind == "multiple" else part - np.log(value)
        self.races.append(Race(self.source, shape))
        return Noise(self.races[-1], Form(kind, np.broadcast_to(part, shape), power))


def _count(size: Any) -> int:
    return 1 if size is None else prod(np.atleast_1d(size).tolist())


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


def _until_seeded(module: Any, stand_in: Any, names: Sequence[str], watch: Watch) -> Any:
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
