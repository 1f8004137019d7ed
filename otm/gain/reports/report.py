"""The report: what two models would gain from drafts, as JSON and as one HTML page.

`report` reads pairs of distributions from a source (`from_files`, `from_top_logprobs`,
`from_models`) and computes at every position what every rule accepts, without decoding.  It goes on
where it was interrupted, and uses as many cores or machines as it is given.
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
from otm._core.files.paths import AnyPath, as_path, write_whole
from otm._core.means import Floats
from otm._core.numbers import as_level
from otm._core.optional import check_installed
from otm.decoding.policies import as_gamma
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.latency import Latency
from otm.gain.reports.blocks import measure_all, writing
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.gain.reports.summary import Summary, TableRow, summarise
from otm.gain.reports.top_lists import TopLogprobs
from otm.gain.reports.verdict import verdict

MAX_GAMMA = 1000
"""Largest γ of a report: tokens of a step are computed for all γ up to it."""

SHOWN = 12
"""Candidates of a recommendation on the page; all are in the JSON file."""

HEIGHT = 2.4
"""Of a picture, in inches."""

LINE = 0.16
"""Of a line of its legend."""

PLOT_SIZE = 195, 130
"""Width and height inside the axes of a picture, in units of 1/72 inch; approximate."""

CHARACTER_SIZE = 4.3, 9.5
"""Width and height of a character of a label, in the same unit."""

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
"""Places of a label at its point: a distance, and a share of the label's size."""

MIN_RANGE = 1e-3
"""Smallest range of an axis, for settings that change almost no output."""

MAX_CURVES = 4


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
    """Compute what drafts would gain, and write `report.json` and `report.html`.

    Parameters
    ----------
    source : Source
        Positions, from `from_files`, `from_top_logprobs` or `from_models`.
    folder : str or Path
        Where to write.  What has been computed of the positions is kept in its folder "positions",
        so that a report that was interrupted goes on; with other gammas, latencies or levels
        nothing is computed again.
    settings : Settings, optional
        Rules, numbers of drafts, temperatures, lossy settings.
    gammas : sequence of int, optional
        Most drafts γ of a path.
    latency : Latency, optional
        What steps cost, which decides what is recommended (`read_latency`).
    level : float, optional
        Probability that an interval covers its mean, nearly; above 0 and below 1.
    workers : int, optional
        Number of processes, −1 for one a core; left out, what `joblib.parallel_config` says, or 1.
        The numbers do not depend on it.
    progress : callable, optional
        Takes what is worked on, its number and how many there are: the finished blocks.  If left
        out, a report of more than two seconds says so in a line on standard error, on terminals
        only.

    Returns
    -------
    Summary
        What was written.

    Raises
    ------
    InvalidInputError
        If an argument, a file or a row in it cannot be used, the folder cannot be written to, or it
        holds a report of other versions; the message names it.
    InvalidParameterError
        If gammas, level or workers are outside their ranges, or a sampling is given beside lists.
    ProblemTooLargeError
        If a rule of the settings has no exact acceptance for so many drafts, or a worker is ended
        from outside, as systems do that run out of memory.
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
    wanted = {
        "a source, such as `from_files(draft, target)`": (source, hasattr(source, "bounds")),
        "Settings(...)": (chosen, isinstance(chosen, Settings)),
        "a Latency, such as Latency.constant(0.1) or `read_latency(file)`": (
            latency,
            latency is None or isinstance(latency, Latency),
        ),
    }
    for instead, (given, right) in wanted.items():
        if not right:
            raise InvalidInputError(f"a report was given {shown(given)}; give {instead}")
    lengths = tuple(sorted({as_gamma(gamma) for gamma in gammas} - {0}))
    if not lengths:
        raise InvalidParameterError("gammas has no number above 0; give at least one")
    if lengths[-1] > MAX_GAMMA:
        raise InvalidParameterError(f"γ = {lengths[-1]}; a report takes at most {MAX_GAMMA}")
    plain = replace(chosen, sampling=SamplingParameters(), draft_temperatures=())
    if isinstance(source, TopLogprobs) and chosen != plain:
        raise InvalidParameterError(
            "lists of log-probabilities hold the distributions that were sampled from; give "
            "neither a sampling nor temperatures beside them"
        )
    level = as_level(level)
    if latency is not None:
        latency.step_time(lengths[-1], chosen.ks[-1])  # refuses what the table does not reach
    check_installed("jinja2", "matplotlib")  # or no page could be written in the end
    measured = measure_all(source, chosen, folder / "positions", workers=workers, progress=progress)
    summary = summarise(source, measured, chosen, lengths, latency, level=level)
    text = json.dumps(summary.as_json(), ensure_ascii=False, allow_nan=False, indent=1)
    with writing(folder):
        write_whole(folder / "report.json", f"{text}\n".encode())
        write_whole(folder / "report.html", page(summary).encode())
    return summary


def page(summary: Summary) -> str:
    """Return a report as an HTML page that needs nothing else."""
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
    """Tables, one for each draft temperature, with a column for each count: heading and rows."""
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
    """Draw the tables of a summary: by name of the table, texts that begin with ``<svg``."""
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
        # pictures of the same height stand level in a row of the page
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
    points: list[Any] = []  # for each k, the points of all settings
    for i, k in enumerate(dict.fromkeys((ks[0], ks[-1]))):
        rows = _where(summary.lossy, {"draft temperature": main, "k": k})
        points.append([(row["total variation"].mean, row["gain"].mean) for row in rows])
        style = {"color": COLOURS[i], "linestyle": "none", "marker": MARKERS[i]}
        axes.plot(*zip(*points[-1], strict=True), markersize=4, label=f"$k = {k}$", **style)
    for ends in zip(*points, strict=True):  # the points of one setting
        axes.plot(*zip(*ends, strict=True), color="#999999", linewidth=0.5, zorder=1)
    right, top = (1.1 * max(float(np.max(points, axis=(0, 1))[axis]), MIN_RANGE) for axis in (0, 1))
    axes.plot([0, top], [0, top], color="#777777", linestyle=":", label="upper bound")
    left, bottom = -0.04 * right, min(float(np.min(points, axis=(0, 1))[1]), -0.06 * top)
    axes.set(xlabel="total variation from the target", ylabel="acceptance gained")
    axes.set(xlim=(left, right), ylim=(bottom, 1.1 * top))
    scale = np.divide(PLOT_SIZE, (right - left, 1.1 * top - bottom))
    origin = np.array([left, bottom])
    segments = (*zip(*points, strict=True), ((0, 0), (top, top)))
    drawn = [np.linspace(start, stop, 20) for start, stop in segments]
    names = [str(row["setting"]).replace(" ε", "\nε") for row in rows]
    obstacles = (np.concatenate(drawn) - origin) * scale
    corners = label_corners((np.array(points[0]) - origin) * scale, names, obstacles)
    for name, corner in zip(names, corners, strict=True):
        place = corner / scale + origin
        axes.annotate(name, place, fontsize=8, linespacing=1, color="#444444")


def label_corners(points: Floats, names: Sequence[str], obstacles: Floats) -> list[Floats]:
    """Return the lower left corner of each name beside its point, in units of 1/72 inch.

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
    """Count the points under a text; a text beyond the plot counts as many."""
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
    """Rows with these labels."""
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
    """Draw the means in one column over another, with intervals as bands: a curve for each value.

    The values are those of the column `group`.
    """
    for i, value in enumerate(values):
        x, estimates = ([row[name] for row in rows if row[group] == value] for name in columns)
        means, low, high = np.transpose(estimates)
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(x, means, markersize=3, label=label.format(value), **style)
        if np.isfinite(high).all():
            axes.fill_between(x, low.clip(0), high, color=style["color"], alpha=0.15, linewidth=0)


def _some(ks: tuple[int, ...]) -> tuple[int, ...]:
    """Few of many numbers, the first and the last among them."""
    if len(ks) <= MAX_CURVES:
        return ks
    return tuple(ks[round(i)] for i in np.linspace(0, len(ks) - 1, MAX_CURVES))


def _svg(figure: Any, name: str) -> str:
    """Write an element of a page: as wide as its place, with names of its own for its parts."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(?<=[ "#])(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{name}">{rest}'
