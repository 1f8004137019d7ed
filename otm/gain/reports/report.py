"""The report: the estimated gain of two models from drafts, as JSON and as one HTML page.

`report` reads pairs of distributions from a source (`from_files`, `from_top_logprobs`,
`from_models`). From these pairs, it computes the acceptance of every rule at every position,
without decoding. Called again, an interrupted report continues, on any number of cores or machines.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from otm._core.display.progress import Progress
from otm._core.display.text import shown
from otm._core.files.paths import AnyPath, as_path, write_atomically
from otm._core.numbers import as_level
from otm._core.optional import check_installed
from otm.decoding.policies import as_gamma
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.latency import Latency
from otm.gain.reports.blocks import measure_all, writing
from otm.gain.reports.pictures import pictures
from otm.gain.reports.sampled_drafts import check_drafts, sample_drafts
from otm.gain.reports.sampled_tables import TableRow
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.gain.reports.summary import Summary, summarise
from otm.gain.reports.top_lists import TopLogprobs
from otm.gain.reports.verdict import verdict

MAX_GAMMA = 1000
"""Largest γ of a report; tokens per step are computed for all smaller γ too."""

SHOWN = 12
"""Number of candidates on the page; the JSON file has all candidates."""


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
        Cost of steps (`read_latency`). Without a latency there is no recommendation.
    level : float, optional
        Approximate probability that an interval covers its mean; above 0 and below 1.
    workers : int, optional
        Number of processes; −1 for one per core. The default is the number in
        `joblib.parallel_config`, or 1. The results do not depend on the number of processes.
    progress : callable, optional
        Function of a description, the number of finished blocks and that of all blocks. By default
        a terminal shows a progress line after two seconds.

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
        If `gammas`, `level` or `workers` is outside its range, or if `settings` do not fit the
        source: sampling parameters or path rules for recorded scores, or for other answers.
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
        "a Latency, as by `read_latency(file)`": (latency, isinstance(latency, Latency | None)),
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
        latency.step_time(lengths[-1], chosen.ks[-1])  # raises if the table lacks these numbers
    check_installed("jinja2", "matplotlib")  # the page needs them after a long computation
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
        "sampled_bounds": _tables(summary.sampled_bounds, "gamma", ("K",), "bound"),
        "sampled_trees": _tables(summary.sampled_trees, "gamma", ("rule", "nodes"), "mean"),
        "tree_differences": _tables(
            summary.tree_differences, "gamma", ("of", "nodes", "less"), "mean"
        ),
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
