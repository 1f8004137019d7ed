"""Adapters of verifiers that must not use what they see: of other sequences, or behind a window.

What a verifier must not depend on is changed, at the same uniforms; its output must stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm.audit.adapters.base import Instance
from otm.audit.adapters.batches import COINS, require_same
from otm.audit.adapters.drafts import as_tokens, chain_probs, draw_chain, is_exact
from otm.audit.adapters.functions import FunctionAdapter, chain
from otm.audit.instances import INSTANCES
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import InvalidParameterError


class stateful(FunctionAdapter):
    """Audit a verifier of one chain that keeps a state from step to step of a sequence.

    Two steps are taken one after another, and their output together must have the distribution of
    the target.  It must not change with the sequence that was verified before.

    Parameters
    ----------
    new : callable
        Makes a verifier for each sequence: a class, or a function without arguments.  Or a verifier
        with a method `reset`, which is called before each sequence.  A verifier is called as the
        function of `chain` is, once a step.
    steps : int, optional
        Number of steps of a sequence; 2 if left out.
    **options
        As for `chain`.

    Raises
    ------
    InvalidParameterError
        If no verifier is made, or its parameters are not those of `chain`, or cannot be read.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

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
        function = new if callable(reset) else _made_by(new)
        options.setdefault("name", getattr(new, "__name__", type(new).__name__))
        super().__init__(function, **options)
        self.steps = as_positive(steps, "steps")
        self.max_tokens = 3 * self.steps
        self._reset, self._new = reset, new

    def supports(self, instance: Instance) -> bool:
        """One chain, so short that several steps can be followed."""
        return instance.k == 1 and instance.gamma <= 2 and instance.vocabulary**instance.gamma <= 4

    def drafted(self, instance: Instance, source: Randomness) -> tuple[Path, ...]:
        """Draw the drafts of each step as `output` does."""
        return self._decode(instance, source)[1]

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode after one sequence and again after another one."""
        if not self.repeatable:
            return self._decode(instance, source)[0]
        exact, taken = is_exact(source), source(0)

        def recorded(m: int) -> npt.NDArray[Any]:
            nonlocal taken
            taken = np.append(taken, source(m))
            return taken[len(taken) - m :].copy()

        after: list[Path] = []
        for coin, uniforms in zip(COINS, (recorded, None), strict=True):
            self._decode(instance, _constant(coin, exact))
            again = uniforms or _replayed(taken, source)
            after.append(self._decode(instance, again)[0])
        text = "its output changes with the sequence verified before: {} after one, {} {}"
        return require_same(after[0], [(after[1], "after another")], text)

    def _decode(self, instance: Instance, source: Randomness) -> tuple[Path, tuple[Path, ...]]:
        """Take the steps of one sequence; return its tokens, and the drafts of each step."""
        if self._reset is None:
            self.function = _made_by(self._new)
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
    """Whether a step has returned tokens after which a sequence can go on."""
    return (
        isinstance(tokens, tuple)
        and 0 < len(tokens) <= instance.gamma + 1
        and all(isinstance(x, int) and 0 <= x < instance.vocabulary for x in tokens)
    )


def _made_by(new: Any) -> Any:
    """Make a verifier; raise if the result cannot be called."""
    made = new() if callable(new) else None
    if not callable(made):
        raise InvalidParameterError(
            f"{shown(new)} makes no verifier; give a class or a function without arguments whose "
            "result can be called, or an object with `reset`"
        )
    return made


def _constant(coin: Fraction, exact: bool) -> Randomness:
    """Return a source that repeats one uniform."""
    return lambda m: np.full(m, coin if exact else float(coin))


def _replayed(taken: npt.NDArray[Any], source: Randomness) -> Randomness:
    """Return a source that repeats the uniforms taken before, then draws new ones."""
    place = 0

    def uniforms(m: int) -> npt.NDArray[Any]:
        nonlocal taken, place
        place += m
        if place > len(taken):
            taken = np.append(taken, source(place - len(taken)))
        return taken[place - m : place].copy()

    return uniforms


class windowed(chain):
    """Audit a verifier of one chain that must not look behind a window, or behind where it stops.

    It is audited as `chain` does; its output must also be the same, at the same uniforms, with
    other drafts, other probabilities, and NaN (−1 in fractions) in place of those that it drops.

    Parameters
    ----------
    function : callable
        As for `chain`.  Without `uniforms` it cannot be run again, and a window alone is tried.
    window : int, optional
        Number of drafts that it looks at, and one more row of the target.  If left out, it drops
        what comes behind the last token that it returns, and one row of the target for each of
        these is all that it may read.
    **options
        As for `chain`.

    Raises
    ------
    InvalidParameterError
        If the parameters of the function are not these, or cannot be read, or the window is no
        integer of at least 1.
    MissingDependencyError
        If the function takes a `generator`, and torch is not installed.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> def last_row(target_probs, draft_probs, draft_tokens, uniforms):
    ...     return [int((target_probs[-1].cumsum() <= uniforms[0]).sum())]
    >>> print(lossless(windowed(last_row), examples=0).counterexample.output.text)
    it reads what it drops: (1,), but (0,) with others from draft 2 on
    """

    def __init__(
        self, function: Callable[..., Any], *, window: int | None = None, **options: Any
    ) -> None:
        super().__init__(function, **options)
        self.window = None if window is None else as_positive(window, "window")
        if self.window is not None:
            self.more = (replace(INSTANCES["rows differ"], gamma=self.window + 1),)

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then verify, and again with others in place of what is dropped."""
        drafts = draw_chain(instance, source)
        shown = (*chain_probs(instance, drafts, is_exact(source)), np.array(drafts))
        if not self.repeatable:  # it cannot be run again: a window shows in its distribution
            if self.window is not None:
                shown = _without_numbers(shown, self.window, self.window + 1)
            return self._verify(shown, self._random(source, instance.gamma))
        uniforms = source(self._uniforms(instance.gamma))
        copies = tuple(array.copy() for array in shown)
        output = self._verify(copies, {"uniforms": self.convert(uniforms.copy())})
        if not isinstance(output, tuple):
            return output
        seen = (len(output),) * 2 if self.window is None else (self.window, self.window + 1)
        if seen[0] >= instance.gamma and seen[1] > instance.gamma:  # it drops nothing
            return output
        others = (
            (
                self._verify(replaced(shown, *seen), {"uniforms": self.convert(uniforms.copy())}),
                f"with {what} from draft {seen[0] + 1} on",
            )
            for what, replaced in (("others", _with_others), ("NaN or −1", _without_numbers))
        )
        return require_same(output, others, "it reads what it drops: {}, but {} {}")

    def _verify(self, arrays: tuple[Any, ...], randomness: dict[str, Any]) -> Path:
        return as_tokens(self.function(*map(self.convert, arrays), **randomness))


def _with_others(shown: tuple[Any, ...], drafts: int, rows: int) -> tuple[Any, ...]:
    """Replace all but the first drafts and target rows by other tokens and rows."""
    target, draft, tokens = (array.copy() for array in shown)
    for array, row in ((target, rows), (draft, drafts)):  # [R, V], turned by one token
        array[row:, 0], array[row:, 1:] = array[row:, -1].copy(), array[row:, :-1].copy()
    tokens[drafts:] = (tokens[drafts:] + 1) % target.shape[1]
    return target, draft, tokens


def _without_numbers(shown: tuple[Any, ...], drafts: int, rows: int) -> tuple[Any, ...]:
    """Replace all but the first drafts and rows by other tokens, and by NaN or −1."""
    target, draft, tokens = (array.copy() for array in shown)
    target[rows:] = draft[drafts:] = -1 if target.dtype == object else np.nan
    tokens[drafts:] = (tokens[drafts:] + 1) % target.shape[1]
    return target, draft, tokens
