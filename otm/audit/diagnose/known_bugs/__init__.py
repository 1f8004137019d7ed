"""Bugs of public speculative decoders, each reproduced as a verifier in a few lines of code.

`otm.audit.lossless` must detect each bug; the names of the bugs label the mistakes that it detects.
Each bug is a correct verifier of `steps` with one wrong step.  `SUSPECTED` lists code that was
reported as a bug but is correct.

Discussion threads are cited for their subject; the code is our own.  The code that a thread
discusses may be correct after all, or wrong in one version only.

Not here: which bug explains a deviation (`otm.audit.diagnose.diagnosis`).
"""

from __future__ import annotations

from otm.audit.diagnose.known_bugs.blocks import BLOCKS
from otm.audit.diagnose.known_bugs.bonus import BONUS
from otm.audit.diagnose.known_bugs.caches import CACHES
from otm.audit.diagnose.known_bugs.drafting import DRAFTING, LOCATING, RANDOMNESS, SEVERAL
from otm.audit.diagnose.known_bugs.known_bug import KnownBug
from otm.audit.diagnose.known_bugs.processing import ENDINGS, PROCESSED
from otm.audit.diagnose.known_bugs.rows import EARLIER, ROWS
from otm.audit.diagnose.known_bugs.size_and_place import SIZED, TREES
from otm.audit.diagnose.known_bugs.verification import ACCEPTANCE, RESIDUAL, SUSPECTED
from otm.audit.diagnose.known_bugs.walks import WALKS

__all__ = ["KNOWN_BUGS", "SUSPECTED", "KnownBug"]

KNOWN_BUGS: tuple[KnownBug, ...] = (
    *ACCEPTANCE, *RESIDUAL, *BONUS, *DRAFTING, *RANDOMNESS, *LOCATING, *BLOCKS, *SEVERAL,
    *SIZED, *CACHES, *TREES, *WALKS, *PROCESSED, *ENDINGS, *ROWS, *EARLIER,
)  # fmt: skip
"""All known bugs, grouped by the step that is wrong."""
