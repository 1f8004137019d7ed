"""Work memory that calls share: it is allocated once, and what is left in it is not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels.multi_draft_checks import RULES  # noqa: E402

import otm.kernels  # noqa: E402
from otm.kernels import block_triton, chain_triton, multi_draft_triton  # noqa: E402


def on(device: str, arguments: Any) -> list[Any]:
    return [x.to(device) for x in arguments]


def addresses(workspace: otm.kernels.Workspace) -> list[int]:
    return [buffer.data_ptr() for buffer in workspace._buffers.values()]


def assert_repeats(verify: Callable[..., Any], *given: Any, **options: Any) -> None:
    """Call three times; the second and third time no memory but the result's may be new."""
    workspace = otm.kernels.Workspace()
    expected = verify(*given, **options, validate=False, workspace=workspace)
    held = addresses(workspace), workspace.nbytes
    assert workspace.nbytes > 0
    fewer = [x[:1] for x in given]
    new: list[tuple[int, ...]] = []
    for arguments, last in ((given, None), (fewer, 1)):
        empty = torch.empty

        def counted(*shape: Any, empty: Any = empty, **kinds: Any) -> Any:
            found = empty(*shape, **kinds)
            new.append(tuple(found.shape))
            return found

        torch.empty = counted
        try:
            found = verify(*arguments, **options, validate=False, workspace=workspace)
        finally:
            torch.empty = empty
        assert new == [tuple(x.shape) for x in found]
        new.clear()
        for mine, other in zip(found, expected, strict=True):
            assert mine.tolist() == other[:last].tolist()
    assert (addresses(workspace), workspace.nbytes) == held


@pytest.mark.parametrize("module", [chain_triton, block_triton])
@pytest.mark.usefixtures("small_blocks")
def test_chains(module: Any, chains: Callable[..., Any], device: str) -> None:
    name = module.__name__.rpartition(".")[2].removesuffix("_triton")
    given = on(device, chains(np.random.default_rng(1), 2, 2, 10).logits())
    # these have to be copied first
    turned = [x.transpose(-1, 0).contiguous().transpose(-1, 0) for x in given]
    heats = torch.tensor([0.0, 0.7], device=device)
    assert_repeats(getattr(module, f"verify_{name}_from_logits"), *turned, heats)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("small_blocks")
def test_several_chains(rule: str, several: Callable[..., Any], device: str) -> None:
    given = on(device, several(np.random.default_rng(2), 2, 2, 1, 9, rule=rule))
    logits = [*(x.log() for x in given[:2]), *given[2:], torch.ones(2, device=device)]
    assert_repeats(multi_draft_triton.verify_drafts_from_logits, *logits, rule=rule)


def test_it_grows_and_keeps_what_a_graph_may_write_to() -> None:
    workspace, cpu = otm.kernels.Workspace(), torch.device("cpu")
    small = workspace.take("sums", (4,), torch.int64, cpu).data_ptr()
    large = workspace.take("sums", (5,), torch.int64, cpu)
    assert workspace.nbytes == 8 * (4 + 8)
    assert small in {buffer.data_ptr() for buffer in workspace._outgrown}
    assert workspace.take("sums", (2, 4), torch.int64, cpu).data_ptr() == large.data_ptr()
    other = workspace.take("sums", (1,), torch.float32, cpu)
    assert other.data_ptr() != large.data_ptr()
    assert workspace.take("none", (0, 3), torch.int64, cpu).shape == (0, 3)


@pytest.mark.usefixtures("small_blocks")
def test_every_backend_takes_one(chains: Callable[..., Any], device: str) -> None:
    given = chains(np.random.default_rng(3), 2, 1, 5)
    expected = otm.kernels.verify(*(x.numpy() for x in given), workspace=otm.kernels.Workspace())
    for backend in ("torch", "triton"):
        workspace = otm.kernels.Workspace()
        found = otm.kernels.verify(*on(device, given), backend=backend, workspace=workspace)
        assert found.tokens.cpu().tolist() == expected.tokens.tolist()
        assert (workspace.nbytes > 0) == (backend == "triton")
    for backend in ("torch", "triton"):
        workspace = otm.kernels.Workspace()
        laws = [x[:, None] for x in on(device, given[:3])]
        found = otm.kernels.verify_drafts(
            *laws, given.uniforms.to(device), backend=backend, workspace=workspace
        )
        assert found.tokens.cpu().tolist() == expected.tokens.tolist()
        assert (workspace.nbytes > 0) == (backend == "triton")
