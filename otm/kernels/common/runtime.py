"""Triton where it is installed: the decorator of kernels, and how they are launched.

A module with kernels can be imported without Triton; to launch one then raises
`MissingDependencyError`.  Kernels run on CUDA tensors, or on any tensor in Triton's interpreter, in
NumPy, if the environment variable TRITON_INTERPRET=1 was set before Triton was imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from otm._core.optional import is_installed, not_installed
from otm.errors import InvalidInputError
from otm.kernels.workspace import Workspace

if TYPE_CHECKING or is_installed("triton"):
    import triton
    from triton import language

    tl = language
else:
    triton = tl = None

BLOCK = 4096
"""Tokens that one program looks at, whatever the batch: results do not depend on the batch."""

WARPS = 8

TUNED: dict[str, dict[str, int]] = json.loads(
    files("otm.kernels.common").joinpath("warps.json").read_text(encoding="utf-8")
)
"""Warps of a program by device and kernel, where others than `WARPS` were measured to be faster.

`python -m benchmarks.gpu` measures them.  Sums are of whole numbers, hence no decision depends on
them, as it does on `BLOCK`: the sum of a softmax is rounded by block.
"""


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel with Triton; without it the function stays as it is and is never called.

    Not for some positions, levels or tests apart from the others: Triton would, for 1 and for
    multiples of 16.
    """
    return (
        function
        if triton is None
        else triton.jit(function, do_not_specialize=["position", "level", "test"])
    )


def constant(number: float) -> Any:
    """Return a number that kernels may use as a global name."""
    return number if triton is None else tl.constexpr(number)


def check_device(tensor: Tensor) -> None:
    """Refuse tensors that Triton cannot work on."""
    if triton is None:
        raise not_installed(
            "triton",
            "it comes with torch's builds for CUDA, for Linux only; elsewhere use backend='torch'",
        )
    if tensor.device.type != "cuda" and not interpreted():
        raise InvalidInputError(
            f"Triton's kernels run on CUDA tensors; these are on {tensor.device}: move them, or "
            "use backend='torch'.  (For tests: TRITON_INTERPRET=1, set before Triton is imported, "
            "runs kernels anywhere, slowly)"
        )


def compiles() -> bool:
    """Whether Triton is installed and compiles kernels, instead of interpreting them."""
    return triton is not None and not interpreted()


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return not isinstance(_probe, triton.JITFunction)


@cache
def capability(device: torch.device) -> str:
    """Name the kind of a device, such as "sm_90"."""
    if device.type != "cuda":
        return str(device.type)
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def warps(kernel: Any, kind: str) -> int:
    """Return the warps of a kernel's programs on a kind of device."""
    of_kernels = TUNED.get(kind)
    if of_kernels is None:
        return WARPS
    return of_kernels.get(name_of(kernel), WARPS)


def name_of(kernel: Any) -> str:
    """Name a kernel by its module below `otm.kernels` and its function, as `TUNED` does."""
    return f"{kernel.fn.__module__.removeprefix('otm.kernels.')}.{kernel.__name__}"


def launch(
    kernel: Any, grid: tuple[int, ...], tensor: Tensor, /, *arguments: Any, **constants: Any
) -> None:
    """Launch a kernel on the device of a tensor, which is its first argument too.

    Products and sums are not contracted into one operation, which rounds once less: the decisions
    are then the same on all devices, bit for bit.
    """
    if 0 in grid:
        return
    constants["num_warps"] = warps(kernel, capability(tensor.device))
    with torch.cuda.device_of(tensor):
        kernel[grid](tensor, *arguments, **constants, enable_fp_fusion=False)


def padded(count: int) -> int:
    """Return the least power of two that is no less than a count: the only length of arrays."""
    return 1 << max(count - 1, 0).bit_length()


def lay_out(
    work: Workspace, target: Tensor, draft: Tensor | None, tokens: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the arguments of a verification as kernels read them, copied only if they must be.

    The entries of a row lie side by side, tokens and uniforms all do; the target stands in for a
    draft that is None.
    """

    def laid_out(name: str, tensor: Tensor, fits: bool) -> Tensor:
        if fits:
            return tensor
        return work.take(name, tuple(tensor.shape), tensor.dtype, tensor.device).copy_(tensor)

    target = laid_out("target", target, target.stride(-1) == 1)
    draft = target if draft is None else laid_out("draft", draft, draft.stride(-1) == 1)
    tokens = laid_out("tokens", tokens, tokens.is_contiguous())
    return target, draft, tokens, laid_out("uniforms", uniforms, uniforms.is_contiguous())


def spread_temperature(
    work: Workspace, temperature: float | Tensor, batch: int, device: torch.device
) -> Tensor:
    """Return a temperature for each sequence, without a copy from the host: [B]."""
    if isinstance(temperature, Tensor):
        return temperature.expand(batch)
    filled = work.take("temperature", (1,), torch.float64, device).fill_(temperature)
    return filled.as_strided((batch,), (0,))  # of one sequence too


@jit
def _probe() -> None:
    """Show whether kernels are compiled or interpreted."""
