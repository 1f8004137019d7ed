"""The check of types finds mistakes in snippets, in their line, and lets right ones pass."""

from __future__ import annotations

from pathlib import Path

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
    lines = sessions.splitlines()
    assert lines[3:6] == [
        "import otm",
        "solution = otm.solve([0.5, 0.5], [0.25, 0.75], k=2)",
        "solution.alpha",
    ]
    assert lines[7:9] == ["for k in (1, 2):", "    print(otm.alpha([0.5, 0.5], [0.25, 0.75], k))"]
    assert [line for line in lines if line] == [*lines[3:6], *lines[7:9]]
    assert blocks.splitlines()[13:16] == [
        "from otm.decoding import SamplingParameters",
        "",
        "sampling = SamplingParameters(temperature=0.5)",
    ]
    assert "within" not in sessions + blocks


def test_planted_mistakes_are_found_in_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a renamed attribute, a missing name or a wrong argument stays on a page."""
    snippets = load("docs/snippets.py")
    monkeypatch.setattr(snippets, "FOLDER", ROOT / "docs" / "_build" / "test" / "snippets")
    planted = (
        PAGE.replace("solution.alpha\n", "solution.alhpa\n")
        .replace("0.75], k=2)", "0.75], k=2, methd='auto')")
        .replace("import Sampling", "import Samplings")
    )
    place = ROOT / "docs" / "_build" / "test"
    place.mkdir(parents=True, exist_ok=True)
    (place / "planted.md").write_text(planted, encoding="utf-8")
    (place / "right.md").write_text(PAGE, encoding="utf-8")
    try:
        errors = snippets.check([place / "planted.md", place / "right.md"])
    finally:
        for path in (*snippets.FOLDER.glob("*.py"), *place.glob("*.md")):
            path.unlink()
    places = [error.split(": ")[0] for error in errors]
    name = "docs/_build/test/planted.md"
    assert sorted(places) == [f"{name}:14", f"{name}:5", f"{name}:6"]
