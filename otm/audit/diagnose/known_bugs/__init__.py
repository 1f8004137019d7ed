"""Bugs that public speculative decoders had, made again in a few lines each, as verifiers.

They are what `otm.audit.lossless` must find: negative controls, and the names that it gives to the
mistakes it finds.  Each is a right verifier of `steps` with one step wrong.  `SUSPECTED` holds what
was reported as a bug and is none.

Threads are quoted for what they discuss; the code is our own, and what it does may have been right
in the end, or wrong in one version only.

Not here: which of them explains a deviation (`otm.audit.diagnose.diagnosis`).
"""

from __future__ import annotations

from otm.audit.diagnose.known_bugs.caches import CACHES
from otm.audit.diagnose.known_bugs.drafting import BLOCKS, DRAFTING, LOCATING, RANDOMNESS, SEVERAL
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.audit.diagnose.known_bugs.size_and_place import SIZED, TREES
from otm.audit.diagnose.known_bugs.verification import ACCEPTANCE, BONUS, RESIDUAL, SUSPECTED

__all__ = ["KNOWN_BUGS", "SUSPECTED", "KnownBug"]

KNOWN_BUGS: tuple[KnownBug, ...] = (
    *ACCEPTANCE, *RESIDUAL, *BONUS, *DRAFTING, *RANDOMNESS, *LOCATING, *BLOCKS, *SEVERAL,
    *SIZED, *CACHES, *TREES,
)  # fmt: skip
"""All of them, by what goes wrong."""
