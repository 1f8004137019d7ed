"""What is audited: a way to continue a prompt with a target and a draft model.

Whatever the verifier is (a rule for one token, a chain or block verifier, a whole decoding loop, in
any library), the audit sees it as a function from a pair of models and a source of uniforms to
tokens.  Everything random comes from that source if it can: then the law of the output is computed,
not sampled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path
from otm.errors import ProblemTooLargeError
from otm.models.table import TableModel

MAX_UNIFORMS = 64
"""Most uniforms that a run of a verifier may take."""


def source_of(uniforms: npt.NDArray[Any]) -> Randomness:
    """Make a source of given uniforms [m], floats or symbolic: `source(n)` returns the next n."""
    taken = 0

    def source(m: int) -> npt.NDArray[Any]:
        nonlocal taken
        taken += m
        if taken > uniforms.size:
            raise ProblemTooLargeError(
                f"a run of the verifier takes {taken} uniforms or more, and {uniforms.size} are at "
                "hand; audit it on fewer drafts and tokens"
            )
        return uniforms[taken - m : taken].copy()  # which may be written into

    return source


@dataclass(frozen=True, eq=False)
class Instance:
    """A pair of small models on which a verifier is run.

    Parameters
    ----------
    target, draft : TableModel
        Laws in fractions, on the same few tokens.
    gamma : int
        Number γ of drafts of a chain, at least 1.
    k : int, optional
        Number of chains, or of drafts for one token; 1 for a verifier that takes a single chain.
    prompt : tuple of int, optional
        The tokens before.

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

    @property
    def vocabulary(self) -> int:
        """Number V of tokens."""
        return self.target.vocabulary


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
        Whether it works on laws in fractions and only compares its uniforms (after adding or
        multiplying by fractions), so that every path of its comparisons can be followed.
    max_tokens : int or None
        Most tokens that a run returns; None for `Instance.gamma` + 1.

    Examples
    --------
    >>> class Target(Adapter):  # decodes without drafts
    ...     name = "target alone"
    ...
    ...     def output(self, instance, source):
    ...         law = instance.target.probs(instance.prompt)
    ...         return (int((law.cumsum() <= source(1)[0]).sum()),)
    >>> from otm.audit import lossless
    >>> lossless(Target(), examples=0).verdict
    'lossless on everything tried'
    """

    name: str
    repeatable: bool = True
    exact: bool = True
    max_tokens: int | None = None

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
            target, have the law of the target.
        """

    def supports(self, instance: Instance) -> bool:
        """Whether it can run on an instance; if not said otherwise, where k = 1.

        Parameters
        ----------
        instance : Instance
            The models, γ and k.
        """
        return instance.k == 1

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
        return [self.output(instance, source_of(row)) for row in uniforms]
