"""Leviathan et al.'s Table 5: acceptance rates α under lenience l, and what they cost.

Left: α = Σ min(p, q/l) at T = 1, the mean over 10,000 tokens that our target generates, for each of
our draft models; the paper's T5-small for T5-XXL in grey.  Middle: what the paper does not print,
the total variation (TV) between the output law of its rule and the target law, exact in each
context; dashed, the least TV of any rule that accepts as often, α(l) − α(1).  Right: lenience for
greedy drafts at T = 0, accepted where q(x) ≥ l max q (the paper's text prints the inequality the
other way round).  Letters as in SpecTr: p drafts, q is the target.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023, appendix A.5 and Table 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style
from otm.figures.leviathan.table_3 import PROMPTS, TOKENS
from otm.figures.registry import Kind
from otm.figures.shipped_pairs import (
    DRAFTERS,
    laws_at,
    prompts_of_text,
    shipped_laws,
    texts_of_target,
)
from otm.figures.table import Cell, Table
from otm.gain.paired_means import clustered_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KIND = Kind.EXPERIMENT
SEED = 0
LENIENCES = (1, 0.5, 0.3, 0.1)

SAMPLING = "sampling"
GREEDY = "greedy"

PRINTED = {
    (SAMPLING, "unigram"): (0.07, 0.1, 0.11, 0.16),
    (SAMPLING, "bigram"): (0.19, 0.23, 0.25, 0.32),
    (SAMPLING, "T5-small"): (0.62, 0.71, 0.76, 0.84),
    (SAMPLING, "T5-base"): (0.68, 0.8, 0.83, 0.90),
    (GREEDY, "T5-small"): (0.75, 0.75, 0.8, 0.87),
}
"""The paper's α for T5-XXL on EnDe, by lenience; of greedy drafts, from the text."""

Laws = npt.NDArray[np.float64]


def lenient_output(draft: Laws, target: Laws, lenience: float) -> tuple[Laws, Laws]:
    """Compute the accepted mass and the output law of the paper's lenient rule for one draft.

    Parameters
    ----------
    draft, target : float64 array [..., V]
        The laws p and q.
    lenience : float
        l in (0, 1].

    Returns
    -------
    accepted : float64 array [..., V]
        min(p, q/l).
    output : float64 array [..., V]
        With what is drawn from the residual ∝ max(q − l p, 0) added.

    Examples
    --------
    >>> lenient_output(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 0.5)
    (array([0.5 , 0.25]), array([0.5, 0.5]))
    """
    accepted: Laws = np.minimum(draft, target / lenience)
    residual = np.maximum(target - lenience * draft, 0)
    total = residual.sum(axis=-1, keepdims=True)
    rejected = 1 - accepted.sum(axis=-1, keepdims=True)
    output: Laws = accepted + rejected * residual / np.where(total > 0, total, 1)
    return accepted, output


def greedy_lenience(draft: Laws, target: Laws, lenience: float) -> tuple[Laws, Laws]:
    """Say for each context whether the likeliest draft passes, and whether it is another token.

    Parameters
    ----------
    draft, target : float64 array [N, V]
        The laws at T = 1.
    lenience : float
        l in (0, 1].

    Returns
    -------
    accepted : float64 array [N]
        1 where q(x) ≥ l max q for the likeliest x of the draft law, otherwise 0.
    changed : float64 array [N]
        1 where that x is accepted and not the likeliest token of the target law, otherwise 0: the
        total variation from greedy decoding.
    """
    token = draft.argmax(axis=-1)
    likelihood = np.take_along_axis(target, token[:, None], axis=-1)[:, 0]
    accepted = likelihood >= lenience * target.max(axis=-1)
    changed = accepted & (token != target.argmax(axis=-1))
    return accepted.astype(np.float64), changed.astype(np.float64)


def data(prompts: int = PROMPTS, tokens: int = TOKENS) -> Table:
    """Compute α and TV by draft model and lenience, and list the paper's α.

    Parameters
    ----------
    prompts, tokens : int, optional
        How many texts, and how many tokens of each.
    """
    rows: list[tuple[Cell, ...]] = []
    laws, clusters = shipped_laws(
        (*DRAFTERS, "target"), prompts=prompts, tokens=tokens, temperature=1, seed=SEED
    )
    for name in DRAFTERS:
        strict = np.minimum(laws[name], laws["target"]).sum(axis=-1)
        for lenience in LENIENCES:
            accepted, output = lenient_output(laws[name], laws["target"], lenience)
            alpha = accepted.sum(axis=-1)
            distance = np.abs(output - laws["target"]).sum(axis=-1) / 2
            values = (alpha, distance, alpha - strict)
            rows.append((_OURS, SAMPLING, name, lenience, *_estimates(values, clusters)))
    laws = _laws_along_greedy_texts(prompts, tokens)
    for name in DRAFTERS:
        for lenience in LENIENCES:
            alpha, changed = greedy_lenience(laws[name], laws["target"], lenience)
            values = (alpha, changed, changed)
            rows.append((_OURS, GREEDY, name, lenience, *_estimates(values, clusters)))
    for (decoding, name), printed in PRINTED.items():
        for lenience, value in zip(LENIENCES, printed, strict=True):
            rows.append((_PAPER, decoding, name, lenience, value, *[""] * 8))
    quantities = [
        quantity + end for quantity in ("alpha", "tv", "least_tv") for end in ("", "_low", "_high")
    ]
    return Table(("source", "decoding", "draft", "lenience", *quantities), tuple(rows))


@journal_style()
def draw(table: Table) -> Figure:
    """Draw three panels: acceptance, its price, and acceptance of greedy drafts."""
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


def _laws_along_greedy_texts(prompts: int, tokens: int) -> dict[str, Laws]:
    """Laws at T = 1, which lenience is about, along texts at T = 0."""
    started = prompts_of_text(prompts)
    texts = texts_of_target(started, tokens, temperature=0)
    names = (*DRAFTERS, "target")
    laws = {name: laws_at(name, texts, len(started[0])) for name in names}
    return {name: law.reshape(-1, law.shape[-1]) for name, law in laws.items()}


def _estimates(values: tuple[Laws, ...], clusters: npt.NDArray[np.int64]) -> list[float]:
    """Mean and interval of each quantity, one after the other."""
    return [number for series in values for number in clustered_mean(series, clusters)]


_OURS = "ours"
_PAPER = "paper, T5-XXL"

_STYLES: dict[str, dict[str, Any]] = {
    name: {"color": colour, "marker": marker, "markersize": 3.5}
    for name, colour, marker in zip(DRAFTERS, COLOURS, MARKERS, strict=True)
}
