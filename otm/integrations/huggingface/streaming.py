"""The streamer of a `generate` call, and other arguments that `generate` does not pass on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from otm._core.display.text import shown
from otm.errors import InvalidInputError, InvalidParameterError


def arguments_of_generate() -> dict[str, Any]:
    """Return the arguments of the innermost running `generate` call; empty if none runs.

    `generate` does not pass `streamer` and `assistant_model` to a `custom_generate` function, so
    this function reads them from the frame of the call.
    """
    from transformers import GenerationMixin

    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    if frame is None:
        return {}
    names = code.co_varnames[: code.co_argcount]
    return {name: frame.f_locals.get(name) for name in names}


def check_unused(call_arguments: dict[str, Any], assistant: Any) -> None:
    """Raise for arguments of `generate` that would be ignored silently."""
    if call_arguments.get("assistant_model") not in (None, assistant):
        raise InvalidParameterError(
            "assistant_model differs from the assistant of AssistedDecoding, which drafts; remove "
            "it, or use patch_generate, which accepts assistant_model"
        )
    if call_arguments.get("synced_gpus"):
        raise InvalidParameterError(
            "synced_gpus=True is not possible with drafts, because the processes would differ in "
            "their numbers of steps; remove it"
        )


def check_streamer(streamer: Any) -> None:
    """Raise unless a streamer has the methods `put` and `end`."""
    if streamer is not None and not all(
        callable(getattr(streamer, name, None)) for name in ("put", "end")
    ):
        raise InvalidParameterError(
            f"streamer = {shown(streamer)} of type {type(streamer).__name__}; give an object with "
            "`put` and `end`, such as a TextStreamer of transformers"
        )


@contextmanager
def streaming(own: Any, of_call: Any, input_ids: Any) -> Iterator[Callable[[Sequence[int]], None]]:
    """Yield a function that sends new tokens to all streamers; end the streamers on exit.

    The prompt goes to the `own` streamer only, because `generate` has already sent it to the
    streamer of its call.  Streamers also end after an error.
    """
    import torch

    streamers = [] if of_call is None else [of_call]
    with ExitStack() as ends:
        for streamer in streamers:
            ends.callback(streamer.end)
        if own is not None and own is not of_call:
            streamers.append(own)
            ends.callback(own.end)
        if streamers and len(input_ids) > 1:
            raise InvalidInputError(
                f"a streamer accepts one sequence, but the call has {len(input_ids)}; remove the "
                "streamer, or decode one sequence at a time"
            )
        if own is not None and own is not of_call:
            own.put(input_ids.cpu())

        def put(tokens: Sequence[int]) -> None:
            for token in tokens:
                for streamer in streamers:
                    streamer.put(torch.tensor([token]))

        yield put
