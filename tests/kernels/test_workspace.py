"""Work memory that calls share: allocated once, and its old contents have no effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import SparseDrafts, Workspace, verify_logits, verify_probs  # noqa: E402
from otm.rules import names  # noqa: E402


def on(device: str, arguments: Any) -> list[Any]:
    return [x.to(device) for x in arguments]


def addresses(workspace: Workspace) -> list[int]:
    return [buffer.data_ptr() for buffer in workspace._buffers.values()]


def assert_repeats(rule: str, *inputs: Any) -> None:
    """Call three times; the second and third time no memory but the result's may be new."""
    workspace = Workspace()
    options: dict[str, Any] = {"rule": rule, "backend": "triton", "validate": False}

    def verify(*arguments: Any) -> list[Any]:
        *arrays, temperature = arguments
        outcome = verify_logits(*arrays, temperature=temperature, workspace=workspace, **options)
        return [x for x in outcome if x is not None]

    expected = verify(*inputs)
    held = addresses(workspace), workspace.nbytes
    assert workspace.nbytes > 0
    fewer = [x[:1] for x in inputs]
    new: list[tuple[int, ...]] = []
    for arguments, last in ((inputs, None), (fewer, 1)):
        empty = torch.empty

        def counted(*shape: Any, empty: Any = empty, **kinds: Any) -> Any:
            memory = empty(*shape, **kinds)
            new.append(tuple(memory.shape))
            return memory

        torch.empty = counted
        try:
            outcome = verify(*arguments)
        finally:
            torch.empty = empty
        assert new == [tuple(x.shape) for x in outcome]
        new.clear()
        for mine, other in zip(outcome, expected, strict=True):
            assert mine.tolist() == other[:last].tolist()
    assert (addresses(workspace), workspace.nbytes) == held


@pytest.mark.parametrize("rule", names("kernel", several=False, backend="triton"))
@pytest.mark.usefixtures("small_blocks")
def test_chains(rule: str, chains: Callable[..., Any], device: str) -> None:
    inputs = on(device, chains(np.random.default_rng(1), 2, 2, 10).logits())
    # these have to be copied first
    turned = [x.transpose(-1, 0).contiguous().transpose(-1, 0) for x in inputs]
    assert_repeats(rule, *turned, torch.tensor([0.0, 0.7], device=device))


@pytest.mark.parametrize("rule", names("kernel", several=True, backend="triton"))
@pytest.mark.usefixtures("small_blocks")
def test_several_chains(rule: str, several: Callable[..., Any], device: str) -> None:
    inputs = on(device, several(np.random.default_rng(2), 2, 2, 1, 9, rule=rule))
    logits = [*(x.log() for x in inputs[:2]), *inputs[2:]]
    assert_repeats(rule, *logits, torch.ones(2, device=device))


@pytest.mark.parametrize("rule", names("kernel", backend="triton"))
@pytest.mark.usefixtures("small_blocks")
def test_lists_packed_rows_and_trees(
    rule: str, several: Callable[..., Any], lists: Callable[..., Any], device: str
) -> None:
    """Bug: memory that a capture of a CUDA graph would allocate, or what the last call left."""
    rng = np.random.default_rng(4)
    inputs = several(rng, 2, 2, 1, 9, rule=rule)
    inputs[1] = lists(rng, inputs[1])
    options: dict[str, Any] = {"counted": torch.ones(2, 2, 1, dtype=torch.bool)}
    if rule in names("kernel", several=False):  # two sequences of one draft, packed
        *_, uniforms = inputs
        target, tokens = inputs[0][:, 0].flatten(0, 1), inputs[2][:, 0].flatten()
        lists_of_one = SparseDrafts(*(x[:, 0].flatten(0, 1) for x in inputs[1]))
        inputs = [target, lists_of_one, tokens, uniforms[:, :3]]
        options = {"offsets": torch.arange(3)}
    expected = verify_probs(*inputs, rule=rule, backend="torch", validate=False, **options)
    workspace = Workspace()
    inputs[1] = SparseDrafts(*on(device, inputs[1]))
    arguments = [x if isinstance(x, SparseDrafts) else x.to(device) for x in inputs]
    options = {name: x.to(device) for name, x in options.items()}
    options |= {"rule": rule, "backend": "triton", "validate": False, "workspace": workspace}
    held = set()
    for _ in range(3):
        outcome = verify_probs(*arguments, **options)
        assert outcome.tokens.tolist() == expected.tokens.tolist()
        held.add((*addresses(workspace), workspace.nbytes))
    assert len(held) == 1


def test_it_grows_and_keeps_what_a_graph_may_write_to() -> None:
    workspace, cpu = Workspace(), torch.device("cpu")
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
    inputs = chains(np.random.default_rng(3), 2, 1, 5)
    expected = verify_probs(*(x.numpy() for x in inputs), workspace=Workspace())
    for backend in ("torch", "triton"):
        workspace = Workspace()
        outcome = verify_probs(*on(device, inputs), backend=backend, workspace=workspace)
        assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()
        assert (workspace.nbytes > 0) == (backend == "triton")
    for backend in ("torch", "triton"):
        workspace = Workspace()
        laws = [x[:, None] for x in on(device, inputs[:3])]
        outcome = verify_probs(
            *(*laws, inputs.uniforms.to(device)),
            rule="grid k-Seq",
            backend=backend,
            workspace=workspace,
        )
        assert outcome.tokens.cpu().tolist() == expected.tokens.tolist()
        assert (workspace.nbytes > 0) == (backend == "triton")
