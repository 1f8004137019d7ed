"""Greedy texts of two servers that differ: ties, or a fault."""

from __future__ import annotations

import httpx2
import pytest

from otm.audit.streams.server.answers import Prompt
from otm.audit.streams.server.checks.greedy_texts import GreedyTexts, compare_greedy_texts
from otm.audit.streams.server.checks.prompt_reader import PromptReader
from otm.audit.streams.server.client import Access, Client
from otm.audit.streams.server.settings import PROMPTS
from otm.audit.streams.server.simulated.batches import batching_server


def compare(one: httpx2.MockTransport, other: httpx2.MockTransport) -> GreedyTexts:
    prompts: tuple[Prompt, ...] = PROMPTS
    readers = [
        PromptReader(Client("http://s", None, Access(retries=0), server), prompts)
        for server in (one, other)
    ]
    found = compare_greedy_texts(readers, None, 16)
    assert found is not None
    return found


@pytest.mark.parametrize("vocabulary", [50, 300])
def test_ties_are_explained(vocabulary: int) -> None:
    """Logits on a grid tie often, and the noise of each pass decides.  Bug: called a fault."""
    servers = [
        batching_server(vocabulary=vocabulary, grid=1.0, noise=1e-3, seed=seed) for seed in (0, 1)
    ]
    found = compare(*servers)
    assert found.same < found.texts
    assert (found.explained, found.not_explained) == (found.texts - found.same, 0)
    assert "explained by rounding" in str(found)


@pytest.mark.parametrize("vocabulary", [50, 300])
def test_a_fault_is_not_explained(vocabulary: int) -> None:
    """Bug: all is called rounding.  The server accepts drafts at temperature 0."""
    wrong = batching_server(fault="greedy drafts", share=1.0, vocabulary=vocabulary, noise=1e-3)
    found = compare(wrong, batching_server(vocabulary=vocabulary, noise=1e-3, seed=1))
    assert found.not_explained >= 3
    assert found.explained == 0
    assert "not explained by rounding; after" in str(found)


def test_wrong_lists_explain_nothing() -> None:
    """Bug: lists of another position differ by so much that every margin is below it."""
    wrong = batching_server(fault="shifted lists", share=1.0, noise=1e-3, grid=1.0)
    found = compare(wrong, batching_server(noise=1e-3, grid=1.0, seed=1))
    assert found.not_explained == 0


def test_equal_texts() -> None:
    found = compare(batching_server(), batching_server(seed=1))
    assert (found.same, found.texts, found.first, str(found)) == (4, 4, "", "4 of 4 the same")
