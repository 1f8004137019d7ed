"""The directive ``figure-gallery``: thumbnails of a paper's figures, each leading to all about it.

The committed folder ``figures/`` has a page with captions, pictures, data and where they come from.
It is copied into the site as it is, and nothing is computed.
"""

import shutil
from html import escape
from pathlib import Path

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

from otm.figures.captions import caption_of
from otm.figures.registry import FIGURES, load

DRAWN = Path(__file__).resolve().parents[1] / "figures"
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
            self.env.note_dependency(str(load(name).__file__))
            self.env.note_dependency(str(DRAWN / f"{name}.png"))
        page = self.env.app.builder.get_target_uri(self.env.docname)
        folder = relative_uri(page, "figures/")
        cards = [_card(name, folder) for name in names if _is_drawn(name)]
        grid = f'<div class="figure-gallery">\n{"".join(cards)}</div>'
        missing = "; ".join(caption_of(name).title for name in names if not _is_drawn(name))
        said = [nodes.paragraph("", f"Not drawn yet: {missing}.")] if missing else []
        return [nodes.raw("", grid, format="html"), *said]


def _is_drawn(name: str) -> bool:
    return (DRAWN / f"{name}.png").is_file()


def _card(name: str, folder: str) -> str:
    kind = load(name).KIND
    return (
        f'<a href="{folder}index.html#{name}">'
        f'<img src="{folder}thumbnails/{name}.png" alt="" loading="lazy">'
        f'<span class="kind {kind}">{kind}</span> {escape(caption_of(name).title)}</a>\n'
    )


def _copy_figures(app: Sphinx, failure: Exception | None) -> None:
    """Copy the folder of the figures without its cache, and add the thumbnails."""
    if failure or app.builder.format != "html" or not DRAWN.is_dir():
        return
    copy = app.outdir / "figures"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(DRAWN, copy, ignore=shutil.ignore_patterns(".*"))
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
