"""What is audited: a way to continue a prompt with a target and a draft model.

Whatever the verifier is (a rule for one token, a chain or block verifier, a whole decoding loop, in
any library), the audit sees it as a function from a pair of models and a source of uniforms to
tokens.  Everything random comes from that source if it can: then the output distribution is
computed, not sampled.  Here is also how a verifier is run: its output is checked, and a failure is
an outcome like others.
"""

from __future__ import annotations

import pathlib
import random
import re
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.display.reprs import Brief
from otm._core.display.text import shown
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import MissingDependencyError, ProblemTooLargeError
from otm.models.table import TableModel

MOST_UNIFORMS = 4096
"""Most uniforms that a run may take; each run gets fewer at first."""


class OutOfUniformsError(ProblemTooLargeError):
    """A run takes more uniforms than the audit drew for it."""

    def __init__(self, taken: int, at_hand: int) -> None:
        super().__init__(
            f"a run takes {taken:,} uniforms or more, but only {at_hand:,} are available; give it "
            "fewer drafts and tokens"
        )
        self.taken = taken


class Source:
    """A source of these uniforms [m], floats or symbolic; `taken` counts those handed out."""

    def __init__(self, uniforms: npt.NDArray[Any]) -> None:
        self._uniforms = uniforms
        self.taken = 0

    def __call__(self, m: int) -> npt.NDArray[Any]:
        """Return the next m uniforms."""
        self.taken += m
        if self.taken > self._uniforms.size:
            raise OutOfUniformsError(self.taken, self._uniforms.size)
        return self._uniforms[self.taken - m : self.taken].copy()  # which may be written into

    def cell(self, ends: Sequence[float]) -> int:
        """Return the place of the cell that the next uniform is in; `ends` end the cells."""
        return bisect_right(ends, self(1)[0])


@dataclass(frozen=True, eq=False)
class Instance(Brief):
    """A pair of small models on which a verifier is run.

    Parameters
    ----------
    target, draft : TableModel
        Distributions in fractions, on the same few tokens.
    gamma : int
        Number γ of drafts of a chain, at least 1.
    k : int, optional
        Number of chains, or of drafts for one token; 1 for a verifier that takes a single chain.
    prompt : tuple of int, optional
        The tokens before.
    length : int, optional
        Number of tokens that a decoding loop is asked for; at least 3 if left out.
    gammas : tuple of int, optional
        Numbers of drafts of the steps of a loop with a policy, in turn, γ being the largest of
        them; γ in each step if left out.

    Examples
    --------
    >>> from fractions import Fraction
    >>> half = Fraction(1, 2)
    >>> model = TableModel({(): [half, half]})
    >>> Instance(target=model, draft=model, gamma=2).vocabulary
    2
    """

    target: TableModel
    draft: TableModel
    gamma: int
    k: int = 1
    prompt: Path = (0,)
    length: int | None = None
    gammas: Path = ()

    @property
    def vocabulary(self) -> int:
        """Number V of tokens."""
        return self.target.vocabulary

    def gamma_of(self, step: int) -> int:
        """Count the drafts of a step of a loop, the first of which is step 0.

        Parameters
        ----------
        step : int
            Number of the steps before.
        """
        return self.gammas[step % len(self.gammas)] if self.gammas else self.gamma


class Adapter(ABC):
    """A verifier under audit, with honest drafts around it where it does not draft itself.

    Own design: what it takes to be lossless is said in docs/theory/problem.md.  Subclasses give
    `name` and `output`.

    Attributes
    ----------
    name : str
        What reports call it.
    repeatable : bool
        Whether all its randomness comes from the source that `output` takes.
    exact : bool
        Whether it works on fractions and only compares its uniforms (after adding or multiplying
        by fractions), so that every path of its comparisons can be followed.
    max_tokens : int or None
        Most tokens that a run returns; None for `Instance.gamma` + 1, or for what a loop is asked
        for.
    several : bool
        Whether it takes any number k of chains, rather than one.
    loops : bool
        Whether it takes steps until it has as many tokens as it is asked for: `max_tokens`, or
        `Instance.length`, or at least 3.
    whole : bool
        Whether each run must return the largest allowed number of tokens, unless it stops at `end`.
        Loops must do so in any case.
    end : int or None
        Token that ends a sequence: no token may follow it, and a sequence without it must have the
        largest allowed length.
    own_draws : bool
        Whether it draws from global generators of Python, NumPy or torch, which the audit may take
        from its own uniforms instead.
    more : tuple of Instance
        Instances on which it is run beside those that come with the audit.

    Examples
    --------
    >>> class Target(Adapter):  # decodes without drafts
    ...     name = "target alone"
    ...
    ...     def output(self, instance, source):
    ...         probs = instance.target.probs(instance.prompt)
    ...         return (int((probs.cumsum() <= source(1)[0]).sum()),)
    >>> from otm.audit import lossless
    >>> lossless(Target(), examples=0).verdict
    'lossless on everything tried'
    """

    name: str
    repeatable: bool = True
    exact: bool = True
    max_tokens: int | None = None
    several: bool = False
    loops: bool = False
    whole: bool = False
    end: int | None = None
    own_draws: bool = False
    more: tuple[Instance, ...] = ()

    @abstractmethod
    def output(self, instance: Instance, source: Randomness) -> Path:
        """Run once.

        Parameters
        ----------
        instance : Instance
            The models.
        source : callable
            Takes m and gives m independent uniforms in [0, 1); drafts are drawn from it too, and a
            verifier that is not `repeatable` may draw the rest elsewhere.

        Returns
        -------
        tuple of int
            The tokens that follow the prompt, at least one: lossless if they, continued by the
            target, have the distribution of the target.
        """

    def supports(self, instance: Instance) -> bool:
        """Whether it can run on an instance; if not said otherwise, where k = 1 or for `several`.

        Parameters
        ----------
        instance : Instance
            The models, γ and k.
        """
        return self.several or instance.k == 1

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Run many times; for a verifier that does so faster than one after another.

        Parameters
        ----------
        instance : Instance
            The models.
        uniforms : float64 array [B, m]
            Uniforms in [0, 1) for each run, m large enough.

        Returns
        -------
        sequence of B tuples of int
            What `output` gives with a source that hands out each row.

        Raises
        ------
        ProblemTooLargeError
            If a run takes more uniforms than a row has.
        """
        return [self.output(instance, Source(row)) for row in uniforms]


@dataclass(frozen=True)
class Failure:
    """What a run returned instead of tokens."""

    text: str  # such as "returned token 7 of 3"
    crashed: bool = False  # whether the run ended by an exception


Outcome: TypeAlias = Path | Failure
"""What a run returned."""


def found(text: str) -> Path:
    """Return what an adapter returns instead of tokens where it finds a mistake by itself."""
    return Failure(text)  # type: ignore[return-value]


OWN_CODE = str(pathlib.Path(__file__).parents[1])
"""Where files of this package are, whose lines say nothing about a verifier."""

LEAST_LENGTH = 3
"""Tokens of a loop, if an instance does not say how many."""

CRASHES = (Exception, SystemExit, GeneratorExit)
"""What a verifier may raise; SystemExit would end the audit with whatever status it has."""

NOT_OF_THE_VERIFIER = (MissingDependencyError, ProblemTooLargeError)
"""Errors that say nothing about a verifier, and go on to the caller."""


def max_tokens(adapter: Adapter, instance: Instance) -> int:
    """Most tokens that a run may return."""
    if adapter.max_tokens is not None:
        return adapter.max_tokens
    if adapter.loops:
        return instance.length or max(instance.gamma + 1, LEAST_LENGTH)
    return instance.gamma + 1


def run(adapter: Adapter, instance: Instance, source: Randomness) -> Outcome:
    """Run once, whatever happens."""
    try:
        output = adapter.output(instance, source)
    except NOT_OF_THE_VERIFIER:
        raise
    except CRASHES as error:  # whatever code of others raises is what the audit reports
        return _crash(error)
    return _checked(adapter, instance, output)


def run_rows(
    adapter: Adapter, instance: Instance, uniforms: npt.NDArray[np.float64]
) -> list[Outcome]:
    """Run on each row of uniforms, whatever happens."""
    try:
        outputs: Sequence[Path] = adapter.outputs(instance, uniforms)
    except NOT_OF_THE_VERIFIER:
        raise
    except CRASHES as error:  # of one of the rows: which?
        if len(uniforms) == 1:
            return [_crash(error)]
        return [run_rows(adapter, instance, row[None])[0] for row in uniforms]
    return [_checked(adapter, instance, output) for output in outputs]


def longer(
    rows: npt.NDArray[np.float64], error: OutOfUniformsError, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Lengthen rows of uniforms [B, m] for runs that need more; raise `error` at the limit."""
    size, width = rows.shape
    if width >= MOST_UNIFORMS:
        raise error
    more = min(max(2 * width, error.taken), MOST_UNIFORMS) - width
    return np.concatenate([rows, rng.random((size, more))], axis=1)


def _crash(error: BaseException) -> Failure:
    try:
        text = " ".join(_without_address(str(error)).split())
    except Exception:  # its own
        text = "(its message cannot be read)"
    hints = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    what = f"{type(error).__name__}: {text:.150}{_where(error)}"
    return Failure(f"crashed with {what}{hints:.200}", crashed=True)


def _where(error: BaseException) -> str:
    """Say in which line of the verifier an error was raised, or of what it calls."""
    steps = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    others = [step for step in steps if not step[0].startswith(OWN_CODE)]
    of_the_verifier = [step for step in others if "site-packages" not in step[0]]
    if not others:
        return ""
    file, line = (of_the_verifier or others)[-1]
    return f" ({pathlib.Path(file).name}, line {line})"


def _without_address(text: str) -> str:
    """Leave out what differs between runs that give the same."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _checked(adapter: Adapter, instance: Instance, output: Any) -> Outcome:
    """Check that an output is one or more tokens of the vocabulary, and not too many."""
    if isinstance(output, Failure):
        return output
    if not isinstance(output, Sequence) or isinstance(output, str):
        text = _without_address(shown(output))
        return Failure(f"returned {text} of type {type(output).__name__}, not tokens")
    limit = max_tokens(adapter, instance)
    if not 0 < len(output) <= limit:
        most = f"one run gives at most {limit}"
        if adapter.loops:
            most = f"{limit} were asked for: cut off the others"
        return Failure(f"returned {len(output)} tokens; {most}" if output else "returned no token")
    for token in output:
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            text = _without_address(shown(token))
            return Failure(f"returned {text} of type {type(token).__name__} as a token")
        if not 0 <= token < instance.vocabulary:
            return Failure(f"returned token {shown(token)} of {instance.vocabulary}")
    tokens = tuple(map(int, output))
    wrong_end = _wrong_end(adapter, tokens, limit)
    return tokens if wrong_end is None else Failure(wrong_end)


def _wrong_end(adapter: Adapter, tokens: Path, limit: int) -> str | None:
    """Describe the mistake in where an output ends; None if there is none."""
    end = adapter.end
    if end is not None and end in tokens[:-1]:
        behind = len(tokens) - 1 - tokens.index(end)
        return f"returned {behind} tokens behind the end token {end}; no token may follow it"
    if len(tokens) == limit or not (adapter.loops or adapter.whole) or end == tokens[-1]:
        return None
    if end is None:
        return (
            f"returned {len(tokens)} of the {limit} tokens asked for, and no end token was stated: "
            "give loop(…, end=token) if the loop stops at one"
        )
    return (
        f"returned {len(tokens)} of {limit} tokens, and the last is not the end token {end}; if "
        "the loop stops at other tokens too, let it stop at this one alone here"
    )


@contextmanager
def undisturbed(seed: int) -> Iterator[None]:
    """Seed the generators of Python, NumPy and torch (on the CPU), restore them; silence warnings.

    A verifier that draws for itself usually draws from these: the audit then repeats itself.  What
    it does after 0/0 shows in its output.
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
