"""Texts of the same seed: the same alone, beside other requests and in another order, or not."""

from __future__ import annotations

import pytest

pytest.importorskip("httpx2")

from otm.audit.streams.server.checks.seeds import (
    IDENTICAL,
    NOT_IDENTICAL,
    UP_TO_TIES,
    SeededTexts,
    repeat_seeds,
)
from otm.audit.streams.server.client import Access, Client
from otm.audit.streams.server.settings import PROMPTS
from otm.audit.streams.server.simulated.batches import batching_server
from tests.audit.streams.server.servers import Place, serve


def texts_of(server: object) -> SeededTexts:
    found = repeat_seeds(Client("http://s", None, Access(retries=0), server), PROMPTS, 8)
    assert found is not None
    return found


@pytest.mark.parametrize("vocabulary", [50, 300])
def test_a_server_that_keeps_seeds(vocabulary: int) -> None:
    """The control; with noise, texts may differ where rounding exchanges two tokens."""
    exact = texts_of(batching_server(vocabulary=vocabulary))
    assert (exact.verdict, exact.same, exact.texts, exact.cause) == (IDENTICAL, 12, 12, "")
    noisy = texts_of(batching_server(vocabulary=vocabulary, noise=1e-2))
    assert noisy.verdict in (IDENTICAL, UP_TO_TIES)
    assert noisy.cause == ""


@pytest.mark.parametrize("vocabulary", [50, 300])
@pytest.mark.parametrize(
    ("fault", "cause"), [("seed ignored", "seed were ignored"), ("shared seed", "shared a seed")]
)
def test_a_server_that_breaks_seeds_is_named(vocabulary: int, fault: str, cause: str) -> None:
    """Bug: a text that is only sent twice without other requests hides a shared seed."""
    # Each time: a busy machine makes other batches, so chance would decide how often.
    found = texts_of(batching_server(fault=fault, vocabulary=vocabulary, noise=1e-3, share=1))
    assert found.verdict == NOT_IDENTICAL
    assert cause in found.cause


def test_a_server_that_does_not_sample_shares_no_seed() -> None:
    """Bug: a hint at seeds where the server always takes the most probable token."""

    def greedy(at: Place) -> int:
        return int(at.logits.argmax())

    found = texts_of(serve(greedy))
    assert found.verdict == IDENTICAL
    assert "did not sample" in found.cause


def test_a_server_that_rejects_seeds_is_not_judged() -> None:
    server = serve(takes=lambda body: "no seeds" if "seed" in body else "")
    assert repeat_seeds(Client("http://s", None, Access(retries=0), server), PROMPTS, 8) is None
