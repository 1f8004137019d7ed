"""SpecTr's Figure 1: one iteration of speculative decoding.

The small model drafts L = 4 tokens behind the context, the large one keeps those up to the first
that it rejects, and adds one of its own ([sun2023]_).  The models are ours: byte-level GPTs of 820k
and 49k parameters.  The iteration is real: the first with an accepted and a rejected draft, at the
first seed, after the prompt "And it came to pass".  A token is a byte, ␣ a space.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import journal_style
from otm.decoding import Generation, Step, speculative
from otm.figures.drawing.traces import draw_iteration
from otm.figures.iterations import PROMPT, rows_of_iteration
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.models import encode, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
SEED = 0
LENGTH = 4
TOKENS = 64


def data() -> Table:
    """List the tokens of the context, of the draft, and of the output."""
    return rows_of_iteration(*iteration())


def iteration() -> tuple[Generation, Step]:
    """Decode, and choose the step that the figure shows."""
    models = load("target"), load("medium")
    made = speculative(*models, [encode(PROMPT)], gamma=LENGTH, max_tokens=TOKENS, seed=SEED)
    return made, next(step for step in made.steps if step.accepted and step.rejected)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the draft and the output, each behind the context."""
    return draw_iteration(table)
