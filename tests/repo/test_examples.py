"""The examples run as they stand and print what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "first_steps.py": [
        r"α +0\.738$",
        r"^The certificate holds\.$",
        r"^  k = 1  alpha = 0\.450000  #+$",
        r"^  k = 8  alpha = 1\.000000  #+$",
        r"^Drafted \[.*\], output '\w+': (draft \d|no draft) accepted\.$",
        r"^  upper 0\.7380  ᾱ_k  \(Lemma 3\)$",
    ],
    "compare_rules.py": [
        r"^50,000 tokens",
        *(rf"^{name} +\d +0\.\d{{4}} +0\.\d{{3}} +\de-1\d " for name in ("maximal coupling",)),
        *(
            rf"^{name} +8 +0\.\d{{4}} +0\.\d{{3}} +\de-1\d "
            for name in ("recursive rejection", "k-Seq", "OTM-k")
        ),
    ],
    "two_models_deployment.py": [
        r"^generate samples with T 1$",
        r"^\d+ setups, 373 contexts of 8 prompts, 95 % intervals$",
        r"^  block efficiency  [34]\.\d{3} tokens for each call$",
        r"samples with T 1, top-k 5, and the report assumed T 1: ",
        r"^the same greedy text: True$",
        r"^On this machine drafts (pay|are not certain to pay): .*, K = [14], γ = [24]$",
    ],
    "explicit_plans.py": [
        r"^p = Ber\(1/4\), q = Ber\(3/4\)$",
        r"k = 2  acceptance 11/16 +=",
        r"^p = U\(12\), q = U\(4\)$",
        r"k = 3  acceptance 19/27 +=",
    ],
}

AS_NOTEBOOK = {"two_models_research.py"}
"""Examples that test_notebooks.py runs."""

NO_WINDOW = "ignore:FigureCanvasAgg is non-interactive:UserWarning"


def run(name: str) -> str:
    """Run an example as a user would, with warnings as errors, and return what it prints."""
    search_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    utf8_no_window = {"PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", NO_WINDOW, f"examples/{name}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": search_path, **utf8_no_window},
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout


def test_every_example_is_listed_here() -> None:
    """Bug: a new example that nobody runs."""
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, *AS_NOTEBOOK}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str) -> None:
    """Bug: an example that has fallen behind the package."""
    printed = run(name)
    for line in EXAMPLES[name]:
        assert re.search(line, printed, flags=re.MULTILINE), line
    assert "False" not in printed


def test_the_compared_rules_come_in_ascending_order() -> None:
    """Bug: a rule set up with another's laws; the order is what the example is there to show."""
    rows = re.findall(r"^\S.*? +\d +(0\.\d{4}) ", run("compare_rules.py"), flags=re.MULTILINE)
    assert len(rows) == 4
    assert rows == sorted(rows)
