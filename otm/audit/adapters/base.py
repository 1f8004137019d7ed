"""What is audited: a way to continue a prompt with a target and a draft model.

Whatever the verifier is (a rule for one token, a chain or block verifier, a whole decoding loop, in
any library), the audit sees it as a function from a pair of models and a source of uniforms to
tokens.  Everything random comes from that source if it can: then the output distribution is
computed, not sampled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.display.reprs import Brief
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.errors import ProblemTooLargeError
from otm.models.table import TableModel

LEAST_LENGTH = 3
"""Tokens of a loop, if an instance does not say how many."""


class OutOfUniformsError(ProblemTooLargeError):
    """A run takes more uniforms than the audit drew for it."""

    def __init__(self, taken: int, at_hand: int) -> None:
        super().__init__(
            f"a run takes {taken:,} uniforms or more, but only {at_hand:,} are available; give it "
            "fewer drafts and tokens"
        )
        self.taken = taken


class Source:
    """A source of given uniforms [m], floats or symbolic; `taken` counts the uniforms drawn."""

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
        """Return the index of the cell, given by its upper end, that holds the next uniform."""
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


@dataclass(frozen=True)
class Failure:
    """What a run returned instead of tokens."""

    text: str  # such as "returned token 7 of 3"
    crashed: bool = False  # whether the run ended by an exception


Outcome: TypeAlias = Path | Failure
"""What a run returned."""

Drafts: TypeAlias = Path | tuple[Path, ...] | Mapping[str, Path]
"""A chain or the drafts of one token; several chains; a tree, as its tokens and parents."""


def as_failure(text: str) -> Path:
    """Return a failure in place of tokens, where an adapter itself finds a mistake."""
    return Failure(text)  # type: ignore[return-value]


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

    def drafted(self, instance: Instance, source: Randomness) -> Drafts | None:
        """Return the drafts that `output` draws from a source; None if they are not known.

        Parameters
        ----------
        instance : Instance
            The models.
        source : callable
            As for `output`.

        Returns
        -------
        tuple of int, tuple of these, dict or None
            A chain, or the drafts of one token; several chains; a tree, as its "tokens" and their
            "parents".
        """
        return None

    def supports(self, instance: Instance) -> bool:
        """Whether it can run on an instance; by default if it has `end`, and k = 1 or `several`.

        Parameters
        ----------
        instance : Instance
            The models, γ and k.
        """
        return (self.several or instance.k == 1) and (self.end or 0) < instance.vocabulary

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


def max_tokens(adapter: Adapter, instance: Instance) -> int:
    """Most tokens that a run may return."""
    if adapter.max_tokens is not None:
        return adapter.max_tokens
    if adapter.loops:
        return instance.length or max(instance.gamma + 1, LEAST_LENGTH)
    return instance.gamma + 1
