"""Claims of pages and messages, held against the records and the conditions that they need."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from otm.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted(
    path
    for place in ("*.md", "docs/*.md", "examples/*.py", "figures/**/*.py", "figures/index.html")
    for path in ROOT.glob(place)
    if path.name != "CHANGELOG.md"
) + sorted(path for end in ("py", "html") for path in (ROOT / "otm").rglob(f"*.{end}"))
"""What users read.  The pages of theory say at their top that lossless means memoryless."""

UNCONDITIONAL = re.compile(
    r"\b(?:no|every|any) lossless (?:verifier|step)\b(?! has\b| of K i.i.d. chains \[without)"
    r"|\bno (?:lossless )?(?:verifier|rule) (?:can )?exceeds?\b(?! the)",
    re.IGNORECASE,
)
"""A bound on several tokens that is stated without the condition that it needs."""

OF_LOSSY_RULES = {"lossy_texts.py", "index.html"}
"""Which state a frontier of rules that are not lossless, for one token."""


def record(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def unconditional(text: str) -> list[str]:
    """List the bounds of a text that hold for memoryless verifiers alone and do not say so."""
    return [" ".join(found.split()) for found in UNCONDITIONAL.findall(" ".join(text.split()))]


def test_bounds_say_that_they_are_of_memoryless_verifiers() -> None:
    """Bug: "no lossless verifier exceeds", which is false for one with a state (Theorem 19.3)."""
    assert len(TEXTS) > 300
    found = {path.name: unconditional(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert {name for name, claims in found.items() if claims} <= OF_LOSSY_RULES
    for name in OF_LOSSY_RULES:
        assert set(found[name]) <= {"no rule exceeds"}


@pytest.mark.parametrize(
    ("claim", "is_bound"),
    [
        ("no lossless verifier exceeds 4.2 tokens a step", True),
        ("No lossless\nverifier can have more", True),
        ("an upper bound for every lossless step", True),
        ("what no rule can exceed", True),
        ("no memoryless lossless verifier exceeds 4.2 tokens a step", False),
        ("without which no verifier is called lossless", False),
    ],
)
def test_the_search_for_such_bounds_can_fail(claim: str, is_bound: bool) -> None:
    assert bool(unconditional(claim)) == is_bound


def test_messages_of_a_bound_say_so() -> None:
    """Bug: a condition that stands on the page and not in what the command and the report print."""
    for name in (
        "cli/report.py",
        "gain/recommendation.py",
        "gain/reports/page.html",
        "gain/reports/summary.py",
    ):
        assert re.search(r"memoryless lossless\s+verifier", page(f"otm/{name}")), name


def row(table: str, *cells: str) -> str:
    """Find the row that begins with these cells."""
    start = "| " + " | ".join(cells) + " |"
    (line,) = (line for line in table.splitlines() if line.startswith(start))
    return line


def test_how_to_choose_gives_the_numbers_of_its_own_tables() -> None:
    """Bug: times of an earlier measurement beside a table of a later one."""
    found, text = record("rules"), page("docs/how-to-choose.md")
    one_token = row(text, "k drafts for one token only, both distributions at hand")
    optimal, k_seq = (found["acceptance"][name]["4"] for name in ("optimal", "k-Seq"))
    assert f"accepts {optimal:.3f} instead of {k_seq:.3f} for k = 4" in one_token
    optimal, k_seq = (found["cost"][name]["build ms"] for name in ("optimal", "k-Seq"))
    assert f"{optimal:.3g} ms against {k_seq:.3g} ms to prepare" in one_token
    greedy, one = (found["cost"][name]["build ms"] for name in ("greedy", "maximal coupling"))
    assert f"take {greedy:.1f} ms to build at 32,000 tokens, where those for one draft take " in (
        " ".join(text.split())
    )
    assert f"one draft take {one:.1f} ([What they cost]" in " ".join(text.split())


def test_how_to_choose_counts_the_rules_of_its_table() -> None:
    lossless = [rule for rule in RULES.values() if rule.lossless]
    plans = [rule for rule in lossless if rule.plan]
    words = {20: "Twenty", 14: "fourteen", 6: "six"}
    text = " ".join(page("docs/how-to-choose.md").split())
    assert f"{words[len(lossless)]} are lossless: the {words[len(plans)]} *plans*" in text
    assert f"and {words[len(lossless) - len(plans)]} that are only verifiers" in text


def test_the_page_of_engines_shows_its_record() -> None:
    """Bug: verdicts and times of another run, or times that name no processor."""
    found, text = record("vllm"), page("docs/engines.md")
    machine = found["machine"]
    assert f"On {machine['cores']} cores of {machine['cpu']}, vLLM " in text
    for served in found["servers"]:
        report, name = served["report"], served["server"].replace("transformers", "transformers, ")
        line = next(line for line in text.splitlines() if line.startswith(f"| {name}"))
        assert f"| {report['verdict']} | {report['requests']:,} |" in line
        if report["verdict"] == "not lossless":
            stated = re.search(r"e-value (\d)·10\^(\d+)", line)
            assert stated
            value = int(stated[1]) * 10 ** int(stated[2])
            assert value <= 10 ** report["log10_e_value"] < 10 * value
        else:
            assert f"| {report['tv_bound']:.3f} |" in line
    for step in found["step"]:
        times = [
            f"{step[of]['ms']:.0f} ({step[of]['tokens']:.2f})" for of in ("vLLM", "chain", "block")
        ]
        assert row(text, step["drafts"], *times)


def test_metadata_claim_no_system_that_nothing_ran_on() -> None:
    """Bug: "OS Independent", and macOS and Windows untested."""
    project = tomllib.loads(page("pyproject.toml"))["project"]
    systems = [x for x in project["classifiers"] if x.startswith("Operating System")]
    untested = re.search(r"Not tested:.*?macOS; Windows\.", page("docs/support.md"), re.DOTALL)
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert untested


def test_the_address_for_reports_stands_in_one_place() -> None:
    """Bug: an address, or the lack of one, that two files say differently."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
    assert [name for name, text in texts.items() if "REPORT-TO:" in text] == ["SECURITY.md"]
    assert "SECURITY.md#how-to-report-a-problem" in texts["CONTRIBUTING.md"]
    assert not [name for name, text in texts.items() if "page of this repository" in text]


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_no_page_says_how_long_it_takes_to_read(name: str) -> None:
    """Bug: "ten minutes" for 2,700 words with code."""
    assert "ten minutes" not in page(name)
