"""The directive ``figure-gallery``: thumbnails of a paper's figures, each leading to all about it.

The folder ``figures/`` has a committed page with captions, pictures, data and where they come from.
It is copied into the site with what it shows, and nothing is computed.
"""

import shutil
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

from figures.registry import FIGURES, load
from figures.table import Table

FOLDER = Path(__file__).resolve().parents[1] / "figures"
DRAWN = FOLDER / "drawn"
THUMBNAIL = (480, 320)  # pixels, at most: two for each that a card has


class FigureGallery(SphinxDirective):
    """Show the figures of the paper whose name is the directive's argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Lay out the cards; name the figures that are not drawn."""
        names = [name for name in FIGURES if name.startswith(f"{self.arguments[0]}_")]
        if not names:
            raise self.error(f"no figure's name starts with {self.arguments[0]}_")
        for name in names:
            module = sys.modules[load(name).compute.__module__]
            self.env.note_dependency(str(module.__file__))
            self.env.note_dependency(str(DRAWN / f"{name}.png"))
        page = self.env.app.builder.get_target_uri(self.env.docname)
        folder = relative_uri(page, "figures/")
        cards = [_card(name, folder) for name in names if _is_drawn(name)]
        grid = f'<div class="figure-gallery">\n{"".join(cards)}</div>'
        missing = "; ".join(load(name).title for name in names if not _is_drawn(name))
        said = [nodes.paragraph("", f"Not drawn yet: {missing}.")] if missing else []
        return [nodes.raw("", grid, format="html"), *said]


def _is_drawn(name: str) -> bool:
    return (DRAWN / f"{name}.png").is_file()


def _card(name: str, folder: str) -> str:
    figure = load(name)
    title = escape(figure.caption(Table.read(DRAWN / f"{name}.csv")))
    return (
        f'<a href="{folder}index.html#{name}">'
        f'<img src="{folder}thumbnails/{name}.png" alt="" loading="lazy">'
        f'<span class="kind {figure.kind}">{figure.kind}</span> {title}</a>\n'
    )


def _copy_figures(app: Sphinx, failure: Exception | None) -> None:
    """Copy the page of the figures, their pictures and data, and add the thumbnails."""
    if failure or app.builder.format != "html" or not DRAWN.is_dir():
        return
    copy = app.outdir / "figures"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(DRAWN, copy / "drawn", ignore=shutil.ignore_patterns(".*", "*.pdf", "*.svg"))
    shutil.copy(FOLDER / "index.html", copy)
    (copy / "thumbnails").mkdir()
    for name in filter(_is_drawn, FIGURES):
        with Image.open(DRAWN / f"{name}.png") as picture:
            small = picture.convert("RGB")
        small.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
        small.quantize(64).save(copy / "thumbnails" / f"{name}.png", optimize=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive, and what it links to."""
    app.add_directive("figure-gallery", FigureGallery)
    app.connect("build-finished", _copy_figures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
