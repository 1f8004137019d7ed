"""Chains to verify, where kernels run, and slips that a test of chain verification must see."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt
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
    "the likeliest residual": (RESIDUAL, f"residual * (residual == residual.max()) {RESIDUAL[9:]}"),
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
    """Arguments of a verifier of chains: laws [B, γ + 1, V] and [B, γ, V'], drafts, uniforms."""

    target: Any
    draft: Any
    tokens: Any
    uniforms: Any

    def to(self, dtype: Any) -> Chains:
        """Return the same chains with laws of another type."""
        return self._replace(target=self.target.to(dtype), draft=self.draft.to(dtype))

    def logits(self) -> Chains:
        """Return the same chains as logits, of which those of impossible tokens are −∞."""
        return self._replace(target=self.target.log(), draft=self.draft.log())


def draw_chains(rng: np.random.Generator, batch: int, gamma: int, size: int) -> Chains:
    """Draw float32 chains of all lengths, with zeros and ties, and uniforms of which many are 0."""
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
    """Draw chains of all lengths that often agree, laws with zeros and ties, uniforms on edges.

    The laws depend on the position alone, so that chains that begin alike have the same ones.
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


class Clocked(NamedTuple):
    """Rows [B, L, V] and what their clocks follow from; as int64, maybe with the highest bit."""

    probs: npt.NDArray[np.float64]
    keys: npt.NDArray[np.int64]  # [B]
    positions: npt.NDArray[np.int64]  # [B, L]
    lists: npt.NDArray[np.int64]  # [B, L]
    count: int

    def tensors(self, device: str = "cpu", dtype: Any = None) -> list[Any]:
        """Return them as tensors, with rows of another type."""
        torch = pytest.importorskip("torch")
        probs, *others = (torch.from_numpy(x).to(device) for x in self[:4])
        return [probs if dtype is None else probs.to(dtype), *others, self.count]


def draw_clocked(seed: int, size: int) -> Clocked:
    """Draw rows with zeros, and keys and positions of all lengths."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 4, 2))
    probs = rng.dirichlet(np.full(size, 0.3), shape) * (rng.random((*shape, size)) < 0.7)
    probs[..., rng.integers(size)] += 0.1
    probs = (probs / probs.sum(axis=-1, keepdims=True)).astype(np.float32).astype(float)
    keys = rng.integers(-(2**63), 2**63, shape[0]) >> rng.choice([0, 11, 60], shape[0])
    positions = rng.integers(2**63, size=shape) >> rng.choice([0, 20, 58], shape)
    lists = rng.integers(6, size=shape)
    return Clocked(probs, keys, positions, lists, int(rng.integers(1, 5)))


@pytest.fixture
def clocked() -> Callable[..., Clocked]:
    """`draw_clocked`."""
    return draw_clocked


@pytest.fixture
def several() -> Callable[..., list[Any]]:
    """`draw_several`."""
    return draw_several


def list_drafts(rng: np.random.Generator, draft: Any, width: int = 0) -> SparseDrafts[Any]:
    """List the tokens of positive probability of rows [..., V'], in any order, between padding.

    The width is that of the longest list, or more.  Padding has a probability that is no number.
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


@pytest.fixture
def device() -> Iterator[str]:
    """Where Triton's kernels run: a GPU, or the CPU if they are interpreted.

    New memory is full of NaN and of large numbers, so that to read it is seen.
    """
    torch = pytest.importorskip("torch")
    from otm.kernels.common.runtime import compiles

    empty = torch.empty

    def filled(*shape: Any, **options: Any) -> Any:
        memory = empty(*shape, **options)
        return memory.fill_(math.nan if memory.is_floating_point() else 2**30)

    place = "cuda" if compiles() else "cpu"
    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("Triton's kernels need a GPU, or TRITON_INTERPRET=1")
    if place == "cpu":  # older interpreters fail with NumPy 2.4, and some do not know all types
        reason = "interprets kernels from Triton 3.7 on"
        pytest.importorskip("triton", minversion="3.7", reason=reason)
    # not by monkeypatch, which undoes it last: what `small_blocks` has put there would come back
    with mock.patch.object(torch, "empty", filled):
        yield place


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Blocks of 8 tokens, so that small vocabularies have many.

    If the kernels are interpreted, no program may touch what lies outside of its arguments, and
    none what another one writes in the same launch.
    """
    pytest.importorskip("torch")
    from otm.kernels.common import runtime

    monkeypatch.setattr(runtime, "BLOCK", 8)
    if runtime.triton is None or runtime.compiles():
        yield 8
        return
    from tests.kernels.compiled.accesses import recorded

    with recorded(forget=True) as launches:
        yield 8
    assert [fault for launch in launches for fault in launch.faults] == []
