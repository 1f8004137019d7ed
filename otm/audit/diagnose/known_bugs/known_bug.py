"""A known mistake: a verifier that makes it, its name and hint, and how it shows in rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otm.audit.adapters.base import Adapter
from otm.audit.evidence import Diagnosis


@dataclass(frozen=True, eq=False)
class KnownBug:
    """A mistake that somebody's verifier made, made again in as little code as shows it.

    Parameters
    ----------
    verifier : Adapter
        Makes the mistake, on distributions in fractions, and does everything else right.
    mistake : str
        The class of mistakes that it belongs to.
    summary : str
        What is wrong, in one sentence.
    threads : tuple of str, optional
        Public discussions of it, such as "vllm-project/vllm #54282".
    isolated : bool, optional
        Whether the output distribution is right and only isolated values of a uniform, such as 0,
        give a token that the target cannot.  Uniforms of b bits take such a value with
        probability 2^−b, which is 2^−24 in float32: once in 17 million draws.
    in_rows : callable, optional
        From the verifier and the rows of both models to the distribution of the next token, where
        this shows the mistake in recorded steps.

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
        """Entry of a report."""
        return Diagnosis(self.name, self.mistake, self.summary, tuple(self.threads))

    def __str__(self) -> str:
        where = f" ({', '.join(self.threads)})" if self.threads else ""
        return f"{self.name}: {self.summary}{where}"
