"""Wagner et al.'s Figure 4: peak memory of verification for γ = 1 to 20, language models.

Bytes that a call needs at its peak beside its logits, whose own size is the grey line; the paper's
peaks hold the models too, beside which the differences of a few rows vanish.  On a GPU they are
counted by torch's allocator.  On a CPU the allocations of the plain versions are counted, which
work in float64 and whole numbers, so that they need more than the step-by-step baseline.
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
MODELS = ("Llama2", "Qwen", "Gemma")
MIB = 2.0**20


def data(records: list[dict[str, Any]]) -> Table:
    """Take the peaks of the first device."""
    return curves(records, MODELS, "peak bytes")


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one panel a model."""
    return draw_memory(table, MODELS)


def draw_memory(table: Table, models: tuple[str, ...]) -> Figure:
    """Draw peaks, one panel a model."""
    wide = len(models) > 1
    figure = blank_figure(height=2.9, wide=wide)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        found = table.where(model=model)
        draw_panel(axes, found, "peak bytes", MIB)
        logits = found.where(method="baseline")
        axes.plot(
            logits["gamma"],
            logits["input bytes"] / MIB,
            color="#777777",
            linewidth=0.8,
            label="the logits themselves",
        )
        axes.set_xlabel("number of drafts $\\gamma$")
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("memory at the peak, MiB")
    columns = 4 if wide else 2
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=columns)
    note = device_note(str(table["device"][0]), str(table["kind"][0]))
    figure.suptitle(note if wide else note.replace(": ", ":\n"), fontsize=8)
    return figure
