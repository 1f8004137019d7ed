"""The report: the estimated gain of two models from drafts, as JSON and as one HTML page.

`report` reads pairs of distributions from a source (`from_files`, `from_top_logprobs`,
`from_models`). From these pairs, it computes the acceptance of every rule at every position,
without decoding. An interrupted report continues when it is called again, on any number of cores or
machines.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from otm._core.display.progress import Progress
from otm._core.display.text import shown
from otm._core.drawing import COLOURS, MARKERS, blank_figure, journal_style, legend_above
from otm._core.files.paths import AnyPath, as_path, write_atomically
from otm._core.means import Floats
from otm._core.numbers import as_level
from otm._core.optional import check_installed
from otm.decoding.policies import as_gamma
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.latency import Latency
from otm.gain.reports.blocks import measure_all, writing
from otm.gain.reports.sampled_drafts import check_drafts, sample_drafts
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.gain.reports.summary import Summary, TableRow, summarise
from otm.gain.reports.top_lists import TopLogprobs
from otm.gain.reports.verdict import verdict

MAX_GAMMA = 1000
"""Largest γ of a report; tokens per step are computed for all smaller γ too."""

SHOWN = 12
"""Number of candidates on the page; the JSON file has all candidates."""

HEIGHT = 2.4
"""Height of a picture without its legend, in inches."""

LINE = 0.16
"""Height of a line of the legend, in inches."""

PLOT_SIZE = 195, 130
"""Width and height inside the axes of a picture, in units of 1/72 inch; approximate."""

CHARACTER_SIZE = 4.3, 9.5
"""Width and height of a character of a label, in units of 1/72 inch."""

LABEL_SIDES = [
    (np.array(gap), np.array(share))
    for gap, share in (
        ((5, 0), (0, -0.5)),  # right of the point
        ((4, -3), (0, -1)),  # below and to the right
        ((0, 4), (-0.5, 0)),  # above
        ((-5, 0), (-1, -0.5)),  # to the left
        ((0, -4), (-0.5, -1)),  # below
    )
]
"""Offsets of a label's corner from its point: a distance, plus a share of the label's size."""

MIN_RANGE = 1e-3
"""Smallest range of an axis, for settings that change almost no output."""

MAX_CURVES = 4
"""Largest number of curves, one for each k, in a picture."""


def report(
    source: Source,
    folder: AnyPath,
    settings: Settings | None = None,
    *,
    gammas: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
    latency: Latency | None = None,
    level: float = 0.95,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Estimate the gain from drafts, and write `report.json` and `report.html`.

    Parameters
    ----------
    source : Source
        Positions from `from_files`, `from_top_logprobs` or `from_models`.
    folder : str or Path
        Output folder. The subfolder "positions" keeps the results of finished positions, so an
        interrupted report continues. If only `gammas`, `latency` or `level` change, no position is
        computed again.
    settings : Settings, optional
        Rules, numbers of drafts, temperatures, lossy settings.
    gammas : sequence of int, optional
        Numbers of drafts γ in a path.
    latency : Latency, optional
        Cost of steps, on which the recommendation depends (`read_latency`). Without a latency there
        is no recommendation.
    level : float, optional
        Approximate probability that an interval covers its mean; above 0 and below 1.
    workers : int, optional
        Number of processes; −1 for one per core. The default is the number in
        `joblib.parallel_config`, or 1. The results do not depend on the number of processes.
    progress : callable, optional
        Function that receives a description, the number of finished blocks and the number of
        blocks. If omitted, a terminal shows a progress line after two seconds.

    Returns
    -------
    Summary
        The numbers of the report.

    Raises
    ------
    InvalidInputError
        If an argument, a file or a row of a file is invalid. The same error is raised if the
        folder cannot be written to, or has a report of other data, settings or versions.
    InvalidParameterError
        If `gammas`, `level` or `workers` is outside its range, or sampling parameters are given for
        lists of log-probabilities. The same error is raised if answers of the target were sampled
        in another way than `settings` says, or path rules are given for recorded scores.
    ProblemTooLargeError
        If a rule has no exact acceptance for a number of drafts, or a worker is ended from outside,
        for example because memory is full.
    MissingDependencyError
        If joblib, jinja2 or matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from otm.gain import from_files
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder)
    ...     target = rng.normal(size=(200, 50)).astype(np.float32)
    ...     np.save(path / "target.npy", target)
    ...     np.save(path / "draft.npy", target + rng.normal(size=target.shape).astype(np.float32))
    ...     np.save(path / "prompts.npy", np.repeat(np.arange(10), 20))
    ...     source = from_files(
    ...         path / "draft.npy", path / "target.npy", prompts=path / "prompts.npy"
    ...     )
    ...     summary = report(source, path / "report", latency=Latency.constant(0.1))
    ...     print(*sorted(file.name for file in (path / "report").iterdir()))
    positions report.html report.json
    >>> print(summary.recommendation.best.speedup)
    1.689 ± 0.028
    """
    folder = as_path(folder, "of a folder")
    chosen = settings or Settings()
    checks = {
        "a source, such as `from_files(draft, target)`": (source, hasattr(source, "bounds")),
        "Settings(...)": (chosen, isinstance(chosen, Settings)),
        "a Latency, such as Latency.constant(0.1) or `read_latency(file)`": (
            latency,
            latency is None or isinstance(latency, Latency),
        ),
    }
    for allowed, (value, is_valid) in checks.items():
        if not is_valid:
            raise InvalidInputError(f"a report does not accept {shown(value)}; give {allowed}")
    lengths = tuple(sorted({as_gamma(gamma) for gamma in gammas} - {0}))
    if not lengths:
        raise InvalidParameterError("`gammas` has no number above 0; give at least one")
    if lengths[-1] > MAX_GAMMA:
        raise InvalidParameterError(f"γ = {lengths[-1]}; a report accepts at most {MAX_GAMMA}")
    plain = replace(chosen, sampling=SamplingParameters(), draft_temperatures=())
    if isinstance(source, TopLogprobs) and chosen != plain:
        raise InvalidParameterError(
            "lists of log-probabilities already fix the sampling parameters; omit `sampling` and "
            "`draft_temperatures`"
        )
    check_drafts(source, chosen)
    level = as_level(level)
    if latency is not None:
        # raise now if the latency table does not cover these numbers
        latency.step_time(lengths[-1], chosen.ks[-1])
    # raise now, because the page needs these packages after a long computation
    check_installed("jinja2", "matplotlib")
    measured = measure_all(source, chosen, folder / "positions", workers=workers, progress=progress)
    sampled = sample_drafts(
        source, measured, chosen, lengths, folder / "positions", level=level, progress=progress
    )
    summary = summarise(source, measured, chosen, lengths, latency, sampled=sampled, level=level)
    text = json.dumps(summary.as_json(), ensure_ascii=False, allow_nan=False, indent=1)
    with writing(folder):
        write_atomically(folder / "report.json", f"{text}\n".encode())
        write_atomically(folder / "report.html", page(summary).encode())
    return summary


def page(summary: Summary) -> str:
    """Return a report as an HTML page that loads no other files."""
    from jinja2 import Environment, StrictUndefined

    template = (files("otm.gain.reports") / "page.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    trees = [row for row in summary.block_efficiency if row["K"] > 1]
    tables = {
        "acceptance": _tables(summary.acceptance, "k", ("rule",), "mean"),
        "differences": _tables(summary.differences, "k", ("of", "less"), "mean"),
        "chains": _tables(summary.block_efficiency, "gamma", ("rule", "K"), "chains"),
        "trees": _tables(trees, "gamma", ("rule", "K"), "tree"),
        "sampled_drafts": _tables(summary.sampled_drafts, "gamma", ("rule", "K"), "mean"),
        "efficiency_bounds": _tables(summary.efficiency_bounds, "gamma", ("K",), "bound"),
        "gains": _tables(summary.lossy, "k", ("setting",), "gain"),
        "costs": _tables(summary.lossy, "k", ("setting",), "total variation"),
    }
    return environment.from_string(template).render(
        summary=summary,
        verdict=verdict(summary),
        settings=summary.settings,
        most=summary.most_tokens,
        pictures=pictures(summary),
        main=summary.settings.draft_temperatures[0],
        tables=tables,
        shown=SHOWN,
    )


def _tables(
    rows: Sequence[TableRow], count: str, names: tuple[str, ...], value: str
) -> list[dict[str, Any]]:
    """Make a table per draft temperature, with a column for each value of `count`."""
    cells: dict[float, dict[tuple[str, ...], list[str]]] = {}
    for row in rows:
        table = cells.setdefault(row["draft temperature"], defaultdict(list))
        table[tuple(str(row[name]) for name in names)].append(str(row[value]))
    letter = {"gamma": "γ"}.get(count, count)
    counts = dict.fromkeys(f"{letter} = {row[count]}" for row in rows)
    return [
        {
            "temperature": temperature,
            "heading": [*names, *counts],
            "names": len(names),
            "rows": [[*labels, *line] for labels, line in table.items()],
        }
        for temperature, table in cells.items()
    ]


def pictures(summary: Summary) -> dict[str, str]:
    """Draw the tables of a summary as SVG elements, by name of the table."""
    drawings: dict[str, tuple[bool, Callable[[Any, Summary], None]]] = {
        "acceptance": (bool(summary.acceptance), _acceptance),
        "bounds": (bool(summary.bounds), _bounds),
        "efficiency": (bool(summary.block_efficiency), _efficiency),
        "lossy": (bool(summary.lossy), _lossy),
        "temperatures": (len(summary.settings.draft_temperatures) > 1, _temperatures),
    }
    figures, legend_lines = {}, 0
    with journal_style():
        for name, (has_rows, draw) in drawings.items():
            if has_rows:
                figures[name] = figure = blank_figure(HEIGHT)
                axes = figure.add_subplot()
                draw(axes, summary)
                legend_above(axes)
                _, labels = axes.get_legend_handles_labels()
                legend_lines = max(legend_lines, len(labels) // 2 + 1)
        # pictures in a row of the page need the same height
        for figure in figures.values():
            figure.set_figheight(HEIGHT + LINE * legend_lines)
        return {name: _svg(figure, name) for name, figure in figures.items()}


def _acceptance(axes: Any, summary: Summary) -> None:
    rows = _where(summary.acceptance, {"draft temperature": summary.settings.draft_temperatures[0]})
    _curves(axes, rows, "rule", summary.settings.rules, ("k", "mean"))
    axes.set(xlabel="number of drafts $k$", ylabel="acceptance probability")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _bounds(axes: Any, summary: Summary) -> None:
    ks = [row["k"] for row in summary.bounds]
    lower, upper = ([row[end].mean for row in summary.bounds] for end in ("lower", "upper"))
    axes.fill_between(ks, lower, upper, color=COLOURS[0], alpha=0.25, linewidth=0)
    axes.plot(ks, lower, color=COLOURS[0], marker="o", markersize=3, label="at least")
    axes.plot(ks, upper, color=COLOURS[0], marker="s", markersize=3, label="at most")
    axes.set(xlabel="number of drafts $k$", ylabel=r"mean of $\alpha_k$")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _efficiency(axes: Any, summary: Summary) -> None:
    main, rule = summary.settings.draft_temperatures[0], summary.settings.capped_rules[0]
    rows = _where(summary.block_efficiency, {"draft temperature": main, "rule": rule})
    ks = _some(summary.settings.ks)
    _curves(axes, rows, "K", ks, ("gamma", "chains"), label="$K = {}$")
    for i, k in enumerate(ks):
        if k > 1:
            trees = [(row["gamma"], row["tree"].mean) for row in rows if row["K"] == k]
            axes.plot(*zip(*trees, strict=True), color=COLOURS[i], linestyle=":")
    axes.set(xlabel=r"drafts of a path $\gamma$", ylabel="tokens per step")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _lossy(axes: Any, summary: Summary) -> None:
    main, ks = summary.settings.draft_temperatures[0], summary.settings.ks
    # for each k, the points of all settings
    points: list[Any] = []
    for i, k in enumerate(dict.fromkeys((ks[0], ks[-1]))):
        rows = _where(summary.lossy, {"draft temperature": main, "k": k})
        points.append([(row["total variation"].mean, row["gain"].mean) for row in rows])
        style = {"color": COLOURS[i], "linestyle": "none", "marker": MARKERS[i]}
        axes.plot(*zip(*points[-1], strict=True), markersize=4, label=f"$k = {k}$", **style)
    # one segment per setting, from its smallest k to its largest k
    segments = list(zip(points[0], points[-1], strict=True))
    for ends in segments:
        axes.plot(*zip(*ends, strict=True), color="#999999", linewidth=0.5, zorder=1)
    right, top = (1.1 * max(float(np.max(points, axis=(0, 1))[axis]), MIN_RANGE) for axis in (0, 1))
    axes.plot([0, top], [0, top], color="#777777", linestyle=":", label="upper bound")
    left, bottom = -0.04 * right, min(1.1 * float(np.min(points, axis=(0, 1))[1]), -0.06 * top)
    axes.set(xlabel="total variation from the target", ylabel="acceptance gained")
    axes.set(xlim=(left, right), ylim=(bottom, 1.1 * top))
    scale = np.divide(PLOT_SIZE, (right - left, 1.1 * top - bottom))
    origin = np.array([left, bottom])
    lines = [np.linspace(*ends, 20) for ends in (*segments, ((0, 0), (top, top)))]
    names = [str(row["setting"]).replace(" ε", "\nε") for row in rows]
    obstacles = (np.concatenate(lines) - origin) * scale
    corners = label_corners((np.array(points[0]) - origin) * scale, names, obstacles)
    for name, corner in zip(names, corners, strict=True):
        place = corner / scale + origin
        axes.annotate(name, place, fontsize=8, linespacing=1, color="#444444")


def label_corners(points: Floats, names: Sequence[str], obstacles: Floats) -> list[Floats]:
    """Return where each name's lower left corner goes, next to its point, in units of 1/72 inch.

    Each name takes the side on which it covers the fewest obstacles and earlier names.
    """
    corners: list[Floats] = []
    covered = obstacles
    for point, name in zip(points, names, strict=True):
        lines = name.split("\n")
        size = np.array([CHARACTER_SIZE[0] * max(map(len, lines)), CHARACTER_SIZE[1] * len(lines)])
        choices = [point + gap + size * share for gap, share in LABEL_SIDES]
        costs = [_covered(choice, size, covered) for choice in choices]
        corners.append(choices[int(np.argmin(costs))])
        grid = np.stack(np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 3)), axis=-1)
        covered = np.concatenate([covered, corners[-1] + size * grid.reshape(-1, 2)])
    return corners


def _covered(corner: Floats, size: Floats, points: Floats) -> int:
    """Count the points under a text; add 100 if the text leaves the plot."""
    inside = ((points > corner) & (points < corner + size)).all(axis=1)
    beyond = (corner < 0).any() or (corner + size > PLOT_SIZE).any()
    return int(inside.sum()) + 100 * int(beyond)


def _temperatures(axes: Any, summary: Summary) -> None:
    rows = _where(summary.acceptance, {"rule": summary.settings.rules[0]})
    rows.sort(key=lambda row: float(row["draft temperature"]))
    columns = "draft temperature", "mean"
    _curves(axes, rows, "k", _some(summary.settings.ks), columns, label="$k = {}$")
    axes.set(xlabel="temperature of the draft model", ylabel="acceptance probability")


def _where(rows: Sequence[TableRow], labels: TableRow) -> list[TableRow]:
    """Return the rows that have these labels."""
    return [row for row in rows if all(row[name] == label for name, label in labels.items())]


def _curves(
    axes: Any,
    rows: Sequence[TableRow],
    group: str,
    values: Sequence[Any],
    columns: tuple[str, str],
    *,
    label: str = "{}",
) -> None:
    """Draw a curve for each value in the column `group`, with intervals as bands.

    The first of `columns` is the horizontal axis, and the second has the means.
    """
    for i, value in enumerate(values):
        x, estimates = ([row[name] for row in rows if row[group] == value] for name in columns)
        means, low, high = np.transpose(estimates)
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(x, means, markersize=3, label=label.format(value), **style)
        if np.isfinite(high).all():
            axes.fill_between(x, low.clip(0), high, color=style["color"], alpha=0.15, linewidth=0)


def _some(ks: tuple[int, ...]) -> tuple[int, ...]:
    """Select at most `MAX_CURVES` evenly spaced numbers, including the first and the last."""
    if len(ks) <= MAX_CURVES:
        return ks
    return tuple(ks[round(i)] for i in np.linspace(0, len(ks) - 1, MAX_CURVES))


def _svg(figure: Any, name: str) -> str:
    """Write a figure as an SVG element of full width, whose ids are unique on the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(?<=[ "#])(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{name}">{rest}'
