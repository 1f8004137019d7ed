"""Helper functions for torch tensors that do not import torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt


def is_tensor(values: Any) -> bool:
    """Return whether this is a torch tensor; return False if torch is not loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def to_host(values: Any, *, widen: bool = True) -> Any:
    """Convert a tensor on any device to a NumPy array, with floats as float64.

    Without `widen`, float types that NumPy supports are kept, and others become float32.  Values
    other than tensors are returned unchanged.
    """
    if not is_tensor(values):
        return values
    tensor = values.detach().cpu()
    if tensor.is_floating_point() and widen:
        return tensor.double().numpy()
    torch = sys.modules["torch"]
    of_numpy = (torch.float16, torch.float32, torch.float64)
    if tensor.is_floating_point() and tensor.dtype not in of_numpy:
        tensor = tensor.float()
    return tensor.numpy()


def is_masked(values: Any) -> bool:
    """Return whether this is a masked NumPy array; return False if numpy.ma is not loaded."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(values, module.MaskedArray)


def is_array(values: Any) -> bool:
    """Return whether this is a tensor or an unmasked NumPy array."""
    return is_tensor(values) or (isinstance(values, np.ndarray) and not is_masked(values))


def masked_fault(values: Any) -> str:
    """Describe masked entries in arrays or lists of arrays; return "" if there are none.

    Masked entries are errors, because NumPy would use the values under the mask.
    """
    if "numpy.ma" not in sys.modules:  # Then no masked array exists.
        return ""
    if is_masked(values):
        count = int(np.count_nonzero(sys.modules["numpy.ma"].getmaskarray(values)))
        if count:
            return (
                f"a masked array with {count} of {values.size} entries masked; OTM does not take "
                "masks: fill these entries (array.filled(0)), or leave them out "
                "(array.compressed())"
            )
    elif isinstance(values, list | tuple) and not isinstance(next(iter(values), 0), Number):
        return next(filter(None, map(masked_fault, values)), "")
    return ""


def like(given: Any, array: npt.NDArray[np.int64]) -> Any:
    """Copy an array to a tensor on the device of `given`, if `given` is a tensor.

    If `given` is not a tensor, return the array unchanged.
    """
    if not is_tensor(given):
        return array
    return sys.modules["torch"].tensor(array, device=given.device)


def on_device(array: npt.NDArray[Any], device: Any) -> Any:
    """Copy an array to a device without waiting for the device's running work."""
    return sys.modules["torch"].from_numpy(array).to(device, non_blocking=True)


def in_inference_mode() -> bool:
    """Return whether torch's inference mode is on: new tensors are then inference tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_inference_mode_enabled())


@contextmanager
def inference_mode(enabled: bool) -> Iterator[None]:
    """Switch torch's inference mode on or off inside the context, independent of the caller's."""
    if in_inference_mode() == enabled:
        yield
        return
    torch = sys.modules["torch"]
    # Without no_grad, switching inference mode off would record gradients.
    with torch.inference_mode(enabled), torch.no_grad():
        yield
