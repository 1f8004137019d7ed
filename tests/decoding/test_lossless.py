"""Every lossless loop has, in fractions, exactly the output distribution of the target model.

The tests call the loop along every path of its comparisons (`otm.testing.paths`), with the drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs, align
from otm.coupling import KSeq, MaximalCoupling, OptimalPlan, RecursiveRejection
from otm.coupling.plan import TransportPlan
from otm.decoding import autoregressive, spectr, speculative, stream
from otm.decoding.draft_tree import DraftNode, Randomness
from otm.decoding.drafters.base import Branching
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import TargetProbs, Verifier
from otm.decoding.verifiers.block_traversal import verify_traversal
from otm.decoding.verifiers.chain import verify_chain
from otm.decoding.verifiers.recursion import spectr_verifier
from otm.models import TableModel
from otm.problem import Problem
from otm.testing.sequences import (
    by_conditional,
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)

PROMPT = (0,)


pytestmark = pytest.mark.usefixtures("each_plan_once")


def models(vocabulary: int, seed: int) -> tuple[TableModel, TableModel]:
    """Two unrelated tables of order 2, with zeros."""
    rng = np.random.default_rng(seed)
    return TableModel.random(vocabulary, 2, rng), TableModel.random(vocabulary, 2, rng)


def one_step(
    target: TableModel,
    draft: TableModel,
    verify: Verifier,
    *,
    branching: Branching = 1,
    gamma: int,
    end: int | None = None,
) -> dict[Path, Fraction]:
    """Distribution of what the first step outputs."""

    def output(uniforms: Randomness) -> Path:
        drafter = ModelDrafter(draft, branching)
        steps = stream(
            target, [PROMPT], drafter, verify, gamma=gamma, eos_token_id=end, uniforms=[uniforms]
        )
        return next(steps).output

    return output_distribution_of(output)


def assert_step_lossless(
    vocabulary: int,
    gamma: int,
    branching: Branching,
    verify: Verifier,
    *,
    seed: int,
    end: int | None = None,
) -> None:
    target, draft = models(vocabulary, seed)
    law = one_step(target, draft, verify, branching=branching, gamma=gamma, end=end)
    length = gamma + 1
    assert continued_distribution(law, target, PROMPT, length, end) == sequence_distribution(
        target, PROMPT, length, end
    )


@pytest.mark.parametrize("verify", [verify_chain, verify_traversal])
@pytest.mark.parametrize(("gamma", "end"), [(2, None), (2, 1), (3, None)])
def test_chain_continued_by_the_target_has_its_law(
    verify: Verifier, gamma: int, end: int | None
) -> None:
    assert_step_lossless(3, gamma, 1, verify, seed=gamma, end=end)


@pytest.mark.parametrize("rule", [KSeq, RecursiveRejection], ids=["k-Seq", "recursive rejection"])
@pytest.mark.parametrize(("vocabulary", "gamma", "k"), [(2, 1, 3), (3, 1, 2), (2, 2, 2)])
def test_spectr_with_the_rules_own_uniforms(
    rule: type[KSeq | RecursiveRejection], vocabulary: int, gamma: int, k: int
) -> None:
    assert_step_lossless(vocabulary, gamma, k, spectr_verifier(rule), seed=4, end=1)


@pytest.mark.parametrize("branching", [2, (1, 2)], ids=str)
@pytest.mark.parametrize(
    "rule", [OptimalPlan, RecursiveRejection], ids=["optimal", "recursive rejection"]
)
def test_spectr_with_the_rules_conditional_laws(
    rule: type[TransportPlan], branching: Branching
) -> None:
    verify = spectr_verifier(by_conditional(rule))
    assert_step_lossless(2, 2, branching, verify, seed=9)


@pytest.mark.parametrize("branching", [2, (1, 2)], ids=str)
def test_traversal_of_chains_and_prefix_trees(branching: Branching) -> None:
    assert_step_lossless(2, 2, branching, verify_traversal, seed=9)


Decode = Callable[[TableModel, TableModel, Randomness], Path]


def _autoregressive(target: TableModel, draft: TableModel, uniforms: Randomness) -> Path:
    return autoregressive(
        target, [PROMPT], max_tokens=3, eos_token_id=1, uniforms=[uniforms]
    ).sequences[0]


def _chain(target: TableModel, draft: TableModel, uniforms: Randomness) -> Path:
    return speculative(
        target, draft, [PROMPT], gamma=2, max_tokens=3, eos_token_id=1, uniforms=[uniforms]
    ).sequences[0]


def _block(target: TableModel, draft: TableModel, uniforms: Randomness) -> Path:
    return speculative(
        target,
        draft,
        [PROMPT],
        gamma=2,
        rule="block",
        max_tokens=3,
        eos_token_id=1,
        uniforms=[uniforms],
    ).sequences[0]


def _spectr(target: TableModel, draft: TableModel, uniforms: Randomness) -> Path:
    return spectr(
        target,
        draft,
        [PROMPT],
        k=2,
        gamma=1,
        rule=by_conditional(OptimalPlan),
        max_tokens=3,
        eos_token_id=1,
        uniforms=[uniforms],
    ).sequences[0]


@pytest.mark.parametrize("decode", [_autoregressive, _chain, _block, _spectr])
def test_whole_sequences_have_the_law_of_the_target(decode: Decode) -> None:
    """Several steps, an end token and the limit of the length, all inside of blocks."""
    target, draft = models(3 if decode is not _spectr else 2, seed=8)
    law = output_distribution_of(lambda uniforms: decode(target, draft, uniforms))
    assert law == sequence_distribution(target, PROMPT, 3, end=1)


# Each of these is a bug that was found in somebody's decoder.


def _residual_of_the_wrong_row(root: DraftNode, target: TargetProbs, uniforms: Randomness) -> Path:
    """Draw the correction from the residual of the row after the rejected draft."""
    child = root.children[0]
    coin, rest = uniforms(2)
    if coin * root.checked_draft_probs().of(child.token) < target(()).of(child.token):
        return (child.token, *_token(target(child.path), uniforms))
    tokens, _, wanted = align(root.checked_draft_probs(), target(child.path))
    return _token(SparseProbs.from_support(tokens, wanted), lambda m: np.array([rest]))


def _shared_coin(root: DraftNode, target: TargetProbs, uniforms: Randomness) -> Path:
    """Use the acceptance coin again for the residual."""
    coin = uniforms(1)
    return verify_chain(root, target, lambda m: np.array([coin[0]] * m))


def _bonus_from_the_draft(root: DraftNode, target: TargetProbs, uniforms: Randomness) -> Path:
    """Draw the token behind the accepted drafts from the draft model's distribution."""

    def wrong(path: Path) -> SparseProbs:
        return root.checked_draft_probs() if path else target(path)

    return verify_chain(root, wrong, uniforms)


def _largest_first(problem: Problem) -> MaximalCoupling:
    """Take min(p, q) of the wrong one of two distributions: draft and target swapped."""
    return MaximalCoupling(Problem(problem.target, problem.draft, problem.k))


@pytest.mark.parametrize(
    "verify", [_residual_of_the_wrong_row, _shared_coin, _bonus_from_the_draft]
)
def test_broken_verifiers_are_rejected(verify: Verifier) -> None:
    target = TableModel(
        {
            (): [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)],
            (1,): [0, Fraction(1, 4), Fraction(3, 4)],
        }
    )
    draft = TableModel({(): [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]})
    law = one_step(target, draft, verify, gamma=1)
    assert continued_distribution(law, target, PROMPT, 2) != sequence_distribution(
        target, PROMPT, 2
    )


def _token(law: SparseProbs, uniforms: Randomness) -> Path:
    return (int(law.draw(uniforms(1))[0]),)
