"""The loops pass the named backend on, and reject one that no device has."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from otm.coupled import (  # noqa: E402
    CoupledVerifier,
    decode_coupled,
)
from otm.decoding import DeviceVerifier, ModelDrafter, spectr, speculative, stream  # noqa: E402
from otm.errors import InvalidInputError, UnknownMethodError  # noqa: E402
from otm.kernels.registry import VARIABLE  # noqa: E402
from tests.decoding.device.test_rounds import PROMPTS, VOCABULARY, gpt  # noqa: E402

TARGET, DRAFT = gpt(0, layers=1), gpt(1, layers=1)
OPTIONS: dict[str, Any] = {"gamma": 2, "max_tokens": 4, "seed": 0}

WAYS: dict[str, Callable[..., Any]] = {
    "speculative": lambda **o: speculative(TARGET, DRAFT, PROMPTS, **OPTIONS, **o),
    "spectr": lambda **o: spectr(TARGET, DRAFT, PROMPTS, k=2, rule="grid k-Seq", **OPTIONS, **o),
    "coupled": lambda **o: decode_coupled(TARGET, DRAFT, PROMPTS, **OPTIONS, **o),
    "stream": lambda **o: list(
        stream(TARGET, PROMPTS, ModelDrafter(DRAFT), DeviceVerifier("block"), **OPTIONS, **o)
    ),
    "coupled stream": lambda **o: list(
        stream(TARGET, PROMPTS, ModelDrafter(DRAFT), CoupledVerifier(), **OPTIONS, **o)
    ),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the requested backends; the host plays the device, for vocabularies of any size."""
    names: list[str] = []
    for place in ("decoding.device.rounds.verify_probs", "coupled.device_rounds.first_rings"):
        real = resolve_name(f"otm.{place}")

        def noted(*given: Any, backend: str, real: Any = real, **options: Any) -> Any:
            names.append(backend)
            return real(*given, backend=backend, **options)

        monkeypatch.setattr(f"otm.{place}", noted)
    monkeypatch.setattr("otm.decoding.rounds.LEAST_VOCABULARY", VOCABULARY)
    return names


@pytest.mark.parametrize("name", WAYS)
def test_a_loop_hands_its_backend_on(name: str, asked: list[str]) -> None:
    """Bug: a loop on a GPU that uses Triton and ignores the argument."""
    WAYS[name]()
    assert set(asked) == {"auto"}
    asked.clear()
    WAYS[name](backend="torch")
    assert set(asked) == {"torch"}


@pytest.mark.parametrize("name", WAYS)
def test_an_unknown_backend_is_refused_before_anything_is_drafted(name: str) -> None:
    for wrong in ("numpy", "cuda", None):
        with pytest.raises(UnknownMethodError, match="auto, torch, triton"):
            WAYS[name](backend=wrong)


def test_the_environment_names_the_backend_of_a_loop(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "numpy")
    with pytest.raises(InvalidInputError, match=VARIABLE):
        WAYS["speculative"]()
    WAYS["speculative"](backend="torch")
    assert asked == ["auto", *["torch"] * (len(asked) - 1)]
