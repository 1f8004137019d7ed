"""Wagner et al.'s Table 2: the sigmoid's scales, and how far the output is from the target.

The paper gives word error rates and ROUGE, which need its data and models; here it is the distance
(TV) of the law of a token from the target's, which is 0 if nothing is lost.  The models are our
target of 820k and its draft of 17k parameters, at contexts of texts that the target wrote.
Whatever the scales, nearly every draft is accepted, so that the token in the place of a draft
follows the draft model; the token after the drafts, which the paper says nothing about and our
variant draws ∝ σ, is nearly uniform.  In float16 10^5 is infinite, and infinity over infinity
leaves no law: this may be how the paper's Whisper, whose logits are in half precision, breaks down
at ±10^5.  Means over contexts; ± is half of the 95 % interval over prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import journal_style
from otm.figures.drawing.tables import table_figure
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.figures.wagner.scales import ALL_ACCEPTED, NO_LAW, scales, shown_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
DRAFT = "small"
PROMPTS, TOKENS = 64, 64
SEED = 0


def data(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Compute acceptance and distances for one pair.

    Parameters
    ----------
    prompts, tokens : int, optional
        How many texts, and of how many tokens.
    """
    return scales((DRAFT,), prompts, tokens, SEED)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw a table, the types one below the other; the row without a law stands out."""
    rows, groups, marked = [], [], []
    for index, row in enumerate(table.records()):
        name = str(row["scale"])
        if row["state"] == NO_LAW:
            marked.append(index)
            numbers = ["", "no law (∞ / ∞)", ""]
        else:
            mean, high = float(row["TV"]), float(row["TV high"])
            numbers = [
                f"{float(row['acceptance']):.4f}",
                f"{mean:.4f} ± {high - mean:.4f}",
                f"{float(row['TV after']):.4f}",
            ]
        if name in {"softmax", ALL_ACCEPTED}:
            groups.append(index)
        kind = {"softmax": str(row["type"]), ALL_ACCEPTED: "limit"}.get(name, "")
        rows.append([kind, shown_scale(name), *numbers])
    return table_figure(
        [
            "type",
            "scales $\\alpha, \\beta$",
            "draft\naccepted",
            "TV in place\nof a draft",
            "TV after\nall drafts",
        ],
        rows,
        left=2,
        groups=[index for index in groups if index],
        marked=marked,
    )
