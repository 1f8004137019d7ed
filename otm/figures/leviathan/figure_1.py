"""Leviathan et al.'s Figure 1: a trace of speculative decoding.

Each line is one run of the target, as in the paper's figure ([leviathan2023]_).  The models are
ours: byte-level GPTs of 820k and 49k parameters, γ = 5, the prompt "And it came to pass", plain
sampling, and the first seed, 0.  The paper prints the first rejected draft alone; here those behind
it, which are never judged, are shown too.  A token is a byte, ␣ a space.  The last runs draft less,
since the text ends after 64 new tokens.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otm._core.drawing import journal_style
from otm.decoding import Generation, speculative
from otm.figures.drawing.traces import draw_label, draw_legend, draw_text, text_page
from otm.figures.iterations import ACCEPTED, CONTEXT, PROMPT, TARGET, fates, token_rows
from otm.figures.registry import Kind
from otm.figures.table import Table
from otm.models import encode, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
SEED = 0
GAMMA = 5
TOKENS = 64
LABEL = 4
"""Characters in front of a line: its number."""


def data(tokens: int = TOKENS) -> Table:
    """List all tokens: those of the prompt in line 0, then what each run of the target made.

    Parameters
    ----------
    tokens : int, optional
        Number of new tokens.
    """
    made = generation(tokens)
    (prompt,) = made.prompts
    rows = token_rows(0, 0, prompt, [CONTEXT] * len(prompt))
    for line, step in enumerate(made.steps, start=1):
        for path in step.drafts:
            rows += token_rows(line, step.position, path, fates(path, step))
        own = step.output[step.accepted :]
        rows += token_rows(line, step.position + step.accepted, own, [TARGET] * len(own))
    return Table(("line", "position", "kind", "token", "text"), tuple(rows))


def generation(tokens: int = TOKENS) -> Generation:
    """Decode what the figure shows."""
    models = load("target"), load("medium")
    return speculative(*models, [encode(PROMPT)], gamma=GAMMA, max_tokens=tokens, seed=SEED)


@journal_style()
def draw(table: Table) -> Figure:
    """Draw a line of text for each run of the target, behind the text so far."""
    runs = sorted(set(table["line"].tolist()) - {0})
    figure, axes = text_page(lines=len(runs) + 1.7, wide=True)
    context = table.where(line=0)["token"].tolist()
    for y, run in enumerate(runs):
        x = float(LABEL)
        draw_label(axes, x - 1.5, y, str(run), "right")
        x += draw_text(axes, x, y, CONTEXT, context)
        rows = table.where(line=run)
        for kind in dict.fromkeys(rows["kind"].tolist()):
            tokens = rows.where(kind=kind)["token"].tolist()
            x += draw_text(axes, x, y, kind, tokens)
            if kind in (ACCEPTED, TARGET):
                context += tokens
    draw_legend(axes, LABEL, len(runs) + 0.6, table["kind"].tolist(), columns=4)
    return figure
