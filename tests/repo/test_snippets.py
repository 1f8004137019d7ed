"""The check of types finds mistakes in snippets, in their line, and lets right ones pass."""

import pytest

from tests.repo.pages import ROOT, load

pytest.importorskip("mypy")

PAGE = """# A page

```python
>>> import otm
>>> solution = otm.solve([0.5, 0.5], [0.25, 0.75], k=2)
>>> solution.alpha
1.0
>>> for k in (1, 2):
...     print(otm.alpha([0.5, 0.5], [0.25, 0.75], k))
0.75
```

```python
from otm.decoding import SamplingParameters

sampling = SamplingParameters(temperature=0.5)
```

```python
    within(a, function)
```
"""


def test_each_line_of_code_keeps_its_place() -> None:
    """Bug: output as code, a lost line, or a fragment of a function that cannot be read."""
    sessions, blocks = load("docs/snippets.py").code_of_page(PAGE)
    page = PAGE.splitlines()
    typed = {i: line[4:] for i, line in enumerate(page) if line.startswith((">>>", "..."))}
    assert {i: line for i, line in enumerate(sessions.splitlines()) if line} == typed
    assert blocks.splitlines()[13:16] == page[13:16]
    assert "within" not in sessions + blocks


def test_planted_mistakes_are_found_in_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a renamed attribute, a missing name or a wrong argument stays on a page."""
    snippets, place = load("docs/snippets.py"), ROOT / "docs" / "_build" / "test"
    monkeypatch.setattr(snippets, "FOLDER", place / "snippets")
    planted = (
        PAGE.replace("solution.alpha\n", "solution.alhpa\n")
        .replace("0.75], k=2)", "0.75], k=2, methd='auto')")
        .replace("import Sampling", "import Samplings")
    )
    place.mkdir(parents=True, exist_ok=True)
    try:
        for name, text in (("planted", planted), ("right", PAGE)):
            (place / f"{name}.md").write_text(text, encoding="utf-8")
        errors = snippets.check([place / "planted.md", place / "right.md"])
    finally:
        for path in (*snippets.FOLDER.glob("*.py"), *place.glob("*.md")):
            path.unlink()
    places = sorted(error.split(": ")[0] for error in errors)
    assert places == [f"docs/_build/test/planted.md:{line}" for line in (14, 5, 6)]
