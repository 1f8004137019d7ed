"""What goes from a device to the host, counted on a machine that has no device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from otm.decoding.device.rounds import DeviceRounds
from otm.decoding.rounds import Rounds

WAYS = {
    "item", "tolist", "numpy", "__array__", "__dlpack__", "__bool__", "__int__", "__float__",
    "__index__", "nonzero", "argwhere", "masked_select", "unique", "cpu",
    "is_nonzero", "equal", "allclose", "bincount",
}  # fmt: skip
"""Functions that wait for a device, or copy from it."""


class Host(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """Counts what goes from a device to the host, as if every tensor were on one."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []  # how many numbers went, each time
        self.there: list[Any] = []  # what has arrived

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        index = args[1] if name in {"__getitem__", "__setitem__"} else ()
        parts = index if isinstance(index, tuple) else (index,)
        by_booleans = any(isinstance(p, torch.Tensor) and p.dtype == torch.bool for p in parts)
        # by its name: a device that is an object is that of the models
        given = (*args[1:], *(kwargs or {}).values())
        to_host = name == "to" and any(isinstance(a, str) for a in given)
        where = name == "where" and len(args) == 1
        arrived = any(t is tensor for t in tensors[:1] for tensor in self.there)
        goes = name in WAYS or by_booleans or where or to_host
        if goes and not arrived and not called_by_transformers():
            self.sizes.append(sum(t.numel() for t in tensors[:1]))
        with torch._C.DisableTorchFunction():
            made = func(*args, **(kwargs or {}))
        if name == "cpu" or to_host:
            self.there.append(made)
        return made


def called_by_transformers() -> bool:
    """Whether this was called by code of transformers, such as a mask, and not by code of OTM."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in {"otm", "transformers"}:
            return bool(package == "transformers")
        frame = frame.f_back
    return False


@contextmanager
def counted_by_step(
    monkeypatch: pytest.MonkeyPatch, kind: type[Rounds] = DeviceRounds
) -> Iterator[list[list[int]]]:
    """Note what each round of a kind sends to the host."""
    rounds: list[list[int]] = []
    step = kind.step

    def counted(*arguments: Any) -> Any:
        with Host() as host:
            made = step(*arguments)
        rounds.append(host.sizes)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(kind, "step", counted)
        yield rounds
