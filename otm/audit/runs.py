"""Run a verifier, check its output, and turn a failure into an outcome."""

from __future__ import annotations

import pathlib
import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otm._core.display.text import shown
from otm.audit.adapters.base import (
    AFTER_END,
    AFTER_STOP,
    TOO_LONG,
    TOO_SHORT,
    Adapter,
    Failure,
    Instance,
    Outcome,
    OutOfUniformsError,
    Source,
    max_tokens,
)
from otm.audit.adapters.processed import first_end
from otm.audit.intercept.interception import InterceptedRng
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import MissingDependencyError, ProblemTooLargeError, ProcessError

AnySource = TypeVar("AnySource", bound=Randomness)

MOST_UNIFORMS = 4096
"""Largest number of uniforms of a run; a run starts with fewer."""

OWN_CODE = str(pathlib.Path(__file__).parent)
"""Folder of the audit; a crash report does not name lines of its files."""

CRASHES = (Exception, SystemExit, GeneratorExit)
"""Exceptions of a verifier that the audit catches; an uncaught SystemExit would end the audit."""

CALLER_ERRORS = (MissingDependencyError, ProblemTooLargeError, ProcessError)
"""Errors that say nothing about the verifier's output; the audit raises them to the caller."""


@dataclass(frozen=True)
class Runner:
    """Object that runs a verifier on uniforms.

    With `rng`, the random generators of the verifier draw from the same uniforms.
    """

    adapter: Adapter
    rng: InterceptedRng | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the uniforms of a run determine its outcome."""
        return self.rng is not None or self.adapter.repeatable

    @property
    def is_vectorized(self) -> bool:
        """Whether the verifier computes many runs at once, faster than one after another."""
        return self.rng is None and type(self.adapter).outputs is not Adapter.outputs

    @property
    def reads_noise(self) -> bool:
        """Whether a run has read the values of random noise."""
        return self.rng is not None and self.rng.reads_noise

    def max_tokens(self, instance: Instance) -> int:
        """Return the largest number of tokens that a run may return."""
        return max_tokens(self.adapter, instance)

    def run(self, instance: Instance, source: Randomness) -> Outcome:
        """Run once; return a `Failure` for a crash or an invalid output."""
        ((_, outcome),) = self.run_each(instance, [source])
        return outcome

    def on(self, instance: Instance) -> Callable[[Randomness], Outcome]:
        """Return a function from a source of uniforms to the outcome on an instance."""
        return lambda source: self.run(instance, source)

    def run_each(
        self, instance: Instance, sources: Iterable[AnySource]
    ) -> Iterator[tuple[AnySource, Outcome]]:
        """Run on each source in turn; replace the random generators once for all runs."""
        run = partial(_run, self.adapter, instance)
        if self.rng is not None:
            return self.rng.run_each(run, sources)
        return ((source, run(source)) for source in sources)

    def run_rows(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> list[Outcome]:
        """Run on each row of uniforms; return failures as outcomes."""
        if not self.is_vectorized:
            return [outcome for _, outcome in self.run_each(instance, map(Source, uniforms))]
        try:
            outputs: Sequence[Path] = self.adapter.outputs(instance, uniforms)
        except CALLER_ERRORS:
            raise
        except CRASHES as error:
            # One row crashed; single runs show which one.
            if len(uniforms) == 1:
                return [_crash(error)]
            return [self.run_rows(instance, row[None])[0] for row in uniforms]
        return [_checked(self.adapter, instance, output) for output in outputs]


def add_uniforms(
    rows: npt.NDArray[np.float64], error: OutOfUniformsError, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Add uniforms to rows [B, m] whose runs need more; raise `error` if the rows are too long."""
    size, width = rows.shape
    if width >= MOST_UNIFORMS:
        raise error
    more = min(max(2 * width, error.taken), MOST_UNIFORMS) - width
    return np.concatenate([rows, rng.random((size, more))], axis=1)


def _run(adapter: Adapter, instance: Instance, source: Randomness) -> Outcome:
    """Run once; return a crash as a failure."""
    try:
        output = adapter.output(instance, source)
    except CALLER_ERRORS:
        raise
    except CRASHES as error:
        return _crash(error)
    return _checked(adapter, instance, output)


def _crash(error: BaseException) -> Failure:
    try:
        text = " ".join(_without_address(str(error)).split())
    except Exception:
        # The error's own `__str__` may raise.
        text = "(its message cannot be read)"
    hints = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    description = f"{type(error).__name__}: {text:.150}{_where(error)}"
    return Failure(f"crashed with {description}{hints:.200}", crashed=True)


def _where(error: BaseException) -> str:
    """Return the line that raised an error, in the verifier or in a library that it calls."""
    steps = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    others = [step for step in steps if not step[0].startswith(OWN_CODE)]
    of_the_verifier = [step for step in others if "site-packages" not in step[0]]
    if not others:
        return ""
    file, line = (of_the_verifier or others)[-1]
    return f" ({pathlib.Path(file).name}, line {line})"


def _without_address(text: str) -> str:
    """Remove memory addresses, which differ between equal runs."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _checked(adapter: Adapter, instance: Instance, output: Any) -> Outcome:
    """Return an output as tokens, or as a failure if it is invalid.

    A valid output has at least one token, not too many, and only tokens of the vocabulary.
    """
    if isinstance(output, Failure):
        return output
    if not isinstance(output, Sequence) or isinstance(output, str):
        text = _without_address(shown(output))
        return Failure(f"returned {text} of type {type(output).__name__}, not tokens")
    limit = max_tokens(adapter, instance)
    if not 0 < len(output) <= limit:
        return _wrong_length(adapter, output, limit)
    for token in output:
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            text = _without_address(shown(token))
            return Failure(f"returned {text} of type {type(token).__name__} as a token")
        if not 0 <= token < instance.vocabulary:
            size = instance.vocabulary
            return Failure(f"returned token {shown(token)}, but the vocabulary has {size} tokens")
    tokens = tuple(map(int, output))
    return _wrong_end(adapter, tokens, limit) or tokens


def _wrong_length(adapter: Adapter, output: Sequence[Any], limit: int) -> Failure:
    """Describe an output without tokens or with too many tokens."""
    if not output:
        return Failure("returned no token")
    beginning = output[: limit + 1]
    if all(isinstance(token, int | np.integer) for token in beginning):
        # A text that continues after its end would have the right length if it were cut there.
        after_end = _after_end(adapter, list(map(int, beginning)), len(output))
        if after_end is not None:
            return after_end
    if adapter.loops:
        most = f"max_tokens was {limit}: cut off the additional tokens"
        return Failure(f"returned {len(output)} tokens; {most}", mistake=TOO_LONG)
    return Failure(f"returned {len(output)} tokens; one run may return at most {limit}")


def _after_end(adapter: Adapter, tokens: Sequence[int], count: int) -> Failure | None:
    """Describe the tokens after the first end of a text of `count` tokens, if there are any."""
    found = first_end(tokens, adapter.ends)
    if found is None or found[0] == count:
        return None
    length, end = found
    after = f"returned {count - length} token{'s' if count - length > 1 else ''} after the"
    if end == (adapter.end,):
        return Failure(f"{after} end token {end[0]}; no token may follow it", mistake=AFTER_END)
    return Failure(f"{after} stop sequence {end}; no token may follow it", mistake=AFTER_STOP)


def _wrong_end(adapter: Adapter, tokens: Path, limit: int) -> Failure | None:
    """Describe what is wrong with the end of an output; return None if the end is right."""
    if (after_end := _after_end(adapter, tokens, len(tokens))) is not None:
        return after_end
    if len(tokens) == limit or not (adapter.loops or adapter.whole):
        return None
    if first_end(tokens, adapter.ends) is not None:
        return None
    short = f"returned {len(tokens)} of {limit} tokens,"
    if not adapter.ends:
        return Failure(
            f"{short} but no end token was stated: if the loop stops at one, give "
            "loop(…, end=token)",
            mistake=TOO_SHORT,
        )
    if adapter.stop:
        return Failure(
            f"{short} and the last ones are not a stated end token or stop sequence; let the loop "
            "stop only at these in the audit, and at no stop sequence that begins in the prompt",
            mistake=TOO_SHORT,
        )
    return Failure(
        f"{short} and the last one is not the end token {adapter.end}; if the loop stops at other "
        "tokens too, let it stop only at this one in the audit",
        mistake=TOO_SHORT,
    )


@contextmanager
def isolated_rng_state(seed: int) -> Iterator[None]:
    """Seed the CPU generators of Python, NumPy and torch, later restore them; silence warnings.

    A verifier that draws its own random numbers usually uses the global generators, so their seed
    makes the audit reproducible.  Warnings are not needed: the effect of 0/0 shows in the output.
    """
    torch = sys.modules.get("torch")
    restored = torch.random.fork_rng(devices=[]) if torch is not None else nullcontext()
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), restored:
            warnings.simplefilter("ignore")
            seed_generators(seed)
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def seed_generators(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch (on the CPU)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed % 2**63)
