"""Kernel rules on the host: the NumPy reference's decisions, and the same distribution."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import defaultdict
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.coupling import OptimalPlan
from otm.decoding import DraftNode, ModelDrafter, spectr, stream
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Branching
from otm.decoding.reading import Path
from otm.decoding.verifiers.base import Verifier
from otm.decoding.verifiers.by_rule import host_verifier
from otm.decoding.verifiers.grid import verify_grid_walk_and_keep
from otm.errors import InvalidDraftsError, ProblemTooLargeError
from otm.kernels import verify_probs
from otm.kernels.k_seq import numpy as k_seq
from otm.kernels.optimal import numpy as optimal
from otm.kernels.registry import uniforms_per_position
from otm.kernels.walk_and_keep import numpy as walk_and_keep
from otm.models import TableModel
from otm.problem import Problem
from otm.rules import RULES
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)
from tests.kernels.walk_and_keep.test_numpy import kept

F = Fraction
PROMPT = (0,)
GRID = ("grid k-Seq", "grid optimal", "grid walk and keep")
UNIFORM = [F(1, 3)] * 3
RISING = [F(1, 6), F(2, 6), F(3, 6)]
TARGET = TableModel({(): [F(1, 3), F(2, 3)], (1,): [F(3, 4), F(1, 4)]})
DRAFT = TableModel({(): [F(2, 3), F(1, 3)], (1,): [F(1), F(0)]})


@pytest.fixture(autouse=True)
def each_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the table of a node once: the paths of a loop meet the same few a thousand times."""
    monkeypatch.setattr(walk_and_keep, "bin_tokens", kept(walk_and_keep.bin_tokens))
    monkeypatch.setattr(optimal, "bin_tokens", kept(optimal.bin_tokens))
    monkeypatch.setattr(k_seq, "find_split", kept(k_seq.find_split))


def step_law(
    verify: Any, target: TableModel, draft: TableModel, branching: Branching, gamma: int
) -> dict[Path, Fraction]:
    """Return the output distribution of one step of the loop, over all drafts and all coins."""

    def step(uniforms: Randomness) -> Path:
        drafter = ModelDrafter(draft, branching)
        options: dict[str, Any] = {"gamma": gamma, "uniforms": [uniforms]}
        return next(stream(target, [PROMPT], drafter, verify, **options)).output

    return output_distribution_of(step)


def accepted(law: dict[Path, Fraction]) -> Fraction:
    return sum((chance * (len(path) - 1) for path, chance in law.items()), F(0))


@pytest.mark.parametrize(
    ("rule", "branching"), [*((rule, (1, 2)) for rule in GRID), ("grid walk and keep", 2)]
)
def test_a_loop_has_the_law_of_the_target(rule: str, branching: Branching) -> None:
    """Bug: rows, draws or uniforms that the layout of a tree gives to the wrong path."""
    law = step_law(host_verifier(RULES[rule]), TARGET, DRAFT, branching, 2)
    assert continued_distribution(law, TARGET, PROMPT, 3) == sequence_distribution(
        TARGET, PROMPT, 3
    )


def test_walk_and_keep_on_a_grid_is_the_kernel_and_not_the_rule_without_a_grid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a name that means one rule on a device and another one on the host."""
    # With one bin an octave, two of the three tokens share a bin: the kernel accepts less.
    coarse = partial(walk_and_keep.verify, steps=1)
    monkeypatch.setattr(walk_and_keep, "verify", coarse)
    target, draft = TableModel({(): RISING}), TableModel({(): UNIFORM})
    law = step_law(verify_grid_walk_and_keep, target, draft, 2, 1)
    assert continued_distribution(law, target, PROMPT, 2) == sequence_distribution(
        target, PROMPT, 2
    )
    assert accepted(law) == accepted(kernel_law(RISING, UNIFORM)) < 1
    # "walk and keep" is an optimal plan for one token.
    assert OptimalPlan(Problem(UNIFORM, RISING, 2)).acceptance == 1


def kernel_law(target: list[Fraction], draft: list[Fraction]) -> dict[Path, Fraction]:
    """Distribution of the output of `verify_probs` for two chains of one draft."""
    law: dict[Path, Fraction] = defaultdict(F)
    rows = np.array([[[target] * 2] * 2], object), np.array([[[draft]] * 2], object)
    for drafts in itertools.product(range(3), repeat=2):

        def verify(uniforms: Randomness, drafts: Any = drafts) -> Path:
            tokens = np.array(drafts).reshape(1, 2, 1)
            options = {"rule": "grid walk and keep", "validate": False}
            outcome = verify_probs(*rows, tokens, uniforms(5)[None], **options)
            return tuple(outcome.tokens[0, : outcome.accepted[0] + 1].tolist())

        for path, chance in output_distribution_of(verify).items():
            law[path] += chance * draft[drafts[0]] * draft[drafts[1]]
    return law


@pytest.mark.parametrize("rule", GRID)
def test_every_decision_is_that_of_the_kernel(rule: str) -> None:
    """Bug: other uniforms, or the same ones in another order, than on a device."""
    rng, verify = np.random.default_rng(3), host_verifier(RULES[rule])
    for chains, gamma in itertools.product((1, 2, 5), (0, 1, 3)):
        rows = rng.dirichlet(np.ones(7), size=(2, gamma + 1))
        target, draft = ([SparseProbs.from_dense(row) for row in model] for model in rows)
        root = DraftNode()
        if gamma:
            root.draw_children(draft[0], chains, rng.random)
        for child in root.children:
            node = child
            for probs in draft[1:gamma]:
                node.draw_children(probs, 1, rng.random)
                (node,) = node.children
        uniforms = rng.random(gamma * uniforms_per_position(rule, chains) + 2)
        found = verify(root, lambda path, rows=target: rows[len(path)], lambda m, u=uniforms: u[:m])
        if gamma == 0:
            continue
        tokens = np.array(root.repeated_leaf_paths())[None]
        of_target, of_draft = (np.broadcast_to(model, (1, chains, gamma + 1, 7)) for model in rows)
        outcome = verify_probs(of_target, of_draft[:, :, :gamma], tokens, uniforms[None], rule=rule)
        assert found == tuple(outcome.tokens[0, : outcome.accepted[0] + 1].tolist())


def test_host_and_device_decode_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a seed that gives one text on a GPU and another one on the host."""
    pytest.importorskip("torch")
    from tests.decoding.device.test_rounds import VOCABULARY, gpt

    target, draft = gpt(0, layers=2), gpt(1, layers=1)
    for rule in GRID:
        texts = []
        for least in (VOCABULARY, VOCABULARY + 1):
            monkeypatch.setattr("otm.decoding.rounds.LEAST_VOCABULARY", least)
            made = spectr(
                target, draft, [[0], [1, 2]], k=3, gamma=3, rule=rule, max_tokens=25, seed=5
            )
            texts.append([(step.drafts, step.output) for step in made.steps])
        assert texts[0] == texts[1], rule


def a_tree(*paths: Path) -> DraftNode:
    probs = SparseProbs([0, 1], [0.5, 0.5])
    nodes = {(): DraftNode()}
    for path in paths:
        nodes[path] = DraftNode(path)
        nodes[path[:-1]].children.append(nodes[path])
        nodes[path[:-1]].draft_probs = probs
    return nodes[()]


def test_a_shape_that_tokens_may_decide_is_refused() -> None:
    """Bug: paths that end where their tokens say; the rule would look at their number."""
    verify: Verifier = verify_grid_walk_and_keep
    half = SparseProbs([0, 1], [0.5, 0.5])
    with pytest.raises(InvalidDraftsError, match=r"have 0 and 1 children.*'walk and keep'"):
        verify(a_tree((0,), (1,), (1, 0)), lambda path: half, np.zeros)
    # one chain may end anywhere
    assert verify(a_tree((0,)), lambda path: half, np.zeros) == (0, 0)


def test_too_many_paths_are_refused_with_a_way_out() -> None:
    half, root = SparseProbs([0, 1], [0.5, 0.5]), DraftNode()
    root.draw_children(half, 257, np.random.default_rng(0).random)
    with pytest.raises(ProblemTooLargeError, match=r"257 paths.*'grid optimal'"):
        verify_grid_walk_and_keep(root, lambda path: half, np.zeros)
    output = host_verifier(RULES["grid k-Seq"])
    assert len(output(root, lambda path: half, np.zeros)) == 2  # type: ignore[operator]


@pytest.mark.parametrize("rule", ["grid k-Seq", "grid optimal", "grid walk and keep"])
def test_pickled_and_copied(rule: str) -> None:
    verify = RULES[rule].load_verifier()
    assert pickle.loads(pickle.dumps(verify)) is copy.deepcopy(verify) is verify
