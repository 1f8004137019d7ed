"""The galleries of the documentation site: of the figures, and of the examples."""

from __future__ import annotations

import re
from pathlib import Path

from figures.registry import FIGURES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_every_figure_is_in_one_gallery() -> None:
    """Catches a paper whose figures no page shows."""
    text = (DOCS / "figures.md").read_text(encoding="utf-8")
    papers = re.findall(r"^```\{figure-gallery\} (\w+)$", text, flags=re.MULTILINE)
    assert sorted(papers) == sorted({name.partition("_")[0] for name in FIGURES})


def test_every_committed_picture_has_its_place_on_the_page_that_thumbnails_lead_to() -> None:
    """Catches a page that is older than the figures."""
    page = (ROOT / "figures" / "index.html").read_text(encoding="utf-8")
    drawn = {path.stem for path in (ROOT / "figures" / "drawn").glob("*.png")}
    assert drawn
    assert drawn <= set(re.findall(r'<article class="card" id="(\w+)">', page))
    assert drawn <= set(FIGURES)


def test_the_order_of_the_examples_names_all_of_them() -> None:
    """Catches a new example, which the build of the site would refuse without saying why."""
    settings = (DOCS / "conf.py").read_text(encoding="utf-8")
    (order,) = re.findall(r'"within_subsection_order": \[(.*?)\]\.index', settings, flags=re.DOTALL)
    scripts = {path.name for path in ROOT.glob("examples/*.py")}
    assert set(re.findall(r'"(.+?)"', order)) == scripts
