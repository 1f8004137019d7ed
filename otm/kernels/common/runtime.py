"""Triton support: the decorator of kernels, and their launch.

Modules with kernels can be imported without Triton; launching a kernel then raises
`MissingDependencyError`.  Compiled kernels run on CUDA tensors.  Triton's interpreter, which uses
NumPy, runs kernels on any tensor; set TRITON_INTERPRET=1 before Triton is imported.
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
"""Number of tokens that one program reads; constant, so that results do not depend on the batch."""

WARPS = 8

TUNED: dict[str, dict[str, int]] = json.loads(
    files("otm.kernels.common").joinpath("warps.json").read_text(encoding="utf-8")
)
"""Numbers of warps by device and kernel, where a measurement found a faster number than `WARPS`.

`python -m benchmarks.gpu` measures which numbers are fastest.  The number of warps changes no
decision, because kernels add integers.  `BLOCK` does change decisions, because the sum of a softmax
is rounded for each block.
"""


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel with Triton; without Triton, return the function unchanged.

    Kernels are not specialised on the arguments position, level and test, because Triton would
    compile extra variants for the value 1 and for multiples of 16.
    """
    return (
        function
        if triton is None
        else triton.jit(function, do_not_specialize=["position", "level", "test"])
    )


def constant(number: float) -> Any:
    """Return a number that kernels may use as a global constant."""
    return number if triton is None else tl.constexpr(number)


def check_device(tensor: Tensor) -> None:
    """Raise unless Triton is installed and can use the tensor."""
    if triton is None:
        raise not_installed(
            "triton",
            "Triton is part of torch's CUDA builds for Linux; elsewhere use backend='torch'",
        )
    if tensor.device.type != "cuda" and not interpreted():
        raise InvalidInputError(
            f"Triton's kernels run on CUDA tensors; the arguments are on {tensor.device}: move "
            "them, or use backend='torch'.  (For tests, TRITON_INTERPRET=1, set before Triton is "
            "imported, runs kernels slowly on any device)"
        )


def compiles() -> bool:
    """Whether Triton is installed and compiles kernels instead of interpreting them."""
    return triton is not None and not interpreted()


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return not isinstance(_probe, triton.JITFunction)


@cache
def capability(device: torch.device) -> str:
    """Return the kind of a device, such as "sm_90"."""
    if device.type != "cuda":
        return str(device.type)
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def warps(kernel: Any, kind: str) -> int:
    """Return the number of warps for a kernel on a kind of device."""
    of_kernels = TUNED.get(kind)
    if of_kernels is None:
        return WARPS
    return of_kernels.get(name_of(kernel), WARPS)


def name_of(kernel: Any) -> str:
    """Return a kernel's name as in `TUNED`: its module below `otm.kernels` and its function."""
    return f"{kernel.fn.__module__.removeprefix('otm.kernels.')}.{kernel.__name__}"


def launch(
    kernel: Any, grid: tuple[int, ...], tensor: Tensor, /, *arguments: Any, **constants: Any
) -> None:
    """Launch a kernel on the device of `tensor`, which is also its first argument.

    Fused multiply-add is disabled, because it rounds once instead of twice.  Decisions are
    therefore the same on all devices, bit for bit.
    """
    if 0 in grid:
        return
    constants["num_warps"] = warps(kernel, capability(tensor.device))
    with torch.cuda.device_of(tensor):
        kernel[grid](tensor, *arguments, **constants, enable_fp_fusion=False)


def padded(count: int) -> int:
    """Return the least power of two ≥ count; Triton allows only such array lengths."""
    return 1 << max(count - 1, 0).bit_length()


def lay_out(
    work: Workspace, target: Tensor, draft: Tensor | None, tokens: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the arguments of a verification in the kernels' layout; copy only if necessary.

    The entries of each row are contiguous; tokens and uniforms are contiguous as a whole.  If
    `draft` is None, the target takes its place.
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
    """Return a temperature for each sequence [B], without a copy from the host."""
    if isinstance(temperature, Tensor):
        return temperature.expand(batch)
    filled = work.take("temperature", (1,), torch.float64, device).fill_(temperature)
    return filled.as_strided((batch,), (0,))  # one sequence has stride 0 too


@jit
def _probe() -> None:
    """Kernel that shows whether kernels are compiled or interpreted."""
