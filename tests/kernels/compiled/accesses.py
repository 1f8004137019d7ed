"""What kernels load and store in Triton's interpreter: how many bytes, where, and in what order.

The interpreter runs the programs of a launch one after another, on addresses of real memory.  A run
shows neither that a program reads what lies beside a tensor, nor that two programs, or two threads
of one, would get into each other's way on a GPU.  The record of its accesses shows both.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt

GUARD = 64
"""Elements around each tensor that nothing else uses."""

UNWRITTEN = 0xA5
"""Each byte of new memory; a loaded number of such bytes was never written."""


class Access(NamedTuple):
    """An instruction of a program: where it reads or writes in an argument, masked places apart."""

    kind: str  # "load", "store" or "atomic"
    program: int
    phase: int  # barriers that the program has passed
    argument: str
    places: npt.NDArray[np.int64]  # elements after the first of the argument
    nbytes: int


class Argument(NamedTuple):
    """A tensor that a kernel got, and which places between its ends are elements of it."""

    name: str
    start: int
    itemsize: int
    inside: npt.NDArray[np.bool_]


class Launch:
    """A launch of a kernel: its accesses in order, and which of them are wrong."""

    def __init__(self, kernel: str, arguments: list[Argument]) -> None:
        self.kernel, self.arguments = kernel, arguments
        self.accesses: list[Access] = []
        self.faults: list[str] = []
        self.program, self.phase = -1, 0

    def begin_program(self) -> None:
        self.program, self.phase = self.program + 1, 0

    def begin_phase(self) -> None:
        self.phase += 1

    def record(self, kind: str, addresses: npt.NDArray[np.uint64], itemsize: int) -> None:
        """Record one instruction and the numbers that it reads or writes."""
        if not addresses.size:
            return
        first, last = int(addresses.min()), int(addresses.max())
        for argument in self.arguments:
            length = argument.inside.size * argument.itemsize
            if argument.start <= first and last < argument.start + length:
                offsets = (addresses - np.uint64(argument.start)).astype(np.int64)
                places, rest = np.divmod(offsets, itemsize)
                fits = argument.itemsize == itemsize and not rest.any()
                if not (fits and argument.inside[places].all()):
                    self.faults.append(f"{self.kernel}: {kind} between elements of {argument.name}")
                nbytes = addresses.size * itemsize
                access = Access(kind, self.program, self.phase, argument.name, places, nbytes)
                self.accesses.append(access)
                return
        self.faults.append(f"{self.kernel}: {kind} outside of all arguments")

    def check_written(self, values: npt.NDArray[Any]) -> None:
        """Record a fault if some loaded numbers of several bytes were never written."""
        size = values.dtype.itemsize
        if size > 1 and (values.view(f"u{size}") == int.from_bytes([UNWRITTEN] * size)).any():
            self.faults.append(f"{self.kernel}: load of {self.accesses[-1].argument}, unwritten")

    def read_again(self, *names: str) -> int:
        """Count the bytes of arguments of these names that are loaded more than once."""
        again = 0
        for argument in self.arguments:
            loads = [x for x in self.accesses if (x.kind, x.argument) == ("load", argument.name)]
            if argument.name in names and loads:
                places = np.concatenate([x.places for x in loads])
                again += (places.size - np.unique(places).size) * argument.itemsize
        return again

    def conflicts(self) -> list[str]:
        """Describe what depends on the order in which programs, or threads of one, run.

        Two accesses of one element conflict if one of them is a store, or only one is an atomic
        addition, unless both are in one program with a barrier between them.
        """
        found = []
        for argument in self.arguments:
            mine = [x for x in self.accesses if x.argument == argument.name]
            if {x.kind for x in mine} <= {"load"} or {x.kind for x in mine} == {"atomic"}:
                continue
            lengths = [x.places.size for x in mine]
            places = np.concatenate([x.places for x in mine])
            kinds = np.repeat([("load", "atomic", "store").index(x.kind) for x in mine], lengths)
            programs = np.repeat([x.program for x in mine], lengths)
            phases = np.repeat([x.phase for x in mine], lengths)
            for who, groups, several in (
                ("programs", [places], programs),
                ("threads of a program", [places, programs, phases], None),
            ):
                order = np.lexsort(groups)
                keys = np.stack(groups)[:, order]
                starts = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(0)])
                most = np.maximum.reduceat(kinds[order], starts)
                least = np.minimum.reduceat(kinds[order], starts)
                written = (most == 2) | (most != least)
                if several is None:
                    shared = np.diff(np.r_[starts, order.size]) > 1
                else:
                    first = np.minimum.reduceat(several[order], starts)
                    shared = first != np.maximum.reduceat(several[order], starts)
                if (written & shared).any():
                    found.append(f"{self.kernel}: {who} conflict in {argument.name}")
        return found


def argument_of(name: str, tensor: Any) -> Argument:
    """Describe a tensor of any strides."""
    import torch

    lengths = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in lengths) if tensor.numel() else 0
    inside = torch.zeros(extent, dtype=torch.bool)
    if extent:
        inside.as_strided(tensor.shape, tensor.stride()).fill_(True)
    return Argument(name, tensor.data_ptr(), tensor.element_size(), inside.numpy())


def apart(tensor: Any, gap: int = 0) -> Any:
    """Copy a tensor to memory with nothing else around it, and a gap after each row."""
    import torch

    *leading, size = tensor.shape
    count = tensor[..., :1].numel() * (size + gap)
    memory = torch.zeros(count + 2 * GUARD, dtype=tensor.dtype)
    rows = memory[GUARD : GUARD + count].view(*leading, size + gap)[..., :size]
    return rows.copy_(tensor)


@contextlib.contextmanager
def recorded(*, forget: bool = False) -> Iterator[list[Launch]]:
    """Record the launches of kernels in the interpreter, and put new memory apart.

    To forget keeps only the faults of launches.
    """
    import torch
    from triton.runtime import interpreter

    launches: list[Launch] = []
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    run, empty, set_grid_idx = executor.__call__, torch.empty, builder.set_grid_idx
    load, store = builder.create_masked_load, builder.create_masked_store
    add, barrier = builder.create_atomic_rmw, builder.create_barrier

    def where(mask: Any, data: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if data.shape != mask.data.shape:  # to broadcast takes longer than all else
            data, used = np.broadcast_arrays(data, mask.data)
        else:
            used = mask.data
        return data[used.astype(bool, copy=False)]

    def record(kind: str, pointers: Any, mask: Any) -> None:
        itemsize = pointers.get_element_ty().primitive_bitwidth // 8
        launches[-1].record(kind, where(mask, pointers.data), itemsize)

    def recorded_run(self: Any, *values: Any, **constants: Any) -> None:
        bound = inspect.signature(self.fn).bind_partial(*values)
        tensors = {n: x for n, x in bound.arguments.items() if isinstance(x, torch.Tensor)}
        arguments = [argument_of(name, tensor) for name, tensor in tensors.items()]
        launches.append(Launch(self.fn.__name__, arguments))
        run(self, *values, **constants)
        launches[-1].faults += launches[-1].conflicts()
        if forget:
            launches[-1].accesses.clear()

    def begin_program(self: Any, *place: int) -> Any:
        launches[-1].begin_program()
        return set_grid_idx(self, *place)

    def recorded_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        record("load", pointers, mask)
        loaded = load(self, pointers, mask, *rest)
        launches[-1].check_written(where(mask, loaded.data))
        return loaded

    def recorded_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        record("store", pointers, mask)
        return store(self, pointers, value, mask, *rest)

    def recorded_add(
        self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        record("atomic", pointers, mask)
        return add(self, operation, pointers, value, mask, *rest)

    def recorded_barrier(self: Any) -> Any:
        launches[-1].begin_phase()
        return barrier(self)

    def empty_apart(*shape: Any, **options: Any) -> Any:
        sizes = shape if shape and isinstance(shape[0], int) else tuple(shape[0])
        count = int(np.prod(sizes))
        memory = empty(count + 2 * GUARD, **options)
        memory.view(torch.uint8).fill_(UNWRITTEN)
        return memory[GUARD : GUARD + count].view(sizes)

    with contextlib.ExitStack() as stack:
        for owner, name, replacement in (
            (executor, "__call__", recorded_run),
            (builder, "set_grid_idx", begin_program),
            (builder, "create_masked_load", recorded_load),
            (builder, "create_masked_store", recorded_store),
            (builder, "create_atomic_rmw", recorded_add),
            (builder, "create_barrier", recorded_barrier),
            (torch, "empty", empty_apart),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield launches
