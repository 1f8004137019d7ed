"""The list of rules agrees with what it lists, and every part of OTM reads it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import otm
import otm.coupled
import otm.coupling.lossy
from otm._core.rule import BACKENDS
from otm.coupling import PLANS
from otm.coupling.plan import TransportPlan
from otm.decoding import GreedyBlockVerifier, tree_rules
from otm.decoding.verifiers.by_rule import chain_rule, host_verifier, tree_rule
from otm.errors import UnknownMethodError
from otm.rules import _BY_NAME, RULES, Form, named, names

ROOT = Path(otm.__file__).parents[1]
PROBLEM = otm.Problem([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 2)
PARAMETERS: dict[str, Any] = dict.fromkeys(("lenience", "weight", "slack", "delta", "rate"), 0.5)


def test_every_name_is_there_once() -> None:
    """Bug: two rules under one name, or one rule in two spellings."""
    assert all(name == rule.name for name, rule in RULES.items())
    spellings = [name.lower().replace("-", " ") for name in RULES]
    assert len(set(spellings)) == len(RULES)
    for form in ("plan", "verifier", "kernel"):
        assert set(names(form)) <= set(RULES)
    forms = [{*names("plan")}, {*names("verifier")}, {*names("kernel")}]
    assert set().union(*forms) == {name for name, rule in RULES.items() if rule.lossless}


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.plan])
def test_a_plan_is_what_the_list_says(name: str) -> None:
    """Bug: a rule that is listed as lossless and is not, or for other drafts than its own."""
    rule = RULES[name]
    cls: Any = rule.load_plan()
    assert issubclass(cls, TransportPlan)
    problem = PROBLEM if rule.k is None else otm.Problem(PROBLEM.draft, PROBLEM.target, rule.k)
    parameters = {key: PARAMETERS[key] for key in rule.parameters}
    plan: Any = cls(problem, **parameters)
    assert plan.lossless == rule.lossless
    assert type(plan.drafts).__name__ == rule.drafts
    assert plan.drafts.k == (rule.k or 2)
    required = [
        parameter.name
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.default is parameter.empty
    ]
    assert required == ["problem", *rule.parameters]


def test_every_plan_class_is_listed() -> None:
    """Bug: a rule in a file that nobody lists, which no test of the protocol then sees."""
    bases = {
        "TransportPlan",
        "ResidualPlan",
        "RelaxedPlan",
        "TablePlan",
    }  # a table is any rule, and so none
    classes = {
        name
        for package in (otm.coupling, otm.coupling.lossy, otm.coupled)
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name)) and issubclass(value, TransportPlan)
    }
    assert {rule.load_plan().__name__ for rule in RULES.values() if rule.plan} == classes - bases


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, backend) for backend in BACKENDS for name in names("kernel", backend=backend)],
)
def test_a_kernel_has_a_file_for_each_backend(name: str, backend: str) -> None:
    """Bug: a name that only some machines find no module for."""
    assert (ROOT / RULES[name].kernel.replace(".", "/") / f"{backend}.py").is_file()


def test_a_rule_without_a_kernel_on_a_backend_is_not_named_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a rule without Triton kernels that is compiled, tuned or run on a GPU."""
    rule = dataclasses.replace(RULES["grid k-Seq"], name="new", backends=("numpy", "torch"))
    monkeypatch.setitem(_BY_NAME, rule.name, rule)
    assert "new" in names("kernel", backend="torch")
    assert "new" not in names("kernel", backend="triton")
    assert "k-Seq" not in names("plan", backend="numpy")
    with pytest.raises(UnknownMethodError, match="numpy, torch, triton"):
        names("kernel", backend="cuda")


def test_verifiers_are_functions_of_the_loop() -> None:
    for name in names("verifier", several=False):
        verifier = host_verifier(chain_rule(name))
        assert callable(verifier) or isinstance(verifier, GreedyBlockVerifier)
    for name in tree_rules():
        assert callable(host_verifier(tree_rule(name)))
    for rule in RULES.values():
        if rule.verifier:
            assert resolve_name(rule.verifier)


def test_what_has_a_plan_is_compared() -> None:
    """Bug: a rule that `compare` does not know although it is listed."""
    assert {rule.name for rule in otm.compare(PROBLEM.draft, PROBLEM.target, 2)} == set(PLANS)
    assert set(PLANS) == set(names("plan"))


@pytest.mark.parametrize(
    ("name", "form", "says"),
    [
        ("k-seq", "plan", "there is no rule 'k-seq'; there are optimal, k-Seq"),
        (None, "plan", "there is no rule of type NoneType"),
        ("SpecHub", "kernel", "'SpecHub' cannot be used here: it is for HubPairs drafts"),
        ("k-Seq", "kernel", "has the form plan \\(otm.coupling\\).*; use one of chain, block"),
    ],
)
def test_other_names_are_refused_with_the_known_ones(name: Any, form: Form, says: str) -> None:
    with pytest.raises(UnknownMethodError, match=says):
        named(name, form)


def test_a_rule_for_another_number_of_drafts_says_so() -> None:
    """Bug: two lists of rules for i.i.d. drafts, and no word of why one is not the other."""
    with pytest.raises(UnknownMethodError, match="'block' is for one chain of drafts, but this"):
        named("block", "verifier", several=True)
    with pytest.raises(UnknownMethodError, match=r"for several .* one chain .*: chain, block"):
        named("optimal", "verifier", several=False)


def test_the_page_lists_every_rule() -> None:
    """Bug: a rule of the list that the documentation lacks, or says other things of."""
    page = (Path(__file__).parents[1] / "docs" / "comparison.md").read_text(encoding="utf-8")
    section = page.partition("## All rules")[2].partition("\n## ")[0]
    rows = {cells[0]: cells for line in section.splitlines() if (cells := cells_of(line))}
    assert len(rows) == len(RULES) + 2  # the heading and the line below it
    for rule in RULES.values():
        drafts = rule.drafts if rule.k is None else f"{rule.drafts}, {rule.k}"
        forms = [form for form in ("plan", "verifier", "loop", "kernel") if getattr(rule, form)]
        lossless = "yes" if rule.lossless else "no"
        *cells, source = rows[rule.name][1:]
        source = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", source)  # links count as their text
        assert [*cells, source] == [drafts, ", ".join(forms), lossless, rule.source]


def cells_of(line: str) -> list[str]:
    """Cells of a row of a table."""
    return [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("| ") else []


def test_the_list_cannot_be_changed() -> None:
    """Catches a caller's rule that appears for everybody else in the process."""
    with pytest.raises(TypeError):
        RULES["mine"] = RULES["k-Seq"]  # type: ignore[index]
