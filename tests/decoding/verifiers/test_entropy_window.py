"""Entropy windows: exact distributions of a step against their definition; how much they lose."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import pytest

from otm._core.probs.sparse import SparseProbs
from otm.decoding import ModelDrafter, entropy_window_verifier, verify_chain
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import Verifier
from otm.decoding.verifiers.entropy_window import top_entropy
from otm.errors import InvalidDraftCountError, InvalidDraftsError, InvalidParameterError
from otm.models import TableModel
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

F = Fraction
GAMMA, WINDOW = 3, 1


def models() -> tuple[TableModel, TableModel]:
    """Three tokens; what the last token was decides, and the target is sure after a 2."""
    target = {(0,): [2, 1, 3], (1,): [1, 4, 1], (2,): [5, 1, 0]}
    draft = {(0,): [3, 2, 1], (1,): [2, 1, 3], (2,): [1, 3, 2]}
    tables = [{c: [F(x, 6) for x in law] for c, law in laws.items()} for laws in (draft, target)]
    return TableModel(tables[0] | {(): tables[0][0,]}), TableModel(tables[1] | {(): tables[1][0,]})


def law_of(verify: Verifier, gamma: int) -> dict[Path, Fraction]:
    """Exact distribution of one step's output after the prompt (0,)."""
    draft, target = models()

    def step(uniforms: Randomness) -> Path:
        (root,) = ModelDrafter(draft).draft([(0,)], [gamma], None, [uniforms])
        return verify(root, lambda path: SparseProbs(range(3), target.probs((0, *path))), uniforms)

    return output_distribution_of(step)


def law_by_definition(threshold: float) -> dict[Path, Fraction]:
    """Sum over all drafts and all outcomes of their coins."""
    draft, target = models()
    law: dict[Path, Fraction] = defaultdict(Fraction)
    for drafts in itertools.product(range(3), repeat=GAMMA):
        laws = [
            (draft.probs((0, *drafts[:i])), target.probs((0, *drafts[:i]))) for i in range(GAMMA)
        ]
        chance = math.prod((p[x] for (p, _), x in zip(laws, drafts, strict=True)), start=F(1))
        passes = [min(F(1), q[x] / p[x]) for (p, q), x in zip(laws, drafts, strict=True)]
        for coins in itertools.product((True, False), repeat=GAMMA):
            weight = chance * math.prod(
                (a if coin else 1 - a for a, coin in zip(passes, coins, strict=True)), start=F(1)
            )
            stop = GAMMA
            for i, (_, q) in enumerate(laws):
                entropy = -sum(float(x) * math.log(x) for x in q if x)
                kept = i + WINDOW < GAMMA and coins[i + 1] and q[drafts[i]] > 0
                if not coins[i] and not (kept and entropy >= threshold):
                    stop = i
                    break
            if stop == GAMMA:
                last = list(target.probs((0, *drafts)))
            else:
                p, q = laws[stop]
                left = [max(y - x, F(0)) for x, y in zip(p, q, strict=True)]
                last = [x / sum(left) for x in left] if weight else [F(0)] * 3
            for token, probability in enumerate(last):
                if weight * probability:
                    law[(*drafts[:stop], token)] += weight * probability
    return dict(law)


@pytest.mark.parametrize("threshold", [0.0, 0.9])
def test_one_step_has_the_law_of_the_definition(threshold: float) -> None:
    """Catches windows that read coins again, and sure rejections that are kept."""
    assert law_of(entropy_window_verifier(WINDOW, threshold), GAMMA) == law_by_definition(threshold)


def test_out_of_reach_it_is_chain_verification() -> None:
    lossless = law_of(verify_chain, 2)
    for never in (entropy_window_verifier(2, 0.0), entropy_window_verifier(1, 2.0)):
        assert law_of(never, 2) == lossless


def test_how_much_it_loses() -> None:
    """Two tokens, q = (1/3, 2/3), p = (2/3, 1/3): TV 2/9, for 4/9 of a token more."""
    draft, target = TableModel({(): [F(2, 3), F(1, 3)]}), TableModel({(): [F(1, 3), F(2, 3)]})

    def step(uniforms: Randomness) -> Path:
        (root,) = ModelDrafter(draft).draft([(0,)], [2], None, [uniforms])
        verify = entropy_window_verifier(1, 0.6)
        return verify(root, lambda path: SparseProbs([0, 1], [F(1, 3), F(2, 3)]), uniforms)

    law = output_distribution_of(step)
    wanted = sequence_distribution(target, (0,), 3)
    got = continued_distribution(law, target, (0,), 3)
    distance = sum(abs(got.get(y, F(0)) - x) for y, x in wanted.items()) / 2
    assert distance == F(2, 9)
    assert sum(len(path) * x for path, x in law.items()) == F(19, 9) + F(4, 9)


def test_the_entropy_is_of_the_likeliest() -> None:
    probs = SparseProbs([0, 1, 2, 3], [0.4, 0.4, 0.1, 0.1])
    assert top_entropy(probs, 2) == pytest.approx(math.log(2))
    assert top_entropy(SparseProbs([7], [1.0]), 3) == 0


def test_bad_input() -> None:
    with pytest.raises(InvalidDraftCountError):
        entropy_window_verifier(0, 0.3)
    with pytest.raises(InvalidParameterError, match="threshold"):
        entropy_window_verifier(1, -1)
    root = DraftNode((), SparseProbs([0, 1], [0.5, 0.5]), [DraftNode((0,)), DraftNode((1,))])
    with pytest.raises(InvalidDraftsError, match="need a single chain"):
        entropy_window_verifier(1, 0.3)(root, lambda path: root.checked_draft_probs(), lambda m: [])
