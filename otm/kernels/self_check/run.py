"""Self-check on first use of a device: Triton's kernels must make the same decisions as torch.

`backend="auto"` selects Triton for CUDA tensors.  Before compiled kernels are first used, the
kernels and torch verify the same few test cases, and their outputs are compared.  The cases have
the memory layout of the call, so they run the same compiled kernels.  If an output differs, or a
kernel cannot be built or launched, torch verifies all later calls of this kind, and one warning is
issued.  A backend that the argument or the environment names is not checked.

The check cannot detect mistakes that depend on the number of sequences, such as offsets beyond
2^31.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import torch

from otm.errors import InvalidInputError
from otm.kernels.registry import VARIABLE
from otm.kernels.workspace import Workspace


class SelfCheck(NamedTuple):
    """Result of the self-check of kernels, for all calls of one kind.

    Attributes
    ----------
    call : str
        Rule, inputs and sizes of the calls.
    device : str
        Device of the calls' tensors.
    backend : str
        Backend of the calls after the check: "triton", or "torch" if the check failed.
    reason : str
        First difference, or Triton's error; empty if the check passed.
    seconds : float
        Duration of the check, including compilation.

    Examples
    --------
    >>> from otm.kernels import self_checks
    >>> [check.backend for check in self_checks()]  # no call had tensors on a GPU
    []
    """

    call: str
    device: str
    backend: str
    reason: str
    seconds: float


class Call(NamedTuple):
    """A call whose kernels need a check.

    `cases` builds arguments with the memory layout of the call.  `verify` takes the arguments that
    `cases` builds, a backend and a workspace, and verifies the drafts.
    """

    name: str
    family: Hashable
    device: torch.device
    cases: Callable[[], Iterable[Any]]
    verify: Callable[[str, Any, Workspace | None], Any]


class GarbageWorkspace(Workspace):
    """A workspace filled with garbage, which must not affect any decision."""

    def take(self, name: str, shape: tuple[int, ...], dtype: Any, device: Any) -> torch.Tensor:
        """Return the buffer of a name, full of garbage."""
        memory = super().take(name, shape, dtype, device)
        return memory.fill_(torch.nan if dtype.is_floating_point else torch.iinfo(dtype).max // 2)


_known: dict[Hashable, SelfCheck] = {}
_lock = threading.Lock()


def self_checks() -> tuple[SelfCheck, ...]:
    """Return the self-checks of this process: the backend of each kind of call on a GPU.

    If an argument or the environment variable OTM_BACKEND named a backend, it was not checked and
    is not in the list.  The list contains no calls on the CPU.

    Returns
    -------
    tuple of SelfCheck
        The checks, in the order in which they were made.

    Examples
    --------
    >>> from otm.kernels import self_checks
    >>> self_checks()  # no call had tensors on a GPU
    ()
    """
    with _lock:
        return tuple(_known.values())


def checked_backend(call: Call) -> str:
    """Return "triton" if its kernels decide as torch does, otherwise "torch".

    The kernels are checked if this kind of call is new.
    """
    check = _known.get(call.family)
    if check is not None:
        return check.backend
    if is_capturing():
        raise InvalidInputError(
            f"a CUDA graph is being captured, but this first call of its kind ({call.name}) needs "
            "a check of its kernels on this device, which a capture does not allow: make one call "
            "of the same shapes before the capture, or name the backend by the argument or by "
            f"{VARIABLE}"
        )
    with _lock:  # if two threads arrive, one checks and the other waits
        check = _known.get(call.family)
        is_new = check is None
        if check is None:
            check = _known[call.family] = run_check(call)
    # Release the lock first: a handler of warnings may call this function.
    if is_new and check.reason:
        warnings.warn(_warning(check), RuntimeWarning, stacklevel=_depth())
    return check.backend


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on the current stream."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def run_check(call: Call) -> SelfCheck:
    """Verify the cases of a call with Triton and with torch, and compare all outputs."""
    begun, reason = time.perf_counter(), ""
    try:
        for arguments in call.cases():
            outcome = call.verify("triton", arguments, GarbageWorkspace())
            reason = difference(outcome, call.verify("torch", arguments, None))
            if reason:
                break
    except Exception as error:
        text = " ".join(str(error).split())
        reason = f"{type(error).__name__}: {text if len(text) < 400 else text[:400] + ' …'}"
    backend, seconds = "torch" if reason else "triton", time.perf_counter() - begun
    return SelfCheck(call.name, str(call.device), backend, reason, seconds)


def difference(outcome: Any, expected: Any) -> str:
    """Describe the first difference of two outputs, tensors or named tuples; else return ""."""
    if isinstance(outcome, torch.Tensor):
        outcome, expected = {"tokens": outcome}, {"tokens": expected}
    else:
        outcome, expected = outcome._asdict(), expected._asdict()
    for name, value in expected.items():
        if value is None:
            continue
        mine, other = outcome[name].cpu(), value.cpu()
        if mine.shape != other.shape:
            return f"{name} have shape {tuple(mine.shape)} in Triton, {tuple(other.shape)} in torch"
        wrong = (mine != other).flatten(1).any(1) if mine.ndim > 1 else mine != other
        if wrong.any():
            b = int(wrong.int().argmax())
            return (
                f"{name} differ in {int(wrong.sum())} of {len(wrong)} sequences, first in sequence "
                f"{b}: {mine[b].tolist()} in Triton, {other[b].tolist()} in torch"
            )
    return ""


def _depth() -> int:
    """Count the frames from this function's caller to the first frame outside OTM."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("otm."):
        frame, depth = frame.f_back, depth + 1
    return depth


def _warning(check: SelfCheck) -> str:
    triton = getattr(sys.modules.get("triton"), "__version__", "")
    versions = f"Triton {triton}, torch {torch.__version__}"
    name = check.device
    if torch.cuda.is_available():
        name += f", {torch.cuda.get_device_name(check.device)}"
    return (
        f"OTM does not use its Triton kernels for {check.call}, because they failed the check "
        f"against torch on this device ({name}; {versions}): {check.reason}.  From now on torch "
        "verifies these calls; it is slower, but also lossless.  "
        f"{VARIABLE}=torch, or backend='torch', selects torch without a check and without this "
        "warning; 'triton' selects the kernels without a check.  Please report this text "
        "(CONTRIBUTING.md says where)"
    )
