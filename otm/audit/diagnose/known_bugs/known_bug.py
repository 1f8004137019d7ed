"""A known mistake: its verifier, its name and summary, and its distribution in recorded rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otm.audit.adapters.base import Adapter
from otm.audit.evidence import Diagnosis


@dataclass(frozen=True, eq=False)
class KnownBug:
    """A mistake of a public verifier, reproduced in as little code as possible.

    Parameters
    ----------
    verifier : Adapter
        A verifier with this mistake, on distributions in fractions, that is correct otherwise.
    mistake : str
        The class of mistakes to which the bug belongs.
    summary : str
        What is wrong, in one sentence.
    threads : tuple of str, optional
        Public discussions of the mistake, such as "vllm-project/vllm #54282".
    isolated : bool, optional
        Whether the output distribution is correct, except that isolated values of a uniform, such
        as 0, lead to a token that is impossible under the target.  A uniform with b bits has a
        given value with probability 2^−b, which is 2^−24 in float32: once in 17 million draws.
    in_rows : callable, optional
        Function of the verifier and the rows of both models that returns the distribution of the
        next token, if recorded steps can show the mistake.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> from otm.audit.diagnose.known_bugs import KNOWN_BUGS
    >>> lossless(KNOWN_BUGS[0].verifier, examples=0).lossless
    False
    """

    verifier: Adapter
    mistake: str
    summary: str
    threads: tuple[str, ...] = ()
    isolated: bool = False
    in_rows: Callable[[Any, Any], Any] | None = None

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.verifier.name

    @property
    def diagnosis(self) -> Diagnosis:
        """The bug as an entry of a report."""
        return Diagnosis(self.name, self.mistake, self.summary, tuple(self.threads))

    def __str__(self) -> str:
        where = f" ({', '.join(self.threads)})" if self.threads else ""
        return f"{self.name}: {self.summary}{where}"
