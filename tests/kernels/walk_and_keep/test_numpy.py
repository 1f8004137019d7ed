"""Walk and keep by bins: exactly lossless, block verification of one chain, and nearly the best."""

from __future__ import annotations

import inspect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm.coupling.optimal.agreeing import AgreeingDrafts
from otm.kernels import verify_probs
from otm.kernels.multi_draft.numpy import verify_chains
from otm.kernels.optimal import numpy as grid_optimal
from otm.kernels.optimal.numpy import Places, bin_tokens, choose_slots, winner_probs
from otm.kernels.walk_and_keep import numpy as grid_walk_and_keep
from otm.kernels.walk_and_keep.numpy import count_given_winner, uniforms_per_position
from otm.testing import paths
from tests.kernels.multi_draft.test_numpy import (
    Model,
    array,
    law_of_output,
    probability,
    random_model,
)
from tests.kernels.optimal.test_numpy import PAIRS, law_of, laws_like_real_ones
from tests.kernels.tree.test_numpy import TREES, first_uses, models
from tests.kernels.tree.test_numpy import law_of_output as law_of_tree

F = Fraction
RULE = "grid walk and keep"


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what a function returns: thousands of paths pass the same few nodes."""
    known = dict[Any, Any]()

    def find(*arguments: Any) -> Any:
        key = tuple(x if isinstance(x, int) else tuple(np.ravel(x)) for x in arguments[:3])
        key += tuple(arguments[3:])
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return find


@pytest.fixture
def one_bin_an_octave(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Verify on a coarse grid, whose bins have tokens of several ratios."""
    coarse(grid_walk_and_keep, monkeypatch)
    return grid_walk_and_keep


def coarse(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify_probs` take the kernel of a module, with one bin an octave."""
    monkeypatch.setattr(module, "bin_tokens", kept(bin_tokens))
    verify = partial(module.verify, steps=1)
    monkeypatch.setattr(grid_walk_and_keep, "verify", verify)


@pytest.mark.usefixtures("one_bin_an_octave")
@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (2, (3,)),
        (3, (1, 1)),
        (2, (2, 2)),
        (2, (1, 2)),
        (2, (2, 0)),
        (3, (2, 2)),
        (2, (1, 1, 1)),
        (2, (1, 2, 2)),
    ],
)
def test_the_joint_law_is_exactly_the_target_s(size: int, lengths: tuple[int, ...]) -> None:
    rng = np.random.default_rng([size, *lengths])
    target, draft = random_model(rng, size, max(lengths) + 1), random_model(rng, size, max(lengths))
    if size > 2 and sum(lengths) > 3:  # less to enumerate: drafts of two tokens alone
        for law in draft.values():
            first = F(int(rng.integers(1, 5)), 5)
            law[:] = [first, 1 - first, *[F(0)] * (size - 2)]
    found = law_of_output(target, draft, lengths, size, RULE)
    assert found == {tokens: probability(target, tokens) for tokens in found}


@pytest.mark.usefixtures("one_bin_an_octave")
@pytest.mark.parametrize("name", ["a root twice", "one root, two leaves"])
def test_the_joint_law_of_trees_is_exactly_the_target_s(name: str) -> None:
    tree, depth = TREES[name], max(map(len, TREES[name]))
    target, draft = models(2, depth)
    found = law_of_tree(tree, target, draft, RULE, first_uses(tree, depth))
    assert found == {tokens: probability(target, tokens) for tokens in found}


SLIPPERY = (
    {(): [1, 3], (0,): [3, 1], (1,): [1, 2], (0, 0): [1, 3], (0, 1): [2, 1], (1, 0): [1, 1],
     (1, 1): [1, 4]},
    {(): [2, 1], (0,): [1, 2], (1,): [3, 1]},
)  # fmt: skip

SLIPS = {
    "the number of agreeing drafts stays": ("numbers = count_given_winner(", "count_given_winner("),
    "all drafts agree": ("agree = running == x", "agree = running >= 0"),
    "left without share": (
        "left = np.maximum(mass(share * target)",
        "left = np.maximum(mass(target)",
    ),
    "table without share": ("bin_tokens(share * target", "bin_tokens(target"),
    "share of the step alone": ("next_weight(share, target", "next_weight(1, target"),
    "left at the end of the walk": ("node = walked[depth]", "node = walked[-1]"),
    "kept like an end": ("Node(excess, excess + (1 - share)", "Node(share, 1"),
    "h without 1 − s": ("excess + (1 - share)", "excess"),
    "coin of the next draft": ("coins[depth - 1, -1]", "coins[min(depth, gamma - 1), -1]"),
    "ended chains are looked over": ("before & ~live", "before & False"),
}


def is_exact(target: Model, draft: Model, lengths: tuple[int, ...]) -> bool:
    found = law_of_output(target, draft, lengths, 2, RULE)
    return bool(found == {tokens: probability(target, tokens) for tokens in found})


@pytest.mark.parametrize("slip", SLIPS)
def test_the_exact_law_sees_a_slip(slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = SLIPS[slip]
    source = inspect.getsource(grid_walk_and_keep)
    assert source.count(right) == 1
    module = ModuleType("mutant")
    exec(compile(source.replace(right, wrong), "mutant", "exec"), vars(module))
    target, draft = (
        {path: [F(x, sum(law)) for x in law] for path, law in model.items()} for model in SLIPPERY
    )
    lengths = (1, 2) if slip.startswith("ended") else (2, 2)
    coarse(grid_walk_and_keep, monkeypatch)
    if slip == next(iter(SLIPS)):
        assert is_exact(target, draft, lengths)
    coarse(module, monkeypatch)
    try:
        assert not is_exact(target, draft, lengths)
    except (AssertionError, IndexError):
        return


def outcomes(rule: str, inputs: tuple[Any, ...], chains: int, gamma: int) -> dict[Any, Fraction]:
    """Distribution of the output of given drafts, arguments as for several chains."""
    arrays = [x[:, 0] if rule == "block" else x for x in inputs]
    used = 1 if rule == "block" else uniforms_per_position(chains)

    def verify(uniforms: np.ndarray) -> Any:
        outcome = verify_probs(*arrays, uniforms[None], rule=rule)
        return tuple(outcome.tokens[0].tolist()), int(outcome.accepted[0])

    law: dict[Any, Fraction] = defaultdict(F)
    for path in paths(verify, gamma * used + 2):
        law[path.outcome] += path.probability
    return law


@pytest.mark.usefixtures("one_bin_an_octave")
def test_one_chain_is_block_verification() -> None:
    """Catches a walk that stops early, which shows only in distributions given the drafts."""
    rng = np.random.default_rng(4)
    target, draft = random_model(rng, 3, 3), random_model(rng, 3, 2)
    for chain in itertools.product(range(3), repeat=2):
        if probability(draft, chain):
            rows = array([[[target[chain[:i]] for i in range(3)]]])
            inputs = rows, array([[[draft[chain[:i]] for i in range(2)]]]), np.array([[chain]])
            assert outcomes(RULE, inputs, 1, 2) == outcomes("block", inputs, 1, 2)


@pytest.mark.usefixtures("one_bin_an_octave")
@pytest.mark.parametrize(("draft", "target"), PAIRS[:5])
def test_one_draft_is_the_optimum_of_bins(
    draft: list[int], target: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    select = partial(grid_optimal.select, steps=1)
    monkeypatch.setattr(grid_optimal, "verify", partial(verify_chains, select))
    rows = array([[[law_of(target)] * 2] * 2]), array([[[law_of(draft)]] * 2])
    for drafts in itertools.product(np.flatnonzero(draft).tolist(), repeat=2):
        inputs = (*rows, np.array(drafts).reshape(1, 2, 1))
        assert outcomes(RULE, inputs, 2, 1) == outcomes("grid optimal", inputs, 2, 1)


def test_the_number_of_agreeing_drafts_is_that_of_all_draws() -> None:
    """By enumeration of drafts and slots: what wins, in which slot, and how many drafts it is."""
    chains = 3
    draft, target = law_of([3, 4, 2, 3]), law_of([1, 5, 4, 6])
    numbers = array([F(0), F(1, 6), F(1, 3), F(1, 2)])
    places, table = bin_tokens(F(3, 4) * target, draft, numbers, chains, 1)
    slots = [slots_of(x, places, table) for x in range(4)]
    assert max(map(len, slots)) > 1
    joint: dict[tuple[int, int], np.ndarray] = defaultdict(lambda: array([F(0)] * (chains + 1)))
    for m in range(1, chains + 1):
        for drafts in itertools.product(range(4), repeat=m):
            drawn = numbers[m] * math.prod((draft[x] for x in drafts), start=F(1))
            for taken in itertools.product(*(slots[x].items() for x in drafts)):
                slot = max(place for place, _ in taken)
                x = drafts[[place for place, _ in taken].index(slot)]
                likely = math.prod((chance for _, chance in taken), start=drawn)
                joint[x, slot][drafts.count(x)] += likely
    won = winner_probs(draft, places, table)
    for x in range(4):
        assert sum(sum(law) for (y, _), law in joint.items() if y == x) == won[x]
    for (x, slot), law in joint.items():
        place = Places(*(v[x : x + 1] for v in places))
        at, drafted = np.array([slot]), draft[x : x + 1]
        found = count_given_winner(numbers, table, place, at, drafted)
        assert found.tolist() == (law / law.sum()).tolist()
        floats = count_given_winner(*in_floats(numbers, table, place), at, drafted.astype(float))
        assert abs(floats - found).max() < 1e-12


def slots_of(token: int, places: Places, table: Any) -> dict[int, Fraction]:
    """Probability of each slot that a draft takes, by the paths of its uniform."""
    law: dict[int, Fraction] = defaultdict(F)
    drafted = Places(*(x[token : token + 1] for x in places))
    for path in paths(lambda uniforms: int(choose_slots(table, drafted, uniforms)[0]), 1):
        law[path.outcome] += path.probability
    return law


def in_floats(numbers: Any, table: Any, place: Places) -> tuple[Any, ...]:
    """Return the arguments of `count_given_winner` in floats, and in whole numbers of parts."""
    whole = {"lack", "excess", "below"}
    table = table._replace(
        **{
            name: np.array([int(2**61 * v) if name in whole else float(v) for v in values])
            for name, values in table._asdict().items()
        }
    )
    return numbers.astype(float), table, place._replace(share=place.share.astype(float))


@pytest.mark.parametrize("count", [2, 8])
def test_the_winner_is_as_good_as_by_single_tokens(count: int) -> None:
    """For one weight and the next token, and a random number of drafts."""
    rng = np.random.default_rng(count)
    for noise, weight in ((0.5, 1.0), (1.0, 0.7), (2.0, 0.05)):
        draft, target = laws_like_real_ones(rng, 5000, noise)
        numbers = np.append(0, rng.dirichlet(np.ones(count)))
        won = winner_probs(draft, *bin_tokens(weight * target, draft, numbers, count))
        sparse = map(SparseProbs.from_dense, (draft, target))
        best = np.minimum(weight * target, AgreeingDrafts(*sparse, numbers).winner_probs).sum()
        assert abs(won.sum() - 1) < 1e-12
        assert abs(np.minimum(weight * target, won).sum() - best) < 1e-5


def test_a_coarse_grid_is_not_the_one_of_the_kernel() -> None:
    """The fixture above replaces a default, which is that of the other rule."""
    steps = inspect.signature(grid_walk_and_keep.verify).parameters["steps"].default
    assert steps == grid_optimal.STEPS
