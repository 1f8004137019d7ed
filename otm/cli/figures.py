"""``otm figures``: compute and draw the figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from otm.cli.output import print_json
from otm.errors import InvalidParameterError

__all__ = ["figures"]


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Figures to draw; all if none is named.", metavar="NAME"),
    ] = None,
    *,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write into.")] = Path(
        "figures"
    ),
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the benchmarks' records.")
    ] = Path("benchmarks/results"),
    full: Annotated[
        bool, typer.Option("--full", help="All the data, where a figure has a longer version.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes; one for each core if left out.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Print the names of all figures and draw nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute and draw figures, and the page that shows them (index.html)."""
    from otm.figures.gallery import write_gallery
    from otm.figures.registry import FIGURES, load
    from otm.figures.run import write_all

    if listed:
        print_json(list(FIGURES)) if json else print("\n".join(FIGURES))
        return
    if jobs is not None and jobs < 1:
        raise InvalidParameterError(f"--jobs {jobs}: at least one process is needed")
    for name in names or ():
        load(name)  # a misspelt name is an error before anything is drawn
    chosen = list(dict.fromkeys(names or FIGURES))
    output.mkdir(parents=True, exist_ok=True)
    drawn = []
    for outcome, seconds in write_all(
        chosen, output, results, full=full, jobs=jobs or os.cpu_count() or 1
    ):
        drawn.append({"figure": outcome.name, "state": outcome.state, "seconds": round(seconds, 1)})
        if not json:
            print(f"{outcome.name:<28} {outcome.state:<12} {seconds:6.1f} s", flush=True)
    page = write_gallery(output)
    print_json({"figures": drawn, "page": str(page)}) if json else print(page)
