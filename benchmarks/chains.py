"""Count the files and modules that a call enters: a reader must open them to follow the call.

    python -m benchmarks.chains

Each call runs once before it is traced, so that imports do not count.  A *step back up* is a call
to a module that is already on the call stack: the reader must return to an earlier file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import otm
from otm.audit import lossless
from otm.decoding import spectr
from otm.models import TableModel

__all__ = ["CALLS", "Trace", "trace"]

PACKAGE = Path(otm.__file__).parent
BELOW = ("_core", "models", "testing")
"""Folders that a reader need not open."""


@dataclass
class Trace:
    """Files and modules of OTM that a call entered."""

    # Paths relative to the folder otm.
    files: set[Path] = field(default_factory=set)
    # Modules on the stack when it had the most distinct modules.
    deepest: list[str] = field(default_factory=list)
    # Pairs of a calling module and the called function.
    steps_back_up: set[tuple[str, str]] = field(default_factory=set)

    @property
    def own_files(self) -> set[Path]:
        """Entered files outside of the folders in `BELOW`."""
        return {file for file in self.files if file.parts[0] not in BELOW}


def trace(
    call: Callable[[], Any], on_step: Callable[[FrameType, str, str], None] | None = None
) -> Trace:
    """Run a call and record the files and modules that it enters.

    For each call between two functions of OTM, `on_step` receives the frame, the calling module
    and the called module.
    """
    found = Trace()
    stack: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and stack:
            stack.pop()
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        stack.append(module)
        if not module.startswith("otm."):
            return
        callers = [name for name in stack[:-1] if name.startswith("otm.")]
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(PACKAGE):  # generated functions have no file
            found.files.add(file.relative_to(PACKAGE))
        found.deepest = max(found.deepest, list(dict.fromkeys([*callers, module])), key=len)
        if callers and module != callers[-1] and module in callers:
            found.steps_back_up.add((callers[-1], f"{module}:{frame.f_code.co_qualname}"))
        if callers and on_step is not None:
            on_step(frame, callers[-1], module)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def solve_and_select() -> None:
    """Select a token from two drafts by the optimal plan."""
    otm.solve([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 2).plan.select([0, 1], [0.5] * 4)


def walk_and_keep() -> None:
    """Decode a few tokens with two chains of two drafts."""
    draft, target = TableModel({(): [0.5, 0.3, 0.2]}), TableModel({(): [0.2, 0.5, 0.3]})
    options: dict[str, Any] = {"k": 2, "gamma": 2, "rule": "walk and keep", "seed": 0}
    spectr(target, draft, [[0]], max_tokens=8, **options)


def verify_chain(
    target_probs: Sequence[Any],
    draft_probs: Sequence[Any],
    draft_tokens: Sequence[int],
    uniforms: Sequence[Any],
) -> list[int]:
    """Verify a chain with one coin for each draft and one uniform for the last token."""
    for i, token in enumerate(draft_tokens):
        target, draft = target_probs[i], draft_probs[i]
        if uniforms[i] * draft[token] >= target[token]:
            residual = [max(q - p, 0) for q, p in zip(target, draft, strict=True)]
            return [*draft_tokens[:i], draw(residual, uniforms[-1])]
    return [*draft_tokens, draw(target_probs[-1], uniforms[-1])]


def draw(weights: Sequence[Any], uniform: Any) -> int:
    """Draw a token with probability proportional to its weight, by inversion of one uniform."""
    left = uniform * sum(weights)
    for token, weight in enumerate(weights):
        if left < weight:
            return token
        left -= weight
    raise AssertionError("a uniform is below one")


def audit_chain() -> None:
    """Audit a correct verifier."""
    assert lossless(verify_chain).lossless


CALLS: dict[str, Callable[[], None]] = {
    "solve(…).plan.select": solve_and_select,
    "spectr(…, walk and keep)": walk_and_keep,
    "audit.lossless(verifier)": audit_chain,
}


def main() -> None:
    heads = ("call", "files", "with _core, models, testing", "depth", "steps back up")
    print(" | ".join(heads))
    for name, call in CALLS.items():
        call()
        found = trace(call)
        numbers = (found.own_files, found.files, found.deepest, found.steps_back_up)
        print(" | ".join((name, *(str(len(each)) for each in numbers))))


if __name__ == "__main__":
    main()
