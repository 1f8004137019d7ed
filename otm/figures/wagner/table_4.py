"""Wagner et al.'s Table 4: time in verification on a second device.

As Table 1.  The paper's second device is an RTX 2080 Ti; ours is the second GPU, or the second
device where no GPU was measured.  As long as a single device has been measured, it is shown again,
which the note below the table says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import journal_style
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.figures.wagner import profiles
from otm.figures.wagner.profiles import EXACT, SIGMOID, devices
from otm.figures.wagner.texts import draw_texts, texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED, COMMAND = profiles.RECORDED, profiles.COMMAND

PAPER = {
    ("Whisper", EXACT): "5.7 to 12.6",
    ("Whisper", SIGMOID): "62.0 to 82.5",
    ("Qwen", EXACT): "5.0 (1.8B)",
    ("Qwen", SIGMOID): "76.8 (1.8B)",
}
ONLY, SECOND = "the only one", "the second one"


def data(records: list[dict[str, Any]]) -> Table:
    """Compare the total times on the second device, or on the only one."""
    found = devices(records)
    table = texts(found[1:2] or found, PAPER)
    which = SECOND if len(found) > 1 else ONLY
    return Table((*table.names, "which"), tuple((*row, which) for row in table.rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one row for each model and method."""
    alone = table["which"][0] == ONLY
    return draw_texts(
        table,
        "A second device has not been measured: these are the times of Table 1." if alone else "",
    )
