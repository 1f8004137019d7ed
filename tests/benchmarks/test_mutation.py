"""The command that changes the code to see whether a test notices, and what it found."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import FunctionType

import otm.coupling.maximal
import otm.optimum.cut
from benchmarks.mutation.__main__ import MODULES
from benchmarks.mutation.equivalent import EQUIVALENT
from benchmarks.mutation.mutants import functions_of, mutants_of
from otm.optimum.cut import cuts_in_bins, optimal_value
from otm.testing.instances import instance

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
RESULT = json.loads((ROOT / "benchmarks/results/mutation.json").read_text(encoding="utf-8"))


def test_functions_change_in_many_small_ways() -> None:
    found = {mutant.after for mutant in mutants_of(otm.coupling.maximal)}
    assert "if self.problem.k == 1:" in found, "a comparison"
    assert "if self.problem.k != 2:" in found, "a constant"
    assert "if self.rho in (None, 1):" in found
    assert "pass" in found, "a statement left out"
    assert "object.__setattr__(self, 'rho', 0 * self.problem.draft[0] + 1)" in found, "a call"
    assert "object.__setattr__('rho', self, as_number(0 * self.problem.draft[0] + 1))" in found


def test_a_mutant_does_what_it_says_and_the_function_stays() -> None:
    functions = functions_of(otm.optimum.cut)
    before = {name: function.__code__ for name, function in functions.items()}
    (mutant,) = (
        mutant
        for mutant in mutants_of(otm.optimum.cut)
        if mutant.name == "cuts_in_bins" and mutant.after == "sizes.append(int(values.argmax()))"
    )
    changed = FunctionType(mutant.code, cuts_in_bins.__globals__)
    problem = instance("four tokens")
    assert changed(problem.bins, [problem.k])[0][0] > optimal_value(problem)
    assert {name: f.__code__ for name, f in functions.items()} == before


def test_methods_and_properties_are_found() -> None:
    assert set(functions_of(otm.coupling.maximal)) == {"MaximalCoupling.__post_init__"}
    names = functions_of(otm.coupling.plan)
    assert {"TransportPlan.select", "TransportPlan.drafts", "Selection.__iter__"} <= set(names)


def test_the_page_has_the_numbers_of_the_last_run() -> None:
    """Bug: a page that shows an earlier run."""
    judged = RESULT["tried"] - RESULT["equivalent"]
    text = " ".join(PAGE.split())
    assert RESULT["tried"] == RESULT["mutants"]
    assert f"All {RESULT['mutants']:,} mutants were tried. {RESULT['equivalent']} mutants" in text
    assert f"{judged:,}, {RESULT['killed']:,} were killed: {RESULT['score']:.1%}" in text
    assert f"{RESULT['killed by time']} by a test that took" in text
    assert f"the score would be {RESULT['killed'] / RESULT['mutants']:.1%}" in text


def test_what_is_left_is_explained_and_little() -> None:
    """Bug: a test that goes, and a score that falls."""
    assert RESULT["score"] >= 0.99
    assert len(RESULT["survivors"]) == 2, "the page explains two"


def test_what_is_called_equivalent_exists() -> None:
    """Bug: a reason that outlives the code that it is about."""
    names: dict[str, set[str]] = {}
    for key in EQUIVALENT:
        module, name, _ = key.split(":", 2)
        names.setdefault(module, set()).add(name)
    assert names.keys() <= {f"otm.{name}" for name in MODULES}
    keys = {
        mutant.key
        for module in names
        for mutant in mutants_of(import_module(module), names[module])
    }
    assert EQUIVALENT.keys() <= keys
