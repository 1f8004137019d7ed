"""What is known about a bug."""

from __future__ import annotations

from dataclasses import dataclass

from otm.audit.adapter import Adapter


@dataclass(frozen=True, eq=False)
class KnownBug:
    """A mistake that somebody's verifier made, made again in as little code as shows it.

    Parameters
    ----------
    verifier : Adapter
        Makes the mistake, on laws in fractions, and does everything else right.
    mistake : str
        The class of mistakes that it belongs to.
    summary : str
        What is wrong, in one sentence.
    threads : tuple of str, optional
        Public discussions of it, such as "vllm-project/vllm #54282".
    isolated : bool, optional
        Whether the law of the output is right and only isolated values of a uniform, such as 0,
        give a token that the target cannot.  Uniforms of b bits take such a value with
        probability 2^−b, which is 2^−24 in float32: once in 17 million draws.

    Examples
    --------
    >>> from otm.audit import lossless
    >>> from otm.audit.known_bugs import KNOWN_BUGS
    >>> lossless(KNOWN_BUGS[0].verifier, examples=0).lossless
    False
    """

    verifier: Adapter
    mistake: str
    summary: str
    threads: tuple[str, ...] = ()
    isolated: bool = False

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.verifier.name

    def __str__(self) -> str:
        where = f" ({', '.join(self.threads)})" if self.threads else ""
        return f"{self.name}: {self.summary}{where}"
