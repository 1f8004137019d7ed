"""Wagner et al.'s Table 1: time in verification over whole texts, relative to the baseline.

Verification alone, of one chain from float32 logits: the logits are drawn, with vocabularies as
large as the paper's models have them, and γ follows the heuristic of transformers.  A method that
accepts more takes fewer steps with more drafts each.  On a GPU "exact" and "sigmoid" are our Triton
kernels; on a CPU they are the plain versions that these are checked against, in whole numbers and
float64, and slower than the steps of torch that they are compared with.  Of the paper's cells only
the ranges in its text are at hand.  ± is half of the 95 % interval over texts; word error rates and
ROUGE are the business of Tables 2 and 7.
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
    ("Whisper", EXACT): "8.7 to 12.5",
    ("Whisper", SIGMOID): "71.9 to 84.0",
    **{(model, EXACT): "5.7 to 11.1" for model in ("Llama2", "Qwen", "Gemma")},
    **{(model, SIGMOID): "37 to 93.6" for model in ("Llama2", "Qwen", "Gemma")},
}
"""Section 4.2; 37 is in the abstract."""


def data(records: list[dict[str, Any]]) -> Table:
    """Compare the total times on the first device."""
    return texts(devices(records)[:1], PAPER)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw one row for each model and method."""
    return draw_texts(table)
