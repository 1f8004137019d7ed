"""Races of noise: exponential variables E, −log E (Gumbel noise), or e^(−E) (uniforms).

The largest value of p/E, or of log p − log E, belongs to token x with probability p(x)/Σp; one
uniform suffices to draw this winner.  Therefore the variables have no values until code reads them;
the module tracks the arithmetic on them.  If code reads variables after a race, it gets values that
fit the winner.  Let M be the smallest of all E/p, which is exponential with rate Σp.  Then
E(x) = p(x) M for the winner x, and E(y) = p(y) M + E'(y) for every other token y, where E' are new
exponential variables.
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
"""Largest number that counts as 0 when code adds it to noise or clamps noise by it."""


def place_of(weights: Any, uniform: Any) -> int:
    """Return the index of the weight that a uniform falls on; never one of weight 0."""
    point, below, last = uniform * total(weights), 0, 0
    for place, weight in enumerate(weights):
        below = below + weight
        if weight > 0:
            last = place
            if point < below:
                break
    return last


def draw_place(source: Randomness, weights: Sequence[Any]) -> int:
    """Draw an index by its weight from one uniform; record its interval if the source does so."""
    cell = getattr(source, "cell", None)
    return place_of(weights, source(1)[0]) if cell is None else cell(ends_of(weights))


def ends_of(weights: Sequence[Any]) -> tuple[float, ...]:
    """Divide [0, 1) into cells proportional to the weights; return their upper ends."""
    sums = list(itertools.accumulate(map(float, weights)))
    return tuple(end / sums[-1] for end in sums)


@dataclass(frozen=True, eq=False)
class Form:
    """Function of variables E: e^(−E), part · E^power, or part + power · log E."""

    # "uniform", "multiple", "log", or "monotone": an increasing function of such a log.
    kind: str
    # An array in the shape of the variables.
    part: Array
    power: float = 1

    def then(self, name: str, other: Any = None) -> Form | None:
        """Apply an operation, with a number or an array; return None if the result has no form."""
        if other is not None:
            other = np.asarray(other)
            if other.ndim > self.part.ndim or any(
                m not in {1, n}
                for m, n in zip(other.shape[::-1], self.part.shape[::-1], strict=False)
            ):
                # The result would have more rows than the noise.
                return None
        with np.errstate(all="ignore"):
            return _THEN[self.kind](self, name, other)

    def weights(self, *, smallest: bool = False) -> Array | None:
        """Return the weights [..., V] of a race for the largest value on the last axis, or None."""
        if smallest:
            # For a monotone form, negate the logarithm instead of the function.
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
    """Exponential variables whose values are computed when code reads them."""

    def __init__(self, source: Randomness, shape: tuple[int, ...]) -> None:
        self._source, self._shape = source, shape
        # Weights and winners of a finished race.
        self._weights: Array | None = None
        self._places: Array | None = None
        self._uniforms: Array | None = None
        # Whether code has read values, so that the output may depend on them.
        self.was_read = False

    def winners(self, weights: Array) -> Array | None:
        """Draw winners [...] for weights [..., V]; None if the variables' values decide winners."""
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
        """Return the values of the variables, each computed from its own uniform."""
        self.was_read = True
        drawn = self._drawn()
        # Keep the values above 0.
        variables = np.maximum(-np.log1p(-drawn.astype(np.float64)), 2.0**-53)
        return self._after_race(variables)

    def uniforms(self, bits: int) -> Array:
        """Return the values as uniforms e^(−E)."""
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
        # Rounding must not make a tie with the winner.
        others = np.where(variables > 0, 1 + 2.0**-20, 1)
        return (weights * least * others + variables).reshape(self._shape)  # type: ignore[no-any-return]
