"""Chains to verify, where kernels run, and slips that a test of chain verification must see."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from otm.kernels import SparseDrafts
from otm.kernels.chain import numpy as chain
from otm.kernels.common.distributions import numpy as distributions
from otm.kernels.registry import uniforms_per_position

CLAMPED = "np.maximum(left, 0, out=left)"
RESIDUAL = "residual if residual.any()"

MUTANTS = {
    "u <= ratio": ("probability < at(", "probability <= at("),
    "draft and target swapped": (
        "probability < at(target_probs, i, x)",
        "at(target_probs, i, x) < probability",
    ),
    "residual of the next row": (
        "residual_mass(target, draft)",
        "residual_mass(target_probs[i + 1], draft)",
    ),
    "residual of the draft": (CLAMPED, "np.maximum(-left, 0, out=left)"),
    "residual not clamped": (CLAMPED, "np.abs(left, out=left)"),
    "no residual": (f"{RESIDUAL} else mass(target)", "mass(target)"),
    "the most probable residual": (
        RESIDUAL,
        f"residual * (residual == residual.max()) {RESIDUAL[9:]}",
    ),
    "bonus of the last row": ("target_probs[len(output)]", "target_probs[-1]"),
    "bonus of the row before": (
        "target_probs[len(output)]",
        "target_probs[max(len(output) - 1, 0)]",
    ),
    "one coin for all": ("coins[i]", "coins[0]"),
    "the coin locates too": ("mass(target), for_residual", "mass(target), coins[i]"),
    "edges to the left": ('= "right"', '= "left"'),
    "padding is a draft": ("if not 0 <= x <", "if not -1 <= x <"),
}


@pytest.fixture(params=MUTANTS.values(), ids=MUTANTS)
def mutant(request: pytest.FixtureRequest) -> ModuleType:
    """`otm.kernels.chain.numpy` with one slip, there or in how it draws tokens."""
    right, wrong = request.param
    sources = [inspect.getsource(module) for module in (distributions, chain)]
    assert sum(source.count(right) for source in sources) == 1
    mutants = []
    for source in sources:
        module = ModuleType("mutant")
        exec(compile(source.replace(right, wrong), "mutant", "exec"), vars(module))
        mutants.append(module)
    drawing, verifying = mutants
    drawn = {name: value for name, value in vars(drawing).items() if inspect.isfunction(value)}
    vars(verifying).update(drawn)
    return verifying


class Chains(NamedTuple):
    """Arguments of a chain verifier: target [B, γ + 1, V], draft [B, γ, V'], tokens, uniforms."""

    target: Any
    draft: Any
    tokens: Any
    uniforms: Any

    def to(self, dtype: Any) -> Chains:
        """Return the same chains with distributions of another type."""
        return self._replace(target=self.target.to(dtype), draft=self.draft.to(dtype))

    def logits(self) -> Chains:
        """Return the same chains as logits; impossible tokens have −∞."""
        return self._replace(target=self.target.log(), draft=self.draft.log())


def draw_chains(rng: np.random.Generator, batch: int, gamma: int, size: int) -> Chains:
    """Draw float32 chains of all lengths, with zeros and ties, and with many uniforms of 0."""
    torch = pytest.importorskip("torch")
    draft_size = int(rng.integers((size + 1) // 2, size + 1))
    target, draft = (
        rng.integers(0, 5, shape) + 1e-9 * rng.random(shape) * rng.integers(0, 2, shape)
        for shape in [(batch, gamma + 1, size), (batch, gamma, draft_size)]
    )
    for weights in (target, draft):
        at = rng.integers(weights.shape[2], size=(*weights.shape[:2], 1))
        np.put_along_axis(weights, at, 3.0, axis=2)
    target, draft = (x / x.sum(axis=2, keepdims=True) for x in (target, draft))
    cumulative = draft.cumsum(axis=2)
    tokens = (cumulative <= rng.random((batch, gamma, 1)) * cumulative[..., -1:]).sum(axis=2)
    tokens[np.arange(gamma) >= rng.choice([0, 1, gamma], (batch, 1))] = -1
    uniforms = rng.random((batch, gamma + 2))
    uniforms[rng.random(uniforms.shape) < 0.1] = 0
    uniforms[rng.random(uniforms.shape) < 0.1] = 1 - 2.0**-53
    laws = (torch.from_numpy(x).float() for x in (target, draft))
    return Chains(*laws, torch.from_numpy(tokens), torch.from_numpy(uniforms))


@pytest.fixture
def chains() -> Callable[..., Chains]:
    """`draw_chains`."""
    return draw_chains


def draw_several(
    rng: np.random.Generator,
    batch: int,
    count: int,
    gamma: int,
    size: int,
    *,
    rule: str = "grid k-Seq",
) -> list[Any]:
    """Draw chains of all lengths that often agree, with zeros, ties, and uniforms on edges.

    The distributions depend only on the position, so chains with equal prefixes share them.
    """
    torch = pytest.importorskip("torch")
    draft_size = int(rng.integers((size + 1) // 2, size + 1))
    laws = []
    for rows, width in ((gamma + 1, size), (gamma, draft_size)):
        weights = rng.integers(0, 4, (batch, 1, rows, width)) * rng.random((batch, 1, rows, width))
        weights[..., 0] += rng.integers(1, 3)
        laws.append((weights / weights.sum(axis=3, keepdims=True)).repeat(count, 1))
    cumulative = laws[1].cumsum(axis=3)
    points = rng.random((batch, count, gamma, 1)) * cumulative[..., -1:]
    tokens = (cumulative <= points).sum(axis=3)
    ends = rng.choice([0, 1, gamma, gamma], (batch, count, 1))
    tokens[np.arange(gamma) >= ends] = -1
    uniforms = rng.random((batch, gamma * uniforms_per_position(rule, count) + 2))
    uniforms[rng.random(uniforms.shape) < 0.1] = 0
    uniforms[rng.random(uniforms.shape) < 0.1] = 1 - 2.0**-53
    target, draft, tokens, uniforms = map(torch.from_numpy, (*laws, tokens, uniforms))
    return [target.float(), draft.float(), tokens, uniforms]


@pytest.fixture
def several() -> Callable[..., list[Any]]:
    """`draw_several`."""
    return draw_several


def list_drafts(rng: np.random.Generator, draft: Any, width: int = 0) -> SparseDrafts[Any]:
    """List the tokens of positive probability of rows [..., V'], in any order, between padding.

    The width is that of the longest list, or more.  Padding has the probability NaN.
    """
    torch = pytest.importorskip("torch")
    rows = draft.double().numpy()
    order = rng.permuted(np.broadcast_to(np.arange(rows.shape[-1]), rows.shape), axis=-1)
    tokens = np.where(np.take_along_axis(rows, order, -1) > 0, order, -1)
    most = int((tokens >= 0).sum(axis=-1).max(initial=1))
    tokens = np.take_along_axis(tokens, (tokens < 0).argsort(axis=-1, kind="stable"), -1)
    tokens = rng.permuted(tokens[..., : max(most, width)], axis=-1)
    more = np.full((*tokens.shape[:-1], max(width - tokens.shape[-1], 0)), -1)
    listed = torch.from_numpy(np.concatenate([tokens, more], axis=-1))
    probs = draft.gather(-1, listed.clamp(min=0)).masked_fill(listed < 0, math.nan)
    return SparseDrafts(listed, probs)


@pytest.fixture
def lists() -> Callable[..., SparseDrafts[Any]]:
    """`list_drafts`."""
    return list_drafts
