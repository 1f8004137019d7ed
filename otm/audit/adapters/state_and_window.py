"""Adapters that check that a verifier ignores other sequences, or data outside its window.

An adapter changes the other sequences, or the data outside the window, and keeps the uniforms; the
output must stay the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm.audit.adapters.base import Instance
from otm.audit.adapters.batches import COINS, require_same
from otm.audit.adapters.drafts import (
    Replayable,
    as_tokens,
    chain_probs,
    draw_chain,
    is_exact,
)
from otm.audit.adapters.functions import FunctionAdapter, chain
from otm.audit.instances import INSTANCES
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError


class stateful(FunctionAdapter):
    """Audit a verifier of one chain that keeps a state from step to step of a sequence.

    The adapter takes two steps in succession; their joint output must have the target's
    distribution.  The output must not depend on the sequence that was verified before.

    Parameters
    ----------
    new : callable
        Factory of a verifier for each sequence: a class, or a function without arguments.
        Alternatively, a verifier with a method `reset`, which the audit calls before each sequence.
        The audit calls the verifier like the function of `chain`, once in each step.
    steps : int, optional
        Number of steps of a sequence; 2 by default.
    **options
        As for `chain`.

    Raises
    ------
    InvalidParameterError
        If `new` makes no verifier, or the parameters of the verifier cannot be read, or they are
        not those that `chain` describes.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> class Counts:
    ...     calls = 0
    ...
    ...     def __call__(self, target_probs, draft_probs, draft_tokens, uniforms):
    ...         self.calls += 1
    ...         return [int((target_probs[0].cumsum() <= uniforms[0]).sum())]
    >>> lossless(stateful(Counts), examples=0).verdict
    'lossless on everything tried'
    """

    beyond = 2

    def __init__(self, new: Callable[..., Any], *, steps: int = 2, **options: Any) -> None:
        reset = None if inspect.isclass(new) else getattr(new, "reset", None)
        function = new if callable(reset) else _make_verifier(new)
        options.setdefault("name", getattr(new, "__name__", type(new).__name__))
        super().__init__(function, **options)
        self.steps = as_positive(steps, "steps")
        self.max_tokens = 3 * self.steps
        self._reset, self._new = reset, new

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance has one chain that is short enough for several steps."""
        return instance.k == 1 and instance.gamma <= 2 and instance.vocabulary**instance.gamma <= 4

    def drafted(self, instance: Instance, source: Randomness) -> tuple[Path, ...]:
        """For each step, draw the same drafts as `output`."""
        return self._decode(instance, source)[1]

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode one sequence after two different ones; require the same output."""
        if not self.repeatable:
            return self._decode(instance, source)[0]
        exact = is_exact(source)
        recorded, after = Replayable(source), list[Path]()
        for coin in COINS:
            self._decode(instance, _constant(coin, exact))
            recorded.rewind()
            after.append(self._decode(instance, recorded)[0])
        text = "its output changes with the previous sequence: {} after one sequence, {} {}"
        return require_same(after[0], [(after[1], "after another sequence")], text)

    def _decode(self, instance: Instance, source: Randomness) -> tuple[Path, tuple[Path, ...]]:
        """Take the steps of one sequence; return its tokens, and the drafts of each step."""
        if self._reset is None:
            self.function = _make_verifier(self._new)
        else:
            self._reset()
        output: Path = ()
        drafted: list[Path] = []
        for _ in range(self.steps):
            here = replace(instance, prompt=instance.prompt + output)
            drafted.append(draw_chain(here, source))
            rows = chain_probs(here, drafted[-1], is_exact(source))
            asked = (*rows, np.array(drafted[-1]))
            tokens = as_tokens(self._ask(source, instance.gamma, *asked))
            if not _valid(tokens, instance):
                return tokens, tuple(drafted)
            output += tokens
        return output, tuple(drafted)


def _valid(tokens: Any, instance: Instance) -> bool:
    """Return whether a step returned tokens that the sequence can continue from."""
    return (
        isinstance(tokens, tuple)
        and 0 < len(tokens) <= instance.gamma + 1
        and all(isinstance(x, int) and 0 <= x < instance.vocabulary for x in tokens)
    )


def _make_verifier(new: Any) -> Any:
    """Make a verifier; raise if the result cannot be called."""
    made = new() if callable(new) else None
    if not callable(made):
        raise InvalidParameterError(
            f"{shown(new)} makes no verifier; give a class or a function without arguments whose "
            "result can be called, or an object with a method `reset`"
        )
    return made


def _constant(coin: Fraction, exact: bool) -> Randomness:
    """Return a source that repeats one uniform."""
    return lambda m: np.full(m, coin if exact else float(coin))


class windowed(chain):
    """Audit a verifier of one chain that must ignore data outside a window or after its output.

    The audit treats the function as `chain` does.  With the same uniforms, the output must also
    stay the same if the ignored data is replaced: by other drafts and probabilities, and by NaN (−1
    in fractions).

    Parameters
    ----------
    function : callable
        As for `chain`.  If the function has no parameter `uniforms`, runs cannot be repeated; the
        audit then hides the data outside the window in every run.
    window : int, optional
        Number of drafts that the function may read, together with one more target row.  By default
        the function may read the drafts that it returns, and one target row for each returned
        token.
    **options
        As for `chain`.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read, or the window is not an
        integer of at least 1.
    MissingDependencyError
        If the function has a parameter `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def last_row(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [int((target_probs[-1].cumsum() <= uniforms[0]).sum())]
    >>> print(lossless(windowed(last_row), examples=0).counterexample.output.text)
    it reads data that it must ignore: (1,), but (0,) with other data from draft 2 on
    """

    def __init__(
        self, function: Callable[..., Any], *, window: int | None = None, **options: Any
    ) -> None:
        super().__init__(function, **options)
        self.window = None if window is None else as_positive(window, "window")
        if self.window is not None:
            self.more = (replace(INSTANCES["rows differ"], gamma=self.window + 1),)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw and verify drafts; verify them again with the ignored data replaced."""
        drafts = draw_chain(instance, source)
        shown = (*chain_probs(instance, drafts, is_exact(source)), np.array(drafts))
        if not self.repeatable:
            # Such a run cannot be repeated, but its distribution shows whether it reads NaN.
            if self.window is not None:
                shown = _without_numbers(shown, self.window, self.window + 1)
            return self._verify(shown, self._random(source, instance.gamma))
        uniforms = source(self._uniforms(instance.gamma))
        copies = tuple(array.copy() for array in shown)
        output = self._verify(copies, {"uniforms": self.convert(uniforms.copy())})
        if not isinstance(output, tuple):
            return output
        seen = (len(output),) * 2 if self.window is None else (self.window, self.window + 1)
        # The verifier then ignores no data.
        if seen[0] >= instance.gamma and seen[1] > instance.gamma:
            return output
        others = (
            (
                self._verify(replaced(shown, *seen), {"uniforms": self.convert(uniforms.copy())}),
                f"with {what} from draft {seen[0] + 1} on",
            )
            for what, replaced in (("other data", _with_others), ("NaN or −1", _without_numbers))
        )
        return require_same(output, others, "it reads data that it must ignore: {}, but {} {}")

    def _verify(self, arrays: tuple[Any, ...], randomness: dict[str, Any]) -> Path:
        return as_tokens(self.function(*map(self.convert, arrays), **randomness))


def _with_others(shown: tuple[Any, ...], drafts: int, rows: int) -> tuple[Any, ...]:
    """Replace all but the first drafts and target rows by other tokens and rows."""
    target, draft, tokens = (array.copy() for array in shown)
    # Rotate the later rows of the arrays [R, V] by one token.
    for array, row in ((target, rows), (draft, drafts)):
        array[row:, 0], array[row:, 1:] = array[row:, -1].copy(), array[row:, :-1].copy()
    tokens[drafts:] = (tokens[drafts:] + 1) % target.shape[1]
    return target, draft, tokens


def _without_numbers(shown: tuple[Any, ...], drafts: int, rows: int) -> tuple[Any, ...]:
    """Replace all but the first drafts by other tokens, all but the first rows by NaN or −1."""
    target, draft, tokens = (array.copy() for array in shown)
    target[rows:] = draft[drafts:] = -1 if target.dtype == object else np.nan
    tokens[drafts:] = (tokens[drafts:] + 1) % target.shape[1]
    return target, draft, tokens
