"""``otm models``: list the models that can be downloaded, and download some of them."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Argument

from otm.cli.output import JsonOption, print_json, print_table
from otm.models.downloads.catalogue import CATALOGUE, named
from otm.models.downloads.folder import download, folder_if_complete, models_folder

COLUMNS = "name", "model", "licence", "download", "on disk", "here"


def models(
    *,
    names: Annotated[
        list[str] | None, Argument(metavar="[NAME]...", help="Models to download.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List downloadable models, or download the named ones.

    Downloaded models are real language models for tests and measurements, small enough for a CPU.
    They come from the package index that pip uses; OTM does not redistribute them. They are kept in
    ~/.cache/otm/models, or in the folder that OTM_MODELS names, and need no network afterwards.
    Wherever a command takes the name of a Hugging Face model, it takes these names too.
    """
    chosen = [named(name) for name in names or ()]
    for model in chosen:
        # the terms must be known before the download
        print(f"{model.name}: {model.licence}", file=sys.stderr)
        download(model.name)
    listed = chosen or CATALOGUE
    folders = {model.name: folder_if_complete(model) for model in listed}
    if json:
        print_json(
            [
                {
                    "name": model.name,
                    "summary": model.summary,
                    "licence": model.licence,
                    "packages": [f"{x.package}=={x.version}" for x in model.wheels],
                    "sha256": model.sha256,
                    "folder": str(folders[model.name] or "") or None,
                }
                for model in listed
            ]
        )
        return
    rows = []
    for model in listed:
        sizes = model.download_size, 4 * model.weights
        of_model = [f"{size / 1e6:,.0f} MB" for size in sizes]
        stored = "yes" if folders[model.name] else "no"
        rows.append([model.name, model.summary, model.licence, *of_model, stored])
    print_table(COLUMNS, rows)
    print(f"\nFolder: {models_folder()}")
