"""Notebook display of results: short for results of any size."""

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otm
from otm._core.display.reprs import FactsRepr, ShortDict, ShortRepr, brief
from otm.audit import lossless
from otm.coupling import PLANS, TransportPlan
from otm.coupling.lossy import LenientPlan, distance_to_target
from otm.decoding import ModelDrafter, beam_search, spectr
from otm.drafts import Joint
from otm.gain import (
    Latency,
    Settings,
    contexts_from,
    first_step_acceptance,
    from_files,
    recommend,
    record,
    report,
)
from otm.models import TableModel
from otm.optimum.solvers import packing_form, solve_highs
from otm.problem import Problem
from tests.repo.test_public_api import NAMES

LINES, CHARACTERS = 40, 2000

FEW_FIELDS = {"KnownBug", "OnlineGamma", "Processor", "Rule", "Budget"}
"""Dataclasses with collections that hold a few words or numbers."""


def results(folder: Path) -> Iterator[Any]:
    """Make results that hold much."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(500), size=2)
    solution = otm.solve(p, q, 3)
    plan = solution.plan
    yield from (solution, solution.problem, solution.certificate, plan, solution.cut)
    yield from (solution.bounds, plan.sample(plan.drafts.sample(rng, 1000), rng), plan.drafts)
    yield from (otm.solve([p] * 9, q, 2), otm.Problem([p] * 9, q, 2), otm.SparseProbs.from_dense(p))
    yield from (otm.compare(p[:9] / p[:9].sum(), q[:9] / q[:9].sum(), 2), otm.compare(p, q, [1, 2]))
    yield otm.solve([0.5, 0.5], [0.25, 0.75], 9).plan.transport()
    yield from [rule(Problem(p, q, 2)) for rule in PLANS.values()]
    lenient = LenientPlan(Problem(p, q, 2), lenience=0.5)
    yield from (
        lenient,
        distance_to_target(lenient),
        Joint({(i, i): 0.01 for i in range(100)}, n=100),
    )
    half, third = Fraction(1, 2), Fraction(1, 3)
    block = otm.solve_block(lambda path: [half, half], lambda path: [third, 1 - third], 2, 4)
    yield from (block, block.certificate, block.nodes, block.plan)
    yield solve_highs(packing_form(Problem(p[:9] / p[:9].sum(), q[:9] / q[:9].sum(), 2)))
    target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    generation = spectr(target, draft, [[0]] * 9, k=3, gamma=3, max_tokens=200, seed=1)
    yield from (generation, generation.steps[0], target, ModelDrafter(draft, 2))
    yield beam_search(target, [[0]] * 9, width=4, max_tokens=50)
    contexts = [some[:4] for some in contexts_from(generation)[:2]]
    recordings = record(target, ModelDrafter(draft, 2), contexts, depth=2, seed=0)
    yield from (recordings[0], first_step_acceptance(recordings))
    yield Latency(tuple(range(1, 40)), (1, 2), [0.1] * 39, [[1.0] * 39] * 2)
    recommendation = recommend(target, draft, contexts, Latency.constant(0.1))
    yield from (recommendation, recommendation.best)
    for name in ("draft", "target"):
        np.save(folder / f"{name}.npy", rng.normal(size=(8, 20)).astype(np.float32))
    source = from_files(folder / "draft.npy", folder / "target.npy")
    settings = Settings(ks=tuple(range(1, 30)))
    yield from (source, settings)
    yield report(source, folder / "report", settings, latency=Latency.constant(0.1))
    yield lossless(lambda target_probs, draft_probs, draft_tokens, uniforms: list(draft_tokens))


def test_no_result_floods_a_screen(tmp_path: Path) -> None:
    """Catches a result that writes its arrays, tuples of steps, or tables row by row."""
    seen = set()
    for result in results(tmp_path):
        text = repr(result)
        assert len(text) <= CHARACTERS, type(result)
        assert text.count("\n") < LINES, type(result)
        if isinstance(result, FactsRepr):
            assert result._repr_html_().count("<tr>") >= text.count("\n")
        seen.add(type(result).__name__)
    assert len(seen) > 30


def test_public_dataclasses_are_written_in_brief() -> None:
    """Catches a new result whose fields are collections, and which writes all of them."""
    for module, names in NAMES.items():
        for name in names:
            found = getattr(import_module(module), name)
            if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
                continue
            types = [str(field.type) for field in dataclasses.fields(found) if field.repr]
            long = any(
                word in text
                for text in types
                for word in ("Array", "tuple[", "Mapping", "dict", "Path", "Probs", "Ints")
            )
            laid_out = not vars(found)["__dataclass_params__"].repr
            assert issubclass(found, ShortRepr) or not long or laid_out or name in FEW_FIELDS, name


def test_brief() -> None:
    assert brief(np.zeros((3, 1000))) == "float64 [3 × 1,000]"
    assert brief(np.array([Fraction(1, 3)] * 9)) == "fractions [9]"
    assert brief(np.array([0.25, 0.75])) == "[0.25, 0.75]"
    assert brief(list(range(7))) == "7 entries"
    assert brief({1: 2}) == "{1: 2}"
    long = ShortDict({i: i for i in range(40)})
    assert repr(long).endswith("5: 5, … 34 more}")
    assert long._repr_html_().count("<tr>") == 31
    assert repr(ShortDict({1: 2})) == "{1: 2}"
    with pytest.raises(NotImplementedError):
        _ = FactsRepr()._title
    with pytest.raises(NotImplementedError):
        FactsRepr()._lines()


def test_a_rule_of_ones_own_is_written_in_brief() -> None:
    """A dataclass makes a text of all its fields, unless its class has one already."""

    @dataclasses.dataclass(frozen=True, eq=False)
    class Mine(LenientPlan):
        extra: Any = None

    assert issubclass(Mine, TransportPlan)
    uniform = np.full(100, 0.01)
    mine = Mine(Problem(uniform, uniform, 2), lenience=1.0, extra=uniform)
    assert repr(mine).endswith("extra=float64 [100])")
