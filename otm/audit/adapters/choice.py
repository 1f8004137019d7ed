"""Choose the adapter of a user's verifier by its kind or by its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from otm._core.display.text import shown
from otm._core.numbers import check_name
from otm.audit.adapters.base import Adapter
from otm.audit.adapters.batched_loops import loops
from otm.audit.adapters.batches import batch
from otm.audit.adapters.chains import chains
from otm.audit.adapters.functions import CHAIN, chain, count_required, parameters_of
from otm.audit.adapters.loops import loop
from otm.audit.adapters.otm_verifiers import DeviceStep
from otm.audit.adapters.state_and_window import stateful, windowed
from otm.audit.adapters.token_rules import token_rule
from otm.audit.adapters.trees import tree
from otm.decoding import DeviceVerifier
from otm.errors import InvalidParameterError

KINDS: dict[str, Callable[..., Adapter]] = {
    "chain": chain,
    "token": token_rule,
    "loop": loop,
    "loops": loops,
    "chains": chains,
    "tree": tree,
    "batch": batch,
    "stateful": stateful,
    "windowed": windowed,
}
"""Adapters of functions, by the name of the kind."""


def as_adapter(verifier: Any, kind: str | None) -> Adapter:
    """Make the adapter of a verifier; without a kind, infer it from the parameters."""
    if isinstance(verifier, DeviceVerifier):
        verifier = DeviceStep(verifier)
    if isinstance(verifier, Adapter):
        if kind is not None:
            raise InvalidParameterError(
                f"kind = {shown(kind)}, but this verifier has a kind already; leave `kind` out"
            )
        return verifier
    if inspect.iscoroutinefunction(verifier):
        raise InvalidParameterError(
            f"{shown(verifier)} is an async function, which returns no tokens; wrap it in a "
            "function that runs it"
        )
    if not callable(verifier):
        raise InvalidParameterError(
            f"the verifier is {shown(verifier)}; give a function, a DeviceVerifier, or an "
            "Adapter from otm.audit.adapters"
        )
    if kind is None:
        names = tuple(parameters_of(verifier))
        if names[:3] == CHAIN:
            kind = "chain"
        elif count_required(verifier) == 1:
            kind = "token"
        else:
            raise InvalidParameterError(
                f"cannot infer the kind of a verifier with the parameters ({', '.join(names)}); "
                f"state `kind` (--kind): one of {', '.join(map(repr, KINDS))}, or name its first "
                f"three parameters {', '.join(CHAIN)}"
            )
    return KINDS[check_name("kind of verifier", kind, KINDS)](verifier)
