"""Prompt lookup against a search by hand, and its losslessness in fractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from otm.coupling import KSeq
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.prompt_lookup import LONGEST_COPY, PromptLookup
from otm.decoding.loop import stream
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import Verifier
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.chain import verify_chain
from otm.decoding.verifiers.recursion import spectr_verifier
from otm.decoding.verifiers.walk_and_keep import verify_walk_and_keep
from otm.errors import InvalidParameterError
from otm.models.table import TableModel
from otm.testing.sequences import output_distribution_of, sequence_distribution


def no_uniforms(m: int) -> npt.NDArray[Any]:
    raise AssertionError("prompt lookup draws nothing")


def draft(longest: int, context: Sequence[int], depth: int) -> DraftNode:
    [root] = PromptLookup(longest).draft([tuple(context)], [depth], [0], [no_uniforms])
    return root


def copied(context: Sequence[int], longest: int, depth: int) -> tuple[int, ...]:
    """Find the latest of the longest matches, and copy what follows it token by token."""
    text = list(context)
    n = len(text)
    for m in range(min(longest, n - 1), 0, -1):
        for end in range(n - 2, m - 2, -1):
            if text[end - m + 1 : end + 1] == text[n - m :]:
                for i in range(depth):
                    text.append(text[end + 1 + i])
                return tuple(text[n:])
    return ()


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
def test_copies_what_follows_the_latest_longest_match(longest: int) -> None:
    """Bug: the first match, a shorter one, the end itself, or a match that begins before the text.

    Also a copy that is one token off, or that stops or goes astray at the end of the context.
    """
    rng = np.random.default_rng(longest)
    for _ in range(300):
        context = rng.integers(rng.integers(1, 5), size=rng.integers(1, 15)).tolist()
        depth = int(rng.integers(7))
        expected = copied(context, longest, depth)
        assert draft(longest, context, depth).leaf_paths() == [expected], (context, depth)


def test_drafts_are_certain_and_carry_their_law() -> None:
    """Bug: a node's distribution is not that of its child, so that the verifier is not lossless."""
    root = draft(3, [4, 7, 9, 4], 3)
    nodes = list(root.nodes())
    assert nodes[-1].path == (7, 9, 4)
    assert nodes[-1].draft_probs is None
    for node in nodes[:-1]:
        [child] = node.children
        law = node.checked_draft_probs()
        assert (law.tokens.tolist(), law.probabilities.tolist()) == ([child.token], [1.0])


@pytest.mark.parametrize("context", [(3,), (1, 2, 3)])
def test_without_a_match_there_is_no_draft(context: tuple[int, ...]) -> None:
    """Bug: a context of one token or without repetition fails, or is continued at random."""
    root = draft(3, context, 4)
    assert (root.path, root.draft_probs, root.children) == ((), None, [])


def test_each_sequence_has_its_own_context_and_depth() -> None:
    """Bug: sequences of a batch are mixed up, or a depth of zero still drafts."""
    contexts, depths = [(1, 2, 1), (5, 5), (3, 4, 3), (8, 9)], [2, 3, 0, 2]
    roots = PromptLookup().draft(contexts, depths, [2, 0, 1, 1], [no_uniforms] * 4)
    assert [root.leaf_paths() for root in roots] == [[(2, 1)], [(5, 5, 5)], [()], [()]]


def test_a_long_context_is_searched_in_one_pass() -> None:
    """Bug: all pairs of places are compared, here 10¹⁰ of them."""
    assert draft(30, [7] * 100_000, 2).leaf_paths() == [(7, 7)]


@pytest.mark.parametrize(
    "verifier", [verify_chain, verify_traversal, verify_walk_and_keep, spectr_verifier(KSeq)]
)
def test_output_has_the_target_law(verifier: Verifier) -> None:
    """Bug: drafts that the target gives with a small probability are accepted too often.

    Also: distributions of drafts in floats, beside a target in fractions, make the loop inexact.
    """
    model = TableModel.random(3, order=2, rng=np.random.default_rng(5))
    prompt = (0, 2, 1, 0, 2)

    def output(uniforms: Randomness) -> Path:
        drafter = PromptLookup(2)
        steps = stream(
            model, [prompt], drafter, verifier, gamma=2, max_tokens=4, uniforms=[uniforms]
        )
        return tuple(token for step in steps for token in step.output)

    assert output_distribution_of(output) == sequence_distribution(model, prompt, 4)


@pytest.mark.parametrize("longest", [0, -1, 1.0, True, None])
def test_bad_lengths_are_refused(longest: Any) -> None:
    """Bug: a length of zero matches everything."""
    with pytest.raises(InvalidParameterError, match="max_ngram = "):
        PromptLookup(longest)


def test_a_copy_is_bounded() -> None:
    """Bug: memory for as many drafts as anybody may ask for."""
    assert draft(2, [1, 2, 1, 2], 10**12).leaf_paths() == [(1, 2) * (LONGEST_COPY // 2)]
