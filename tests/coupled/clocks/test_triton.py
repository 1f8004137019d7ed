"""Shared clocks in Triton: the definition's decisions, and one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from otm.coupled.clocks import first_rings as clocks  # noqa: E402
from otm.kernels.common import runtime  # noqa: E402
from tests.kernels.compiled.accesses import apart, recorded  # noqa: E402

first_rings = partial(clocks.first_rings, backend="triton")

# Within a block, a full one, one token more, and three blocks, which Triton pads to four.
SIZES = [1, 5, 8, 9, 18]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", SIZES)
def test_every_decision_is_that_of_the_definition(
    size: int, clocked: Callable[..., Any], device: str
) -> None:
    """Also with zeros, keys of 64 bits and positions beyond 32; no access beyond a row."""
    for seed in range(4):
        rows = clocked(seed, size)
        found = first_rings(*rows.tensors(device, (torch.float32, torch.float64)[seed % 2]))
        assert found.dtype == torch.int64
        assert found.tolist() == clocks.first_rings(*rows).tolist()
        half = rows.tensors(device, torch.bfloat16)
        expected = clocks.first_rings(*rows._replace(probs=half[0].double().cpu().numpy()))
        assert first_rings(*half).tolist() == expected.tolist()


@pytest.mark.parametrize("place", ["keys", "positions", "lists", "count"])
def test_other_clocks_give_other_tokens(
    place: str, clocked: Callable[..., Any], device: str, small_blocks: int
) -> None:
    """Negative control: the comparison above sees a row that reads the clocks of another."""
    differ, seeds = 0, iter(range(7))
    while differ <= 2:
        rows = clocked(next(seeds), small_blocks + 1)
        others = rows._replace(**{place: getattr(rows, place) + 1}).tensors(device)
        differ += int((first_rings(*others).cpu().numpy() != clocks.first_rings(*rows)).sum())


@pytest.mark.usefixtures("small_blocks")
def test_strides_do_not_matter(clocked: Callable[..., Any], device: str) -> None:
    """Chains that share a row, rows apart in memory, and columns of a larger tensor."""
    rows = clocked(3, 10)
    expected = clocks.first_rings(*rows).tolist()
    probs, *others = rows.tensors(device)
    for view in (
        torch.stack([probs, probs], -1)[..., 1],
        probs.transpose(0, 1).contiguous().transpose(0, 1),
        apart(probs.cpu(), gap=5).to(device),
    ):
        assert first_rings(view, *others).tolist() == expected
    shared = rows._replace(probs=rows.probs[:, :1].repeat(rows.lists.shape[1], 1))
    one = probs[:, :1].expand(*rows.lists.shape, -1)
    assert first_rings(one, *others).tolist() == clocks.first_rings(*shared).tolist()
    assert first_rings(probs[:0], *(x[:0] for x in others[:3]), rows.count).shape[0] == 0


@pytest.mark.usefixtures("small_blocks")
def test_a_row_without_a_token_gives_one_of_the_vocabulary(device: str) -> None:
    for wrong in (0.0, torch.nan, -1.0):
        probs = torch.full((1, 1, 11), wrong, device=device)
        ones = torch.ones(1, 1, dtype=torch.int64, device=device)
        assert first_rings(probs, ones[0], ones, ones, 2).tolist() == [[0]]


@pytest.mark.skipif(
    runtime.triton is None or runtime.compiles(), reason="accesses are seen in the interpreter"
)
@pytest.mark.parametrize("count", [1, 3])
def test_a_row_is_read_once(count: int, device: str) -> None:
    """Catches a pass over the row for each list."""
    size = runtime.BLOCK
    probs = torch.rand(1, 2, size, device=device)
    positions = torch.arange(2)[None]
    with recorded() as launches:
        first_rings(probs / probs.sum(), positions[0, :1], positions, 0 * positions, count)
    assert len(launches) == 2
    moves = sum(access.nbytes for launch in launches for access in launch.accesses)
    assert 1 <= moves / (2 * size * probs.element_size()) < 1.05
