"""NumPy arrays for noise that may make a race; values are computed when code reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.audit.intercept.races import Array, Form, Race


class Noise(np.lib.mixins.NDArrayOperatorsMixin):
    """A NumPy array whose values are computed when code reads them."""

    __array_priority__ = 1000

    def __init__(self, race: Race, form: Form) -> None:
        self._race, self._form = race, form
        # The values, after code has read them.
        self._array: Array | None = None
        self.shape, self.ndim, self.size = form.part.shape, form.part.ndim, form.part.size
        self.dtype = np.dtype(np.float64)

    def _look(self) -> Array:
        if self._array is None:
            form, values = self._form, self._race.exponentials()
            with np.errstate(all="ignore"):
                self._array = (
                    form.part * values**form.power
                    if form.kind == "multiple"
                    else form.part + form.power * np.log(values)
                )
        return self._array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self._look(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.get("out")
        name = UFUNCS.get(ufunc.__name__) if method == "__call__" else None
        if name is not None and (not options or (len(options) == 1 and out == (self,))):
            noise = [each for each in inputs if isinstance(each, Noise)]
            if len(noise) == 1 and noise[0]._array is None:
                form = noise[0]._then(name, inputs)
                if form is not None and out is not None:
                    self._form = form
                    return self
                if form is not None:
                    return Noise(noise[0]._race, form)
        if out is not None:
            options["out"] = tuple(_seen(each) for each in out)
        result = getattr(ufunc, method)(*map(_seen, inputs), **options)
        return self if out is not None and out[0] is self else result

    def _then(self, name: str, inputs: Any) -> Form | None:
        if len(inputs) == 1:
            return self._form.then(name)
        if inputs[0] is self:
            return self._form.then(name, inputs[1])  # type: ignore[no-any-return]
        reverse = {"add": "add", "mul": "mul", "sub": "rsub", "div": "rdiv"}
        return self._form.then(reverse[name], inputs[0]) if name in reverse else None

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        if func in {np.argmax, np.argmin} and args and args[0] is self:
            return getattr(self, func.__name__)(*args[1:], **options)
        seen = [
            type(each)(map(_seen, each)) if type(each) in {list, tuple} else _seen(each)
            for each in args
        ]
        return func(*seen, **{name: _seen(each) for name, each in options.items()})

    def argmax(self, axis: int | None = None, **options: Any) -> Any:
        """Index of the largest value."""
        return self._winner("argmax", axis, options)

    def argmin(self, axis: int | None = None, **options: Any) -> Any:
        """Index of the smallest value."""
        return self._winner("argmin", axis, options)

    def _winner(self, name: str, axis: int | None, options: Any) -> Any:
        last = axis in {-1, self.ndim - 1} or (axis is None and self.ndim == 1)
        if last and not options and self._array is None:
            weights = self._form.weights(smallest=name == "argmin")
            winners = None if weights is None else self._race.winners(weights)
            if winners is not None:
                return np.int64(winners) if winners.ndim == 0 else winners.copy()
        return getattr(self._look(), name)(axis, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)

    def __getitem__(self, place: Any) -> Any:
        return self._look()[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self._look()[place] = _seen(value)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return repr(self._look())


UFUNCS = {
    "log": "log",
    "exp": "exp",
    "negative": "neg",
    "reciprocal": "reciprocal",
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "maximum": "above",
}
"""NumPy's operations on noise, with their names in `Form.then`."""


def _seen(value: Any) -> Any:
    return value._look() if isinstance(value, Noise) else value
