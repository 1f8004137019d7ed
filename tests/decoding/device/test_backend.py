"""The loops hand the named backend on, and refuse one that no device has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from otm.coupled import CoupledVerifier, decode_coupled  # noqa: E402
from otm.decoding import DeviceVerifier, ModelDrafter, spectr, speculative, stream
from otm.errors import InvalidInputError, UnknownMethodError  # noqa: E402
from otm.kernels.registry import VARIABLE  # noqa: E402
from tests.decoding.device.test_rounds import PROMPTS, VOCABULARY, gpt  # noqa: E402

TARGET, DRAFT = gpt(0, layers=1), gpt(1, layers=1)
OPTIONS: dict[str, Any] = {"gamma": 2, "max_tokens": 4, "seed": 0}

WAYS: dict[str, Callable[..., Any]] = {
    "speculative": lambda **o: speculative(TARGET, DRAFT, PROMPTS, **OPTIONS, **o),
    "spectr": lambda **o: spectr(TARGET, DRAFT, PROMPTS, k=2, rule="grid k-Seq", **OPTIONS, **o),
    "coupled": lambda **o: coupled(TARGET, DRAFT, PROMPTS, **OPTIONS, **o),
    "stream": lambda **o: list(
        stream(TARGET, PROMPTS, ModelDrafter(DRAFT), DeviceVerifier("block"), **OPTIONS, **o)
    ),
    "coupled stream": lambda **o: list(
        stream(TARGET, PROMPTS, ModelDrafter(DRAFT), CoupledVerifier(), **OPTIONS, **o)
    ),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Backends that are asked for; the device that is the host verifies whatever the size is."""
    names: list[str] = []
    for place in ("on_device.verify_probs", "coupled_on_device.first_rings"):
        module, name = place.split(".")
        real = getattr(__import__(f"otm.decoding.{module}", fromlist=[name]), name)

        def noted(*given: Any, backend: str, real: Any = real, **options: Any) -> Any:
            names.append(backend)
            return real(*given, backend=backend, **options)

        monkeypatch.setattr(f"otm.decoding.{place}", noted)
    monkeypatch.setattr("otm.decoding.device.rounds.LEAST_VOCABULARY", VOCABULARY)
    return names


@pytest.mark.parametrize("name", WAYS)
def test_a_loop_hands_its_backend_on(name: str, asked: list[str]) -> None:
    """Bug: a loop on a GPU that takes Triton whatever one says."""
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
