"""Interface of all verifiers under audit: continue a prompt with a target and a draft model.

The verifier may be a rule for one token, a chain or block verifier, or a decoding loop, in any
library.  The audit sees each verifier as a function from a pair of models and a source of uniforms
to tokens.  If all randomness comes from this source of uniforms, the audit can compute the output
distribution instead of sampling it.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.display.reprs import ShortRepr
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import ProblemTooLargeError
from otm.models.table import TableModel

LEAST_LENGTH = 3
"""Least number of tokens that a loop outputs if the instance does not state the number."""


class OutOfUniformsError(ProblemTooLargeError):
    """A run needs more uniforms than the audit drew for it."""

    def __init__(self, taken: int, at_hand: int) -> None:
        super().__init__(
            f"a run needs {taken:,} uniforms or more, but only {at_hand:,} are available; give it "
            "fewer drafts and tokens"
        )
        self.taken = taken


class Source:
    """Source that returns stored uniforms [m], floats or symbols; `taken` counts them."""

    def __init__(self, uniforms: npt.NDArray[Any]) -> None:
        self._uniforms = uniforms
        self.taken = 0

    def __call__(self, m: int) -> npt.NDArray[Any]:
        """Return the next m uniforms."""
        self.taken += m
        if self.taken > self._uniforms.size:
            raise OutOfUniformsError(self.taken, self._uniforms.size)
        # Return a copy, because the caller may write into it.
        return self._uniforms[self.taken - m : self.taken].copy()

    def cell(self, ends: Sequence[float]) -> int:
        """Return the index of the cell that contains the next uniform; `ends` has upper ends."""
        return bisect_right(ends, self(1)[0])


@dataclass(frozen=True, eq=False)
class Instance(ShortRepr):
    """A pair of small models on which the audit runs a verifier.

    Parameters
    ----------
    target, draft : TableModel
        Distributions in fractions, on the same small vocabulary.
    gamma : int
        Number of drafts γ of a chain, at least 1.
    k : int, optional
        Number of chains, or of drafts for one token; 1 for a verifier of a single chain.
    prompt : tuple of int, optional
        Tokens before the output.
    length : int, optional
        Number of tokens that a decoding loop must return; by default γ + 1, but at least 3.
    gammas : tuple of int, optional
        Numbers of drafts that a loop with a policy uses in turn from step to step; `gamma` must be
        the largest.  By default every step uses γ.

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
        """Number of tokens V."""
        return self.target.vocabulary

    def gamma_at_step(self, step: int) -> int:
        """Return the number of drafts in a step of a loop.

        Parameters
        ----------
        step : int
            Index of the step, from 0.
        """
        return self.gammas[step % len(self.gammas)] if self.gammas else self.gamma


@dataclass(frozen=True)
class Failure:
    """Result of a run that did not return valid tokens."""

    # Description, such as "returned no token".
    text: str
    # Whether the run ended by an exception.
    crashed: bool = False
    # Name of the known mistake that the end of the text shows, if any.
    mistake: str = ""

    @property
    def kind(self) -> str:
        """The description without its details, such as the tokens of the run."""
        return self.text.partition(":")[0]


Outcome: TypeAlias = Path | Failure
"""Result of a run: its tokens, or a failure."""

AFTER_END, AFTER_STOP = "end token overrun", "stop sequence overrun"
"""Known mistakes: tokens follow the end token, or a stop sequence."""

TOO_LONG, TOO_SHORT = "max_tokens overrun", "text too short"
"""Known mistakes: a text has more than `max_tokens` tokens, or fewer without an end."""

Drafts: TypeAlias = Path | tuple[Path, ...] | Mapping[str, Path]
"""One chain or the drafts of one token; several chains; or the tokens and parents of a tree."""


def as_failure(text: str, mistake: str = "") -> Path:
    """Return a failure in place of tokens, for a mistake that an adapter detects itself."""
    return Failure(text, mistake=mistake)  # type: ignore[return-value]


class Adapter(ABC):
    """A verifier under audit, with a drafter if the verifier does not draft itself.

    The adapter samples drafts from the distribution that the verifier sees.  The interface is our
    own design; docs/theory/problem.md defines lossless.  Subclasses define `name` and `output`.

    Attributes
    ----------
    name : str
        Name in reports.
    repeatable : bool
        Whether all randomness comes from the source that is an argument of `output`.
    exact : bool
        Whether the verifier works on fractions and only compares its uniforms (after adding or
        multiplying by fractions), so that the audit can follow every path of its comparisons.
    max_tokens : int or None
        Largest number of tokens of a run; None for `Instance.gamma` + 1, or for the number of
        tokens that a loop must return.
    several : bool
        Whether the verifier supports any number k of chains, not only one.
    loops : bool
        Whether the verifier repeats steps until it has the required number of tokens: `max_tokens`,
        `Instance.length`, or the default of `Instance.length`.
    whole : bool
        Whether each run must return the largest allowed number of tokens, unless it stops at `end`.
        Loops must always return this number of tokens or stop at `end`.
    end : int or None
        Token that ends a sequence: no token may follow it, and a sequence without it must have the
        largest allowed length.
    stop : tuple of tuples of int
        Stop sequences: a text ends with the first of them that occurs in the output.
    processor : callable or None
        Processor of the target's logits, as for `loop`.
    uses_global_rng : bool
        Whether the verifier draws from the global generators of Python, NumPy or torch; the audit
        may replace their draws by its own uniforms.
    more : tuple of Instance
        Instances that the audit tries in addition to its own.

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
    stop: tuple[Path, ...] = ()
    processor: Any = None
    uses_global_rng: bool = False
    more: tuple[Instance, ...] = ()
    # Largest number of tokens by which prompts of a batch exceed the prompt of an instance.
    longer_prompts = 0

    @abstractmethod
    def output(self, instance: Instance, source: Randomness) -> Path:
        """Run the verifier once.

        Parameters
        ----------
        instance : Instance
            The models.
        source : callable
            Function from a number m to m independent uniforms in [0, 1).  The source also
            determines the drafts.  A verifier that is not `repeatable` may also use random numbers
            that do not come from the source.

        Returns
        -------
        tuple of int
            The tokens after the prompt, at least one.  The verifier is lossless if these tokens,
            continued by the target, have the target's distribution.
        """

    def drafted(self, instance: Instance, source: Randomness) -> Drafts | None:
        """Return the drafts that `output` draws from a source, or None if they are unknown.

        Parameters
        ----------
        instance : Instance
            The models.
        source : callable
            As for `output`.

        Returns
        -------
        tuple of int, tuple of tuples, dict or None
            One chain or the drafts of one token; several chains; or a tree, with its "tokens" and
            their "parents".
        """
        return None

    def supports(self, instance: Instance) -> bool:
        """Return whether the verifier can run on an instance.

        By default the verifier can run if the vocabulary contains the tokens of `end` and `stop`,
        and k is 1 or `several` is True.

        Parameters
        ----------
        instance : Instance
            The models, γ and k.
        """
        largest = max(itertools.chain((0,), *self.ends))
        return (self.several or instance.k == 1) and largest < instance.vocabulary

    @property
    def ends(self) -> tuple[Path, ...]:
        """Sequences of tokens that end a text: the end token and the stop sequences."""
        return (() if self.end is None else ((self.end,),)) + self.stop

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Run many times; override this method if the verifier is faster on many runs at once.

        Parameters
        ----------
        instance : Instance
            The models.
        uniforms : float64 array [B, m]
            Uniforms in [0, 1) for each run, with m large enough.

        Returns
        -------
        sequence of B tuples of int
            For each row, the result of `output` with a source that returns the uniforms of the row.

        Raises
        ------
        ProblemTooLargeError
            If a run needs more uniforms than a row has.
        """
        return [self.output(instance, Source(row)) for row in uniforms]

    def close(self) -> None:
        """Release the resources of the runs, such as a program; `lossless` calls this at its end.

        By default there is nothing to release.  Later runs are allowed.
        """
        return


def max_tokens(adapter: Adapter, instance: Instance) -> int:
    """Return the largest number of tokens that a run may return."""
    if adapter.max_tokens is not None:
        return adapter.max_tokens
    if adapter.loops:
        return instance.length or max(instance.gamma + 1, LEAST_LENGTH)
    return instance.gamma + 1
