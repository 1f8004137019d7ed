"""Slips that a test of chain verification must see."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from otm.kernels import definition

UNCLAMPED = "abs(_mass(wanted) - _mass(offered))"

MUTANTS = {
    "u <= ratio": ("offered[x] < wanted[x]", "offered[x] <= wanted[x]"),
    "draft and target swapped": ("offered[x] < wanted[x]", "wanted[x] < offered[x]"),
    "residual of the next row": ("_mass(wanted) - _mass(", "_mass(target[i + 1]) - _mass("),
    "residual of the draft": ("_mass(wanted) - _mass(offered)", "_mass(offered) - _mass(wanted)"),
    "residual not clamped": ("np.maximum(_mass(wanted) - _mass(offered), 0)", UNCLAMPED),
    "no residual": ("left if left.any() else _mass(wanted)", "_mass(wanted)"),
    "the likeliest residual": ("left if left.any()", "left * (left == left.max()) if left.any()"),
    "bonus of the last row": ("target[len(output)]", "target[-1]"),
    "bonus of the row before": ("target[len(output)]", "target[max(len(output) - 1, 0)]"),
    "one coin for all": ("coins[i]", "coins[0]"),
    "the coin locates too": ("_mass(wanted), for_residual", "_mass(wanted), coins[i]"),
    "edges to the left": ('side="right"', 'side="left"'),
    "padding is a draft": ("if x < 0:", "if x < -1:"),
}


@pytest.fixture(params=MUTANTS.values(), ids=MUTANTS)
def mutant(request: pytest.FixtureRequest) -> ModuleType:
    """`otm.kernels.definition` with one slip."""
    right, wrong = request.param
    source = inspect.getsource(definition)
    assert source.count(right) == 1
    module = ModuleType("mutant")
    exec(compile(source.replace(right, wrong), "mutant", "exec"), vars(module))
    return module
