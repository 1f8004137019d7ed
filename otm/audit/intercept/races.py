"""Noise that makes races: exponential variables E, or −log E (Gumbel noise), or e^(−E) (uniforms).

The largest of p/E, or of log p − log E, is that of token x with probability p(x)/Σp, for which one
uniform is enough.  So the variables have no values as long as nobody looks at them, and are
followed through the arithmetic around them.  Who looks at them after a race is over gets values
that go with its winner: with M the smallest of all E/p they are E(x) = p(x) M for the winner and
p(y) M + E'(y) for others, where M is exponential with rate Σp and E' are exponential again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import total
from otm.decoding.draft_tree import Randomness

Array = npt.NDArray[Any]

SMALL = 2.0**-23
"""What code adds to noise or clamps it by, to avoid log 0, is left out up to this size."""


def place_of(weights: Any, uniform: Any) -> int:
    """Place that a uniform falls on, of weights side by side; never one without weight."""
    point, below, last = uniform * total(weights), 0, 0
    for place, weight in enumerate(weights):
        below = below + weight
        if weight > 0:
            last = place
            if point < below:
                break
    return last


def draw_place(source: Randomness, weights: Sequence[Any]) -> int:
    """Draw a place by its weight and one uniform; the audit's floats know the steps of that."""
    cell = getattr(source, "cell", None)
    return place_of(weights, source(1)[0]) if cell is None else cell(ends_of(weights))


def ends_of(weights: Sequence[Any]) -> tuple[float, ...]:
    """Divide [0, 1) into cells as large as weights: their ends, of which the last is 1."""
    sums = list(itertools.accumulate(map(float, weights)))
    return tuple(end / sums[-1] for end in sums)


@dataclass(frozen=True, eq=False)
class Form:
    """What is computed of variables E: e^(−E), part · E^power, or part + power · log E."""

    kind: str  # "uniform", "multiple", "log", or "monotone": a growing function of such a log
    part: Array  # in the shape of the variables
    power: float = 1

    def then(self, name: str, other: Any = None) -> Form | None:
        """Apply an operation, with a number or an array; None if it is none of these forms."""
        if other is not None:
            other = np.asarray(other)
            if other.ndim > self.part.ndim or any(
                m not in {1, n}
                for m, n in zip(other.shape[::-1], self.part.shape[::-1], strict=False)
            ):
                return None  # more rows than there is noise for
        with np.errstate(all="ignore"):
            return _THEN[self.kind](self, name, other)

    def weights(self, *, smallest: bool = False) -> Array | None:
        """Weights [..., V] of a race along the last axis for the largest value, or None."""
        if smallest:
            # a growing function has no negative, but its logarithm has
            turned = replace(self, part=-self.part)
            if self.kind != "multiple":
                turned = replace(turned, power=-self.power)
            return turned.weights()
        with np.errstate(all="ignore"):
            weights = self._weights()
            if weights is None or not np.isfinite(weights.astype(np.float64)).all():
                return None
        return weights if (weights > 0).any(axis=-1).all() else None

    def _weights(self) -> Array | None:
        if self.kind == "multiple" and self.power == -1:
            return np.where(self.part > 0, self.part, 0)
        if self.kind == "multiple" and self.power == 1 and (self.part < 0).all():
            return -1 / self.part
        if self.kind in {"log", "monotone"} and self.power < 0:
            scaled = self.part / -self.power
            return np.exp(scaled - scaled.max(axis=-1, keepdims=True))  # type: ignore[no-any-return]
        return None


def _is_small(number: Any) -> bool:
    return bool((abs(number) <= SMALL).all())


def _then_uniform(form: Form, name: str, other: Any) -> Form | None:
    if name == "log":
        return Form("multiple", -form.part)
    if name in {"add", "sub", "above"} and _is_small(other):
        return form
    return form if name in {"mul", "div", "below"} and _is_small(other - 1) else None


def _then_multiple(form: Form, name: str, other: Any) -> Form | None:
    part, power = form.part, form.power
    if name in {"add", "sub", "above"}:
        plain = power == 1 and (abs(part) == 1).all() and _is_small(other)
        return form if plain and (name != "above" or (part > 0).all()) else None
    if name == "log":
        return Form("log", np.log(part), power) if (part >= 0).all() else None
    results: dict[str, Callable[[], Form]] = {
        "neg": lambda: Form("multiple", -part, power),
        "mul": lambda: Form("multiple", part * other, power),
        "div": lambda: Form("multiple", part / other, power),
        "rdiv": lambda: Form("multiple", other / part, -power),
        "reciprocal": lambda: Form("multiple", 1 / part, -power),
    }
    return results[name]() if name in results else None


def _then_log(form: Form, name: str, other: Any) -> Form | None:
    part, power = form.part, form.power
    if name in {"mul", "div"}:
        factor = float(other.flat[0])
        if factor == 0 or not np.isfinite(factor) or (other != factor).any():
            return None
        factor = factor if name == "mul" else 1 / factor
        return Form("log", part * factor, power * factor)
    results: dict[str, Callable[[], Form | None]] = {
        "neg": lambda: Form("log", -part, -power),
        "add": lambda: Form("log", part + other, power),
        "sub": lambda: Form("log", part - other, power),
        "rsub": lambda: Form("log", other - part, -power),
        "softmax": lambda: replace(form, kind="monotone"),
        "exp": lambda: Form("multiple", np.exp(part), power) if abs(power) == 1 else None,
    }
    return results[name]() if name in results else None


_THEN: dict[str, Callable[[Form, str, Any], Form | None]] = {
    "uniform": _then_uniform,
    "multiple": _then_multiple,
    "log": _then_log,
    "monotone": lambda _form, _name, _other: None,
}


class Race:
    """Exponential variables, which have no values as long as nobody has looked at them."""

    def __init__(self, source: Randomness, shape: tuple[int, ...]) -> None:
        self._source, self._shape = source, shape
        self._weights: Array | None = None  # of a race that is over
        self._places: Array | None = None  # its winners
        self._uniforms: Array | None = None
        self.was_read = False  # whether values were computed on which steps have no place

    def winners(self, weights: Array) -> Array | None:
        """Draw winners [...] for weights [..., V], a uniform each; None if values must tell."""
        if self._places is not None and self._weights is not None:
            same = np.array_equal(weights, self._weights)
            return self._places if same else None
        if self._uniforms is not None:
            return None
        rows = weights.reshape(-1, weights.shape[-1])
        places = [draw_place(self._source, row.tolist()) for row in rows]
        self._weights, self._places = weights, np.reshape(places, weights.shape[:-1])
        return self._places

    def exponentials(self) -> Array:
        """Look at the variables: each is computed from a uniform of its own."""
        self.was_read = True
        drawn = self._drawn()
        variables = np.maximum(-np.log1p(-drawn.astype(np.float64)), 2.0**-53)  # never 0
        return self._after_race(variables)

    def uniforms(self, bits: int) -> Array:
        """Look at them as uniforms e^(−E)."""
        drawn = self._drawn()
        if self._places is not None:
            return np.exp(-self.exponentials())
        return np.floor(drawn * 2.0**bits) / 2.0**bits

    def _drawn(self) -> Array:
        if self._uniforms is None:
            self._uniforms = self._source(int(np.prod(self._shape))).reshape(self._shape)
        return self._uniforms

    def _after_race(self, variables: Array) -> Array:
        if self._places is None or self._weights is None:
            return variables
        weights = self._weights.astype(np.float64)
        variables, places = variables.reshape(weights.shape), self._places[..., None]
        least = np.take_along_axis(variables, places, -1) / weights.sum(-1, keepdims=True)
        np.put_along_axis(variables, places, 0, -1)
        others = np.where(variables > 0, 1 + 2.0**-20, 1)  # no tie by rounding
        return (weights * least * others + variables).reshape(self._shape)  # type: ignore[no-any-return]
