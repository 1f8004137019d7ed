"""SpecTr's Figure 2: one iteration of SpecTr.

The small model draws K = 4 drafts of L = 4 tokens behind the context.  The large one selects one
token after another by k-Seq, goes on with the drafts that agree with it, and adds a token of its
own ([sun2023]_, Algorithm 3).  The models are ours, as in Figure 1.  The iteration is real: the
first at the first seed that selects at least two drafts, has more than one draft left after the
first selection, and ends because it selects none; Figure 3 shows its selections one by one.

References
----------
.. [sun2023] Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import journal_style
from otm.decoding import Generation, Step, spectr
from otm.figures.drawing.traces import draw_iteration
from otm.figures.iterations import PROMPT, rows_of_iteration
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.models import encode, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
SEED = 0
DRAFTS = 4
LENGTH = 4
TOKENS = 256


def data() -> Table:
    """List the tokens of the context, of each draft, and of the output."""
    return rows_of_iteration(*iteration())


def iteration() -> tuple[Generation, Step]:
    """Decode, and choose the step that the figure shows."""
    models = load("target"), load("medium")
    made = spectr(
        *models,
        [encode(PROMPT)],
        k=DRAFTS,
        gamma=LENGTH,
        rule="k-Seq",
        max_tokens=TOKENS,
        seed=SEED,
    )
    return made, next(step for step in made.steps if _tells_enough(step))


def _tells_enough(step: Step) -> bool:
    left = sum(path[:1] == step.output[:1] for path in step.drafts)
    return step.accepted >= 2 and left > 1 and step.rejected


@journal_style()
def draw(table: Table) -> Figure:
    """Draw the drafts and the output, each behind the context."""
    return draw_iteration(table)
