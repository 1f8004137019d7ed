"""Tensors in, tensors out: what OTM needs of torch's tensors, without importing torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt


def is_tensor(values: Any) -> bool:
    """Whether this is a torch tensor; whoever has one has loaded torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def to_host(values: Any, *, widen: bool = True) -> Any:
    """Return a tensor from any device as a NumPy array, floats of all kinds as float64.

    Without `widen` those that NumPy has keep their type, and the others become float32.  Anything
    else is returned as it is.
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
    """Whether this is a masked array of NumPy; if so, its module has been loaded."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(values, module.MaskedArray)


def is_array(values: Any) -> bool:
    """Whether this is a tensor or an array of NumPy, but not a masked array."""
    return is_tensor(values) or (isinstance(values, np.ndarray) and not is_masked(values))


def masked_fault(values: Any) -> str:
    """Describe masked entries, also in lists of arrays; empty if there are none.

    NumPy would use the values that the mask hides.
    """
    if "numpy.ma" not in sys.modules:  # nobody has made one
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
    """Return an array as a tensor of its own on the device of `given`, if that is a tensor.

    Beside anything else the array is returned as it is.
    """
    if not is_tensor(given):
        return array
    return sys.modules["torch"].tensor(array, device=given.device)


def on_device(array: npt.NDArray[Any], device: Any) -> Any:
    """Return a copy of an array on a device, without a wait for what the device is doing."""
    return sys.modules["torch"].from_numpy(array).to(device, non_blocking=True)


def in_inference_mode() -> bool:
    """Whether tensors that are made now can be changed in torch's inference mode alone."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.is_inference_mode_enabled())


@contextmanager
def inference_mode(enabled: bool) -> Iterator[None]:
    """Be in torch's inference mode or not, whatever the caller has entered or left since."""
    if in_inference_mode() == enabled:
        yield
        return
    torch = sys.modules["torch"]
    with torch.inference_mode(enabled), torch.no_grad():  # to leave it would record gradients
        yield
