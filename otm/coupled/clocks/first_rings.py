"""The first of the shared clocks to ring, on the backend that fits.

`otm.coupled.clocks.numpy` is the definition, what the loop on the host reads; the other backends
make its decisions bit for bit, on rows of a batch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from otm.kernels.registry import AUTO, choose_backend


def first_rings(
    probs: Any, keys: Any, positions: Any, lists: Any, count: int, *, backend: str = "auto"
) -> Any:
    """Token that rings first in each row [B, L, V], in any of so many lists: [B, L].

    Row l of sequence b reads the clocks of its key [B], its position [B, L] and `count` lists
    from the first on [B, L].  All of them are int64, the key and the position by their 64 bits.
    Tokens without a positive probability never ring; nothing is checked.
    """
    chosen = choose_backend(probs, backend)
    return _ring(chosen, (probs, keys, positions, lists, count))


def _ring(backend: str, arguments: tuple[Any, ...], workspace: None = None) -> Any:
    """Find the tokens on a backend; clocks take no workspace."""
    del workspace
    if backend == AUTO:
        from otm.coupled.clocks import cases as clock_cases
        from otm.kernels.self_check import run as self_check

        backend = self_check.checked_backend(clock_cases.call_of_clocks(arguments, _ring))
    found: Any = import_module(f"otm.coupled.clocks.{backend}").first_rings
    return found(*arguments)
