"""Wagner et al.'s Figure 5: peak memory of verification for γ = 1 to 20, Whisper's vocabulary.

As Figure 4, for the 51,864 tokens of the paper's speech models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.figures.wagner import profiles
from otm.figures.wagner.curves import curves
from otm.figures.wagner.figure_4 import draw_memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED, COMMAND = profiles.RECORDED, profiles.COMMAND
MODELS = ("Whisper",)


def data(records: list[dict[str, Any]]) -> Table:
    """Take the peaks of the first device."""
    return curves(records, MODELS, "peak bytes")


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one panel."""
    return draw_memory(table, MODELS)
