"""Wagner et al.'s Figure 3: time of verification per step for γ = 1 to 20.

One chain from float32 logits that are drawn, with vocabularies as large as the paper's models have
them; medians, with quartiles as bands.  All methods verify the same chains.  On a GPU "exact" and
"sigmoid" are our Triton kernels, and the paper's curves are flat in γ; on a CPU they are the plain
versions that these are checked against, and all rows cost time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otm._core.drawing import blank_figure, journal_style
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.figures.wagner import profiles
from otm.figures.wagner.curves import curves, draw_panel
from otm.figures.wagner.profiles import device_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.MEASUREMENT
RECORDED, COMMAND = profiles.RECORDED, profiles.COMMAND
MODELS = ("Llama2", "Whisper", "Qwen", "Gemma")
"""By the size of the vocabulary."""


def data(records: list[dict[str, Any]]) -> Table:
    """Take the times of the first device."""
    return curves(records, MODELS, "s")


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one panel a model."""
    figure = blank_figure(height=4.4, wide=True)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, model in zip(panels.flat, MODELS, strict=True):
        draw_panel(axes, table.where(model=model), "s", 1e-3)
        axes.set_yscale("log")
    for axes in panels[:, 0]:
        axes.set_ylabel("time of a step, ms")
    for axes in panels[1]:
        axes.set_xlabel("number of drafts $\\gamma$")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    note = device_note(str(table["device"][0]), str(table["kind"][0]))
    figure.suptitle(note, fontsize=8)
    return figure
