"""Selection of the token with the smallest clock time, on any backend.

`otm.coupled.clocks.numpy` is the reference, which the loop on the host uses.  Torch and Triton make
bitwise the same decisions for batches of rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from otm.kernels.registry import AUTO, choose_backend


def first_rings(
    probs: Any, keys: Any, positions: Any, lists: Any, count: int, *, backend: str = "auto"
) -> Any:
    """Return the token with the smallest time in each row [B, L, V], over `count` lists: [B, L].

    Row l of sequence b reads the clocks of key `keys[b]` and position `positions[b, l]`, in `count`
    lists from `lists[b, l]` on.  All three arrays are int64; keys and positions are read as
    unsigned bits.  Tokens need a positive probability to be returned.  The function checks no
    arguments.
    """
    chosen = choose_backend(probs, backend)
    return _ring(chosen, (probs, keys, positions, lists, count))


def _ring(backend: str, arguments: tuple[Any, ...], workspace: None = None) -> Any:
    """Compute the tokens on a backend, without a workspace."""
    del workspace
    if backend == AUTO:
        from otm.coupled.clocks import cases as clock_cases
        from otm.kernels.self_check import run as self_check

        backend = self_check.checked_backend(clock_cases.call_of_clocks(arguments, _ring))
    function: Any = import_module(f"otm.coupled.clocks.{backend}").first_rings
    return function(*arguments)
