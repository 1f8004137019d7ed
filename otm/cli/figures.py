"""``otm figures``: compute and draw the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from otm.cli.output import print_json


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
    from otm.figures.registry import FIGURES
    from otm.figures.run import Done, draw_all

    if listed:
        print_json(list(FIGURES)) if json else print("\n".join(FIGURES))
        return
    drawn = []

    def tell(done: Done) -> None:
        name, state = done.outcome.name, done.outcome.state
        drawn.append({"figure": name, "state": state, "seconds": round(done.seconds, 1)})
        if not json:
            print(done, flush=True)

    page = draw_all(names or (), output, results, full=full, jobs=jobs, tell=tell)
    print_json({"figures": drawn, "page": str(page)}) if json else print(page)
