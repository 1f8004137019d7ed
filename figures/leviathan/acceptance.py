"""Leviathan et al.'s Tables 3 and 5: strict and lenient acceptance rates of our models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from figures.registry import experiment
from figures.shipped_pairs import (
    DRAFTERS,
    SIZES,
    probs_at,
    prompts_of_text,
    shipped_probs,
    texts_of_target,
)
from figures.table import Cell, Table
from otm._core.drawing import COLOURS, MARKERS, blank_figure
from otm._core.means import clustered_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0
PROMPTS, TOKENS = 250, 40
TEMPERATURES = (0, 1)

RATES = {
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


@experiment(seed=SEED, models="our n-grams and byte-level GPTs; (paper): as printed")
def table_3(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Leviathan et al.'s Table 3: acceptance rates α of one draft, by draft model and temperature.

    As in the paper, α is the mean of Σ min(p, q) over 10,000 tokens that the target generates,
    greedily (T = 0) or by sampling (T = 1).  The upper groups show our models, which read bytes:
    n-grams of the training text, and the shipped networks.  The 95 % intervals over prompts are
    about as wide as a marker.  The tokens are in 250 texts of 40 tokens, because longer greedy
    texts of such a small target repeat themselves, which would raise α.  The lower groups show
    the paper's numbers for its models.  The numbers need not agree.  In both cases α grows with
    the draft model, and is usually larger at T = 0.
    """
    rows: list[tuple[str | float | int, ...]] = []
    for temperature in TEMPERATURES:
        probs, clusters = shipped_probs(
            (*DRAFTERS, "target"),
            prompts=prompts,
            tokens=tokens,
            temperature=temperature,
            seed=SEED,
        )
        for name in DRAFTERS:
            overlap = np.minimum(probs[name], probs["target"]).sum(axis=-1)
            estimate = clustered_mean(overlap, clusters)
            rows.append((_OUR_TARGET, _label(name), temperature, *estimate, clusters.size))
    for target, drafts in RATES.items():
        for draft, values in drafts.items():
            for temperature, value in zip(TEMPERATURES, values, strict=True):
                rows.append((target, draft, temperature, value, "", "", ""))
    return Table(("target", "draft", "temperature", "alpha", "low", "high", "tokens"), tuple(rows))


@table_3.drawing
def draw_table_3(table: Table) -> Figure:
    """Draw a line per draft model, in groups by target, with a marker per temperature."""
    from matplotlib.lines import Line2D

    figure = blank_figure(height=4.6)
    axes = figure.subplots()
    labels: list[str] = []
    places: list[int] = []
    place = 0
    for target in dict.fromkeys(table["target"]):
        printed = "" if target == _OUR_TARGET else " (paper)"
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
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _label(name: str) -> str:
    """Return the name of one of our draft models with its size."""
    return f"{name}, {SIZES[name]}" if name in SIZES else name


_OUR_TARGET = f"ours, {SIZES['target']}"

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


LENIENCES = (1, 0.5, 0.3, 0.1)
SAMPLING = "sampling"
GREEDY = "greedy"

LENIENT_RATES = {
    (SAMPLING, "unigram"): (0.07, 0.1, 0.11, 0.16),
    (SAMPLING, "bigram"): (0.19, 0.23, 0.25, 0.32),
    (SAMPLING, "T5-small"): (0.62, 0.71, 0.76, 0.84),
    (SAMPLING, "T5-base"): (0.68, 0.8, 0.83, 0.90),
    (GREEDY, "T5-small"): (0.75, 0.75, 0.8, 0.87),
}
"""The paper's α for T5-XXL on EnDe, by lenience; those of greedy drafts are from its text."""

Floats = npt.NDArray[np.float64]


def lenient_output(draft: Floats, target: Floats, lenience: float) -> tuple[Floats, Floats]:
    """Compute accepted masses and output distributions of the paper's rule for one draft.

    Distributions are [..., V].  The accepted mass is min(p, q/l), for a lenience l in (0, 1].  The
    output adds the mass drawn from the residual ∝ max(q − l p, 0).

    Examples
    --------
    >>> lenient_output(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 0.5)
    (array([0.5 , 0.25]), array([0.5, 0.5]))
    """
    accepted: Floats = np.minimum(draft, target / lenience)
    residual = np.maximum(target - lenience * draft, 0)
    total = residual.sum(axis=-1, keepdims=True)
    rejected = 1 - accepted.sum(axis=-1, keepdims=True)
    output: Floats = accepted + rejected * residual / np.where(total > 0, total, 1)
    return accepted, output


def greedy_lenience(draft: Floats, target: Floats, lenience: float) -> tuple[Floats, Floats]:
    """Return for each context whether the greedy draft is accepted, and changes the token.

    Distributions are [N, V] at T = 1; x is the draft's most probable token.  accepted [N] is 1 if
    q(x) ≥ l max q.  changed [N] is 1 if x is accepted and is not the target's most probable token;
    this is the total variation from greedy decoding.
    """
    token = draft.argmax(axis=-1)
    likelihood = np.take_along_axis(target, token[:, None], axis=-1)[:, 0]
    accepted = likelihood >= lenience * target.max(axis=-1)
    changed = accepted & (token != target.argmax(axis=-1))
    return accepted.astype(np.float64), changed.astype(np.float64)


@experiment(seed=SEED, models="our n-grams and byte-level GPTs; (paper): as printed")
def table_5(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Leviathan et al.'s Table 5: acceptance rates α under lenience l, and what they cost.

    Left: α = Σ min(p, q/l) at T = 1, as the mean over 10,000 tokens that our target generates,
    for each of our draft models; the paper's T5-small for T5-XXL is in grey.  Middle: the total
    variation (TV) between the output distribution of the paper's rule and the target, exact in
    each context, which the paper does not print.  The dashed line is the least TV of all rules
    that accept as often, α(l) − α(1).  Right: lenience for greedy drafts at T = 0, accepted if
    q(x) ≥ l max q (the paper's text prints the opposite inequality).  As in SpecTr, p is the
    draft and q the target.
    """
    rows: list[tuple[Cell, ...]] = []
    probs, clusters = shipped_probs(
        (*DRAFTERS, "target"), prompts=prompts, tokens=tokens, temperature=1, seed=SEED
    )
    for name in DRAFTERS:
        strict = np.minimum(probs[name], probs["target"]).sum(axis=-1)
        for lenience in LENIENCES:
            accepted, output = lenient_output(probs[name], probs["target"], lenience)
            alpha = accepted.sum(axis=-1)
            distance = np.abs(output - probs["target"]).sum(axis=-1) / 2
            values = (alpha, distance, alpha - strict)
            rows.append((_OURS, SAMPLING, name, lenience, *_estimates(values, clusters)))
    probs = _probs_along_greedy_texts(prompts, tokens)
    for name in DRAFTERS:
        for lenience in LENIENCES:
            alpha, changed = greedy_lenience(probs[name], probs["target"], lenience)
            values = (alpha, changed, changed)
            rows.append((_OURS, GREEDY, name, lenience, *_estimates(values, clusters)))
    for (decoding, name), printed in LENIENT_RATES.items():
        for lenience, value in zip(LENIENCES, printed, strict=True):
            rows.append((_PAPER, decoding, name, lenience, value, *[""] * 8))
    quantities = [
        quantity + end for quantity in ("alpha", "tv", "least_tv") for end in ("", "_low", "_high")
    ]
    return Table(("source", "decoding", "draft", "lenience", *quantities), tuple(rows))


@table_5.drawing
def draw_table_5(table: Table) -> Figure:
    """Draw three panels: acceptance, its cost in TV, and acceptance of greedy drafts."""
    figure = blank_figure(height=2.9, wide=True)
    panels = figure.subplots(1, 3)
    ours = table.where(source=_OURS)
    for name, style in _STYLES.items():
        sampled = ours.where(decoding=SAMPLING, draft=name)
        greedy = ours.where(decoding=GREEDY, draft=name)
        _line(panels[0], sampled, "alpha", **style, label=name)
        _line(panels[1], sampled, "tv", **style)
        _line(panels[1], sampled, "least_tv", **{**style, "linestyle": "--", "marker": ""})
        _line(panels[2], greedy, "alpha", **style)
    paper = table.where(source=_PAPER, draft="T5-small")
    grey: dict[str, Any] = {"color": "#888888", "linestyle": ":", "marker": "x"}
    _line(panels[0], paper.where(decoding=SAMPLING), "alpha", **grey, label="T5-small (paper)")
    _line(panels[2], paper.where(decoding=GREEDY), "alpha", **grey)
    titles = ("sampling, $T = 1$", "sampling, $T = 1$", "greedy drafts, $T = 0$")
    labels = (r"acceptance rate $\alpha$", "TV of output and target", r"acceptance rate $\alpha$")
    for axes, title, label in zip(panels, titles, labels, strict=True):
        axes.set_title(title, fontsize=9)
        axes.set(xscale="log", xlabel="lenience $l$", ylabel=label, xlim=(1.1, 0.09))
        axes.set_xticks(LENIENCES, labels=[f"{lenience:g}" for lenience in LENIENCES])
        axes.minorticks_off()
    for axes in (panels[0], panels[2]):
        axes.set_ylim(0, 1.02)
    panels[1].set_ylim(bottom=0)
    panels[1].plot([], [], color="#444444", linestyle="-", label="the paper's rule")
    panels[1].plot([], [], color="#444444", linestyle="--", label="least for its $\\alpha$")
    panels[1].legend(loc="upper left")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def _line(axes: Axes, rows: Table, quantity: str, **style: Any) -> None:
    axes.plot(rows["lenience"], rows[quantity].astype(float), **style)


def _probs_along_greedy_texts(prompts: int, tokens: int) -> dict[str, Floats]:
    """Return distributions at T = 1, to which lenience applies, along greedy texts."""
    started = prompts_of_text(prompts)
    texts = texts_of_target(started, tokens, temperature=0)
    names = (*DRAFTERS, "target")
    probs = {name: probs_at(name, texts, len(started[0])) for name in names}
    return {
        name: distribution.reshape(-1, distribution.shape[-1])
        for name, distribution in probs.items()
    }


def _estimates(values: tuple[Floats, ...], clusters: npt.NDArray[np.int64]) -> list[float]:
    """Return mean and interval of each quantity in one flat list."""
    return [number for series in values for number in clustered_mean(series, clusters)]


_OURS = "ours"
_PAPER = "paper, T5-XXL"

_STYLES: dict[str, dict[str, Any]] = {
    name: {"color": colour, "marker": marker, "markersize": 3.5}
    for name, colour, marker in zip(DRAFTERS, COLOURS, MARKERS, strict=True)
}
