"""Settings of the documentation: `make docs` builds it, without the network once installed."""

import importlib.metadata
import re
import struct
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # gallery, figures

project = "OTM"
copyright = "The OTM authors"
version = release = importlib.metadata.version("otm")

extensions = [
    "gallery",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build"]

# Markdown, in the dialect that code hosts render too: $…$, and anchors made from headings.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # all scripts are run,
    "run_stale_examples": True,  # always: what they show is the package, which may have changed
    "within_subsection_order": [
        "first_steps.py",
        "two_models_research.py",
        "two_models_deployment.py",
        "compare_rules.py",
        "explicit_plans.py",
        "rollouts.py",
    ].index,
    "capture_repr": (),
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "write_computation_times": False,
    "min_reported_time": 60,  # seconds: how long a script took is not what it shows
    "show_signature": False,
}

default_role = "py:obj"  # `name` in a docstring is code, and a link where the name is documented
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = "OTM"
html_css_files = ["otm.css"]
html_copy_source = False


def _mathjax() -> Path:
    """MathJax in one file, from a package, so that neither the build nor a reader needs the web."""
    package = find_spec("sphinx-mathjax-offline")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("sphinx-mathjax-offline is missing: pip install '.[docs]'")
    return Path(package.origin).parent / "static" / "mathjax" / "tex-svg.js"


html_static_path = ["_static", str(_mathjax())]
mathjax_path = "tex-svg.js"


def _cite(*event: Any) -> None:
    """Link the citations [key]_ of a docstring to the bibliography; leave |H| the size of H."""
    lines: list[str] = event[-1]
    text = re.sub(r"\[(\w+)\]_", r":cite:p:`\1`", "\n".join(lines))
    text = re.sub(r"^\.\. \[\w+\] ", "-  ", text, flags=re.MULTILINE)
    if event[1] == "module":  # whose sections numpydoc leaves alone, and a page has many modules
        text = re.sub(r"^References\n-+$", ".. rubric:: References\n", text, flags=re.MULTILINE)
    lines[:] = text.replace("|H|", r"\|H\|").split("\n")


def _keep_punctuation(app: Sphinx, document: nodes.document) -> None:
    """Tie punctuation to the formula before it, or browsers would break lines between them."""
    for formula in list(document.findall(nodes.math)):
        after = formula.next_node(descend=False, siblings=True)
        mark = re.match(r"[^\s\w]+", after) if isinstance(after, nodes.Text) else None
        if mark:
            formula.parent.replace(after, nodes.Text(after[mark.end() :]))
            tied = nodes.inline("", classes=["nowrap"])
            formula.replace_self(tied)
            tied += [formula, nodes.Text(mark[0])]


def _mark_shapes(app: Sphinx, document: nodes.document) -> None:
    """Give wide and tall pictures and long table cells the classes that the style sheet uses."""
    for picture in document.findall(nodes.image):
        path = Path(app.srcdir, picture["uri"])
        if path.suffix == ".png" and path.is_file():
            width, height = struct.unpack(">II", path.read_bytes()[16:24])
            picture["classes"] += ["wide"] * (width > 2 * height) + ["tall"] * (height > width)
    for cell in document.findall(nodes.entry):
        if len(cell.astext()) > 40:
            cell["classes"].append("long")


def setup(app: Sphinx) -> None:
    """Connect the functions above; docstrings are changed before numpydoc reads them."""
    app.connect("autodoc-process-docstring", _cite, priority=400)
    app.connect("doctree-read", _keep_punctuation)
    app.connect("doctree-read", _mark_shapes)
