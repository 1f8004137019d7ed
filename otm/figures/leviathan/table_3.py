"""Leviathan et al.'s Table 3: acceptance rates α of one draft, by draft model and temperature.

As in the paper, α is the mean of Σ min(p, q) over 10,000 tokens that the target generates, greedily
(T = 0) or by sampling (T = 1).  First come our own models, which read bytes: n-grams of the
training text and the shipped networks; 95 % intervals over prompts are about as wide as a marker.
We take 250 texts of 40 tokens: longer greedy texts of so small a target repeat themselves, which
would raise α.  Below is what the paper prints for its models.  The numbers need not agree; α grows
with the draft model in both, and is mostly larger at T = 0.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023, section 4.2 and Table 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from otm._core.drawing import COLOURS, blank_figure, journal_style
from otm.figures.registry import Kind
from otm.figures.shipped_pairs import DRAFTERS, SIZES, shipped_laws
from otm.figures.table import Table
from otm.gain.paired_means import clustered_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
SEED = 0
PROMPTS, TOKENS = 250, 40
TEMPERATURES = (0, 1)

PRINTED = {
    "GPT-like, 97M": {"unigram": (0.03, 0.03), "bigram": (0.05, 0.05), "6M": (0.88, 0.89)},
    "T5-XXL, EnDe": {
        "unigram": (0.08, 0.07),
        "bigram": (0.20, 0.19),
        "T5-small": (0.75, 0.62),
        "T5-base": (0.80, 0.68),
        "T5-large": (0.82, 0.71),
    },
    "T5-XXL, CNNDM": {
        "unigram": (0.13, 0.08),
        "bigram": (0.23, 0.16),
        "T5-small": (0.65, 0.53),
        "T5-base": (0.73, 0.55),
        "T5-large": (0.74, 0.56),
    },
    "LaMDA, 137B": {"100M": (0.61, 0.57), "2B": (0.71, 0.71), "8B": (0.75, 0.74)},
}
"""The paper's α at T = 0 and at T = 1, by target and draft model."""


def data(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Compute α for our models, and list it for the paper's.

    Parameters
    ----------
    prompts, tokens : int, optional
        How many texts, and how many tokens of each.
    """
    rows: list[tuple[str | float | int, ...]] = []
    for temperature in TEMPERATURES:
        laws, clusters = shipped_laws(
            (*DRAFTERS, "target"),
            prompts=prompts,
            tokens=tokens,
            temperature=temperature,
            seed=SEED,
        )
        for name in DRAFTERS:
            overlap = np.minimum(laws[name], laws["target"]).sum(axis=-1)
            estimate = clustered_mean(overlap, clusters)
            rows.append((_OURS, _label(name), temperature, *estimate, clusters.size))
    for target, drafts in PRINTED.items():
        for draft, values in drafts.items():
            for temperature, value in zip(TEMPERATURES, values, strict=True):
                rows.append((target, draft, temperature, value, "", "", ""))
    return Table(("target", "draft", "temperature", "alpha", "low", "high", "tokens"), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw a line a draft model, in groups by target; a marker a temperature."""
    from matplotlib.lines import Line2D

    figure = blank_figure(height=4.6)
    axes = figure.subplots()
    labels: list[str] = []
    places: list[int] = []
    place = 0
    for target in dict.fromkeys(table["target"]):
        printed = "" if target == _OURS else " (paper)"
        axes.text(0.0, place, f"{target}{printed}", fontweight="bold", va="center", fontsize=8)
        axes.axhline(place - 0.6, color="#444444", linewidth=0.5)
        of_target = table.where(target=str(target))
        for draft in dict.fromkeys(of_target["draft"]):
            place += 1
            labels.append(str(draft))
            places.append(place)
            for temperature, style in _MARKERS.items():
                row = of_target.where(draft=str(draft), temperature=temperature)
                axes.plot(row["alpha"], [place], **style)
        place += 1
    axes.set(xlabel=r"acceptance rate $\alpha$", ylabel="draft model")
    axes.set(xlim=(-0.02, 1), ylim=(place - 0.4, -0.6))
    axes.set_yticks(places, labels=labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    handles = [Line2D([], [], **style, label=f"$T = {t}$") for t, style in _MARKERS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def _label(name: str) -> str:
    """Name a draft model of ours with its size."""
    return f"{name}, {SIZES[name]}" if name in SIZES else name


_OURS = f"ours, {SIZES['target']}"

_MARKERS: dict[int, dict[str, Any]] = {
    0: {"color": COLOURS[0], "marker": "o", "markersize": 4, "linestyle": ""},
    1: {
        "color": COLOURS[1],
        "marker": "s",
        "markersize": 5,
        "markerfacecolor": "none",
        "linestyle": "",
    },
}
