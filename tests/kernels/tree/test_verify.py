"""Verification of trees: exact distributions, and the same decisions on every backend."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from otm import Problem
from otm._core.probs.sparse import SparseProbs
from otm.coupling.build import PLANS, build_plan
from otm.decoding.draft_tree import DraftNode
from otm.decoding.verifiers.target_only import verify_target_only
from otm.errors import InvalidDistributionError, InvalidDraftsError, InvalidUniformsError
from otm.kernels import Workspace, verify_tree_logits, verify_tree_probs
from otm.kernels.tree import numpy as tree
from otm.kernels.tree.checks import Trees as Given
from otm.testing import output_distribution_of

torch = pytest.importorskip("torch")

from otm.kernels.common import (  # noqa: E402
    runtime,
    softmax,
)
from otm.kernels.tree.torch import walk  # noqa: E402
from tests.kernels.compiled.accesses import recorded  # noqa: E402

F = Fraction

SIZES = [1, 8, 9, 20]
"""Within a block, a full one, one token more, and three blocks, which Triton pads to four."""


class Trees(NamedTuple):
    """Arguments of a verification, and which drafts were sampled."""

    target: npt.NDArray[Any]  # [B, N + 1, V]
    draft: npt.NDArray[Any] | None
    tokens: npt.NDArray[np.int64]  # [B, N]
    parents: npt.NDArray[np.int64]
    uniforms: npt.NDArray[Any]  # [B, L + 1, W + 1]
    sampled: npt.NDArray[np.bool_] | None

    def tensors(self, device: str = "cpu", dtype: Any = torch.float32) -> Trees:
        """Return them as tensors, with rows of another type."""
        found = [None if x is None else torch.from_numpy(x).to(device) for x in self]
        for i in range(2):
            found[i] = None if found[i] is None else found[i].to(dtype)
        return Trees(*found)

    def wide(self) -> Trees:
        """Return tensors as arrays again, in float64."""
        rows = (None if x is None else x.double().cpu().numpy() for x in self[:2])
        return Trees(*rows, *(None if x is None else x.cpu().numpy() for x in self[2:]))

    def verified(self, backend: str = "auto", **options: Any) -> Any:
        """Verify them, as probabilities unless there is a temperature."""
        verify = verify_tree_logits if "temperature" in options else verify_tree_probs
        return verify(*self[:5], sampled=self.sampled, backend=backend, **options)

    def walked(self, probs: Callable[[Any], Any] = lambda rows: rows) -> Any:
        """Verify tensors in a batch, by torch alone."""
        target, draft, tokens, parents, uniforms, sampled = self
        if sampled is None:
            sampled = torch.full_like(tokens, draft is not None, dtype=torch.bool)
        return walk(target, draft, Given(tokens, parents, sampled, uniforms), probs)


KINDS = ("certain", "sampled", "both")
OF_KERNELS = pytest.mark.parametrize(
    ("size", "kind"), [*((size, "both") for size in SIZES), *itertools.product([1, 9], KINDS[:2])]
)
"""All sizes with both kinds of drafts in a tree; with one kind a block and a part of another."""


def draw_trees(seed: int, size: int, kind: str = "certain", nodes: int = 6) -> Trees:
    """Draw ragged trees whose drafts are often met, and rows with zeros."""
    rng = np.random.default_rng(seed)
    batch, levels, width = int(rng.integers(1, 4)), 4, 3
    rows = []
    for few in (3, 4):
        weights = rng.integers(0, few, (batch, nodes + 1, size)) * rng.random((1, 1, size))
        np.put_along_axis(weights, rng.integers(size, size=(batch, nodes + 1, 1)), 1.0, axis=2)
        rows.append((weights / weights.sum(axis=2, keepdims=True)).astype(np.float32))
    target, draft = rows
    tokens, parents = np.full((2, batch, nodes), -1, dtype=np.int64)
    sampled = rng.random((batch, nodes)) < {"certain": 0, "sampled": 1, "both": 0.5}[kind]
    for b in range(batch):
        depths: list[int] = []
        for node in range(nodes):
            above = [-1, *(m for m in range(node) if tokens[b, m] >= 0 and depths[m] < levels)]
            parent = int(rng.choice(above[-3:]))
            siblings = parents[b, :node] == parent
            siblings &= tokens[b, :node] >= 0
            free = np.ones(size, dtype=bool)
            free[tokens[b, :node][siblings]] = False
            if sampled[b, node]:
                free &= draft[b, parent + 1] > 0
                free &= int((siblings & sampled[b, :node]).sum()) < width
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
            if free.any() and rng.random() > 0.15:
                likely = np.where(free, target[b, parent + 1] + 0.1, 0)
                tokens[b, node] = (
                    likely.argmax() if rng.random() < 0.5 else rng.choice(*np.nonzero(free))
                )
                parents[b, node] = parent
    uniforms = rng.random((batch, levels + 1, width + 1))
    uniforms[rng.random(uniforms.shape) < 0.1] = 0
    uniforms[rng.random(uniforms.shape) < 0.1] = 1 - 2.0**-53
    if kind == "certain":
        return Trees(target, None, tokens, parents, uniforms[..., :1], None)
    return Trees(target, draft, tokens, parents, uniforms, sampled if kind == "both" else None)


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.tolist() == other.tolist()


# The definition

TARGET = [[F(1, 2), F(1, 3), F(1, 6)], [F(1, 4), F(1, 4), F(1, 2)], [F(1, 5), F(4, 5), F(0)]]
DRAFT = [[F(1, 6), F(1, 2), F(1, 3)], [F(1, 2), F(1, 2), F(0)], [F(1, 3), F(1, 3), F(1, 3)]]


def model(table: list[list[Fraction]], path: tuple[int, ...]) -> list[Fraction]:
    """Distribution after a path: of its length and its last token."""
    return table[(len(path) + 2 * sum(path[-1:])) % 3]


def orders(law: dict[int, Fraction], count: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Yield all ways to draw `count` tokens without replacement, with their probabilities."""
    if not count or not law:
        yield (), F(1)
        return
    total = sum(law.values())
    for token, mass in law.items():
        rest = {x: p for x, p in law.items() if x != token}
        for more, chance in orders(rest, count - 1):
            yield (token, *more), mass / total * chance


def all_trees(certain: int, count: int, levels: int) -> Iterator[tuple[Any, Fraction]]:
    """Yield all trees with the draft rows of their nodes, and their probabilities.

    Each node of the first levels has `certain` most probable and `count` sampled children.
    """

    def grow(path: tuple[int, ...]) -> Iterator[tuple[list[Any], Fraction]]:
        if len(path) == levels:
            yield [], F(1)
            return
        row = dict(enumerate(model(DRAFT, path)))
        sure = sorted(row, key=lambda x: -row[x])[:certain]
        rest = {x: p for x, p in row.items() if x not in sure and p}
        for drawn, chance in orders(rest, count):
            children = [(x, False) for x in sure] + [(x, True) for x in drawn]
            for below in itertools.product(*(list(grow((*path, x))) for x, _ in children)):
                nodes = [
                    ((*path, x), is_drawn, more)
                    for (x, is_drawn), (more, _) in zip(children, below, strict=True)
                ]
                yield nodes, chance * math.prod(each for _, each in below)

    yield from grow(())


def laid_out(nodes: list[Any], certain: int) -> tuple[Any, ...]:
    """Rows, tokens, parents and which are sampled, of a tree by `all_trees`."""
    paths: list[tuple[int, ...]] = [()]
    parents, tokens, sampled = list[int](), list[int](), list[bool]()

    def lay(children: list[Any], parent: int) -> None:
        places = []
        for path, drawn, _ in children:
            paths.append(path)
            tokens.append(path[-1])
            parents.append(parent)
            sampled.append(drawn)
            places.append(len(tokens) - 1)
        for (_, _, below), place in zip(children, places, strict=True):
            lay(below, place)

    lay(nodes, -1)
    target = [model(TARGET, path) for path in paths]
    draft = []
    for path in paths:  # what is sampled is drawn from the tokens that are not certain
        row = dict(enumerate(model(DRAFT, path)))
        sure = sorted(row, key=lambda x: -row[x])[:certain]
        left = sum(p for x, p in row.items() if x not in sure)
        draft.append(
            [F(0) if x in sure else p / left for x, p in row.items()]
            if left
            else [F(1), F(0), F(0)]
        )
    return target, draft, tokens, parents, sampled


def law_of(certain: int, count: int, levels: int, change: Any = None) -> tuple[Any, Fraction]:
    """Return a step's output distribution, continued by the target, and mean accepted drafts."""
    law: dict[tuple[int, ...], Fraction] = {}
    accepted = F(0)
    for nodes, chance in all_trees(certain, count, levels):
        target, draft, tokens, parents, sampled = laid_out(nodes, certain)
        if change is not None:
            draft = change(draft)
        arrays = [np.array([x], dtype=object) for x in (target, draft)]
        of_tree = [np.array([x]) for x in (tokens, parents)]

        def output(
            uniforms: Callable[[int], Any], given: Any = (*arrays, *of_tree), which: Any = sampled
        ) -> Any:
            width = max(count, 0) + 1
            coins = uniforms((levels + 1) * width).reshape(1, levels + 1, width)
            found = verify_tree_probs(*given, coins, sampled=np.array([which]), validate=False)
            return tuple(found.tokens[0, : found.accepted[0] + 1].tolist())

        for path, mass in output_distribution_of(output).items():
            accepted += chance * mass * (len(path) - 1)
            for rest in itertools.product(range(3), repeat=levels + 1 - len(path)):
                more = mass * chance
                for i in range(len(path), levels + 1):
                    more *= model(TARGET, (*path, *rest)[:i])[(*path, *rest)[i]]
                law[*path, *rest] = law.get((*path, *rest), F(0)) + more
    return {path: mass for path, mass in law.items() if mass}, accepted


def law_of_target(length: int) -> dict[tuple[int, ...], Fraction]:
    found = {}
    for path in itertools.product(range(3), repeat=length):
        mass = math.prod(model(TARGET, path[:i])[x] for i, x in enumerate(path))
        if mass:
            found[path] = mass
    return found


@pytest.mark.parametrize(
    ("certain", "count", "levels"),
    [(2, 0, 2), (1, 0, 3), (0, 1, 2), (0, 2, 1), (0, 3, 1), (1, 1, 1), (1, 1, 2)],
)
def test_the_output_has_the_law_of_the_target_exactly(
    certain: int, count: int, levels: int
) -> None:
    """All trees and all coins: certain drafts, without replacement, and greedy ones."""
    law, _ = law_of(certain, count, levels)
    assert law == law_of_target(levels + 1)


def test_one_level_accepts_as_the_rules_do() -> None:
    """The result equals that of the plans of `otm.coupling`, which have separate code."""
    target, draft = model(TARGET, ()), model(DRAFT, ())
    for certain, count, rule, k in (
        (2, 0, "target-only", 2),
        (0, 2, "recursive rejection without replacement", 2),
        (1, 1, "greedy", 2),
    ):
        plan = build_plan(PLANS[rule], Problem(draft, target, k), rule)
        assert law_of(certain, count, 1)[1] == plan.acceptance, rule


def test_rows_of_other_draws_lose_the_law() -> None:
    """Negative controls: draft rows of another node, and drafts from another distribution."""
    assert law_of(0, 2, 1, lambda draft: draft[::-1])[0] != law_of_target(2)
    uniform = [[F(1, 3)] * 3]
    assert law_of(0, 1, 1, lambda draft: uniform * len(draft))[0] != law_of_target(2)


@pytest.mark.parametrize("seed", range(12))
def test_certain_drafts_are_decided_as_in_the_loop(seed: int) -> None:
    """Catches another order of uniforms than `verify_target_only` takes, and a wrong node."""
    trees = draw_trees(seed, size=5)
    found = trees.verified()
    for b, (tokens, parents) in enumerate(zip(trees.tokens, trees.parents, strict=True)):
        nodes = {-1: DraftNode()}
        for i in np.flatnonzero(tokens >= 0).tolist():
            above = nodes[parents[i]]
            nodes[i] = DraftNode((*above.path, int(tokens[i])))
            above.children.append(nodes[i])
        row_of = {node.path: i + 1 for i, node in nodes.items()}
        uniforms = iter(trees.uniforms[b, :, 0])

        def probs_after(path: tuple[int, ...], b: int = b, rows: Any = row_of) -> SparseProbs:
            return SparseProbs.from_dense(trees.target[b, rows[path]].astype(np.float64))

        expected = verify_target_only(
            nodes[-1],
            probs_after,
            lambda m, rest=uniforms: np.array([next(rest) for _ in range(m)]),
        )
        assert found.tokens[b].tolist()[: len(expected)] == list(expected)
        assert found.accepted[b] == len(expected) - 1
        assert nodes[int(found.node[b])].path == expected[:-1]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_reached_may_hold_anything(kind: str) -> None:
    """Catches a pass over all rows of a tree, although a walk needs only a few."""
    for seed in range(5):
        trees = draw_trees(seed, 9, kind)
        expected = trees.verified()
        reached = np.zeros(trees.target.shape[:2], dtype=bool)
        reached[:, 0] = True
        for b, node in enumerate(expected.node.tolist()):
            last = node
            while last >= 0:
                reached[b, last + 1] = True
                last = int(trees.parents[b, last])
        rows = (None if x is None else np.where(reached[..., None], x, np.nan) for x in trees[:2])
        spoilt = Trees(*rows, *trees[2:])
        same(spoilt.verified(validate=False), expected)
        same(spoilt.tensors().verified(validate=False), expected)


def test_where_the_uniforms_end_the_output_does() -> None:
    """Unchecked: a tree deeper than its uniforms costs drafts, never the distribution."""
    drafts, parents = np.array([[0, 0]]), np.array([[-1, 0]])
    trees = Trees(np.full((1, 3, 2), 0.5), None, drafts, parents, np.zeros((1, 2, 1)), None)
    expected = (np.array([[0, 0]]), np.array([1]), np.array([0]))
    same(trees.verified(validate=False), expected)
    same(trees.tensors().verified(validate=False), expected)


# The same decisions everywhere


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_torch_decides_as_the_definition(size: int, kind: str) -> None:
    for seed in range(4):
        trees = draw_trees(seed, size, kind)
        same(trees.tensors().verified(), trees.verified())
        half = trees.tensors(dtype=torch.bfloat16)
        same(half.verified(validate=False), half.wide().verified(validate=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["certain", "sampled"])
def test_long_rows_on_a_cpu_are_read_one_by_one(dtype: Any, kind: str) -> None:
    """The definition on the tensors' own memory decides as whole batches do."""
    tensors = draw_trees(5, 2100, kind).tensors(dtype=dtype)
    same(tensors.verified(validate=False), tensors.walked())
    logits = tensors._replace(
        target=tensors.target.float().log().to(dtype),
        draft=None if tensors.draft is None else tensors.draft.float().log().to(dtype),
    )
    greedy = logits.verified(temperature=0)
    assert greedy.tokens[:, 0].tolist() == tensors.target[:, 0].float().argmax(1).tolist()
    warm = logits.verified(temperature=torch.ones(len(tensors.target)))
    assert warm.tokens.shape == greedy.tokens.shape


@pytest.mark.usefixtures("small_blocks")
@OF_KERNELS
def test_triton_decides_as_the_definition(size: int, kind: str, device: str) -> None:
    """Also with rows apart in memory; no access beyond a row, none of another program's."""
    for seed in range(2):
        trees = draw_trees(seed, size, kind)
        expected = trees.verified()
        tensors = trees.tensors(device, (torch.float32, torch.float64)[seed % 2])
        same(tensors.verified("triton"), expected)
        apart = torch.stack([tensors.target, tensors.target], -1)[..., 1]
        same(tensors._replace(target=apart).verified("triton"), expected)
    half = trees.tensors(device, torch.bfloat16)
    found = half.verified("triton", validate=False)
    same(found, half.wide().verified(validate=False))


@OF_KERNELS
def test_triton_decides_from_logits_as_its_softmax_says(
    size: int, kind: str, device: str, small_blocks: int
) -> None:
    """One batch has several temperatures, including 0; −∞ excludes a token."""
    workspace = Workspace()
    for seed in range(2):
        trees = draw_trees(seed, size, kind).tensors(device)
        draft = None if trees.draft is None else trees.draft.log()
        logits, batch = trees._replace(target=trees.target.log(), draft=draft), len(trees.target)
        temperatures = torch.tensor([0.7, 0.0, 1.0], device=device)[:batch]

        def probs(rows: Any, warmth: Any = temperatures) -> Any:
            of_rows = softmax.probs_from_logits(
                rows[:, None], None, rows[:, :1], warmth, small_blocks
            )
            return of_rows[0][:, 0]

        options: dict[str, Any] = {"backend": "triton", "workspace": workspace}
        found = logits.verified(temperature=temperatures, **options)
        warm = (temperatures > 0)[:, None]
        which = torch.ones_like(warm) if logits.sampled is None else logits.sampled
        tested = (which & warm).expand_as(logits.tokens)
        same(found, logits._replace(sampled=tested).walked(probs))
        found = logits.verified(temperature=0.7, **options)
        same(found, logits.walked(lambda rows: probs(rows, torch.tensor(0.7, device=device))))


@pytest.mark.skipif(
    runtime.triton is None or runtime.compiles(), reason="accesses are seen in the interpreter"
)
@pytest.mark.parametrize(("kind", "passes"), [("probabilities", 1), ("logits", 2)])
def test_only_the_rows_along_the_output_are_read(kind: str, passes: int, device: str) -> None:
    """Once, or twice from logits; then a block of each again, for the token."""
    size, nodes = 4 * runtime.BLOCK, 12
    target = torch.zeros(1, nodes + 1, size, device=device)
    target[:, :, 5] = 1
    drafts = torch.tensor([[5] + [6] * (nodes - 1)], device=device)
    parents = torch.arange(nodes, device=device)[None] - 1
    uniforms = torch.full((1, nodes + 1, 1), 0.5, dtype=torch.float64, device=device)
    options: dict[str, Any] = {"backend": "triton", "validate": False}
    with recorded() as launches:
        if kind == "logits":
            found = verify_tree_logits(target.log(), None, drafts, parents, uniforms, **options)
        else:
            found = verify_tree_probs(target, None, drafts, parents, uniforms, **options)
    assert found.tokens[0].tolist() == [5, 5] + [-1] * (nodes - 1)
    moved = sum(access.nbytes for launch in launches for access in launch.accesses)
    of_rows = 2 * size * target.element_size()
    assert passes <= moved / of_rows < 1.15 * passes + 0.25  # a block of four is read again


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("target[node + 1]", "target[node]"),
        ("draft[node + 1]", "draft[node]"),
        ("rest = rest - below[x]", "rest = rest - 0"),
        (
            "for *coins, for_token in uniforms",
            "for *coins, for_token in uniforms[[0] * len(uniforms)]",
        ),
    ],
)
def test_a_slip_in_the_walk_is_seen(right: str, wrong: str) -> None:
    """Negative controls: torch no longer decides as a definition with a slip."""
    source = inspect.getsource(tree)
    assert source.count(right) == 1
    slipped = ModuleType("slipped")
    exec(compile(source.replace(right, wrong), "slipped", "exec"), vars(slipped))
    differ = 0
    for seed in range(100):
        trees = draw_trees(seed, 5, "sampled")
        which = np.ones_like(trees.tokens, dtype=bool)
        given = (*trees[:2], Given(trees.tokens, trees.parents, which, trees.uniforms))
        found, expected = slipped.verify(*given), tree.verify(*given)
        differ += int((found.tokens != expected.tokens).sum())
    assert differ


# Rejected input


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"tokens": [[0, 3]]}, InvalidDraftsError, r"in \[0, 3\)"),
        ({"tokens": [[0, 0]], "parents": [[-1, -1]]}, InvalidDraftsError, "an earlier draft of"),
        ({"parents": [[-1, 1]]}, InvalidDraftsError, "the index of an earlier draft"),
        ({"parents": [[-2, -1]]}, InvalidDraftsError, "the index of an earlier draft"),
        ({"tokens": [[-1, 1]]}, InvalidDraftsError, "an earlier draft that is not −1"),
        ({"parents": [[-1]]}, InvalidDraftsError, r"both must be \[B, N\]"),
        ({"uniforms": np.zeros((1, 2, 1))}, InvalidDraftsError, "a path has 2 drafts"),
        ({"uniforms": np.zeros((1, 3, 0))}, InvalidUniformsError, "give"),
        ({"uniforms": np.ones((1, 3, 1))}, InvalidUniformsError, r"in \[0, 1\)"),
        ({"target": np.full((1, 2, 3), 1 / 3)}, InvalidDistributionError, r"must be \(1, 3\)"),
        ({"target": np.full((1, 3, 3), 0.5)}, InvalidDistributionError, "after the context"),
        ({"tokens": [[0.0, 1.0]]}, InvalidDraftsError, "of type float64"),
        ({"sampled": [[True, True]]}, InvalidDraftsError, "needs draft distributions"),
        ({"draft": np.full((1, 3, 3), 1 / 3)}, InvalidDraftsError, "has 1 sampled children"),
        ({"draft": np.eye(3)[None] @ np.full((3, 2), 0.5)}, InvalidDraftsError, "1 sampled"),
        ({"draft": np.full((1, 3, 4), 1 / 4)}, InvalidDistributionError, "at most 3 tokens"),
        ({"draft": np.eye(3)[None, [1, 1, 1]]}, InvalidDraftsError, "draft 0 .* probability 0"),
    ],
    ids=str,
)
def test_what_is_no_tree_is_refused(change: Any, error: type[Exception], match: str) -> None:
    given: dict[str, Any] = {
        "target": np.full((1, 3, 3), 1 / 3),
        "draft": None,
        "tokens": [[0, 1]],
        "parents": [[-1, 0]],
        "uniforms": np.zeros((1, 3, 1)),
        "sampled": None,
    }
    trees = Trees(*(None if x is None else np.asarray(x) for x in (given | change).values()))
    with pytest.raises(error, match=match):
        trees.verified()


def test_a_row_of_padding_is_not_looked_at() -> None:
    target = np.full((1, 3, 2), 0.5)
    target[0, 2] = np.nan
    arguments = (None, np.array([[1, -1]]), np.array([[-1, 7]]), np.zeros((1, 2, 1)))
    assert verify_tree_probs(target, *arguments).tokens.tolist() == [[0, -1]]
    target[0, 1] = np.nan
    with pytest.raises(InvalidDistributionError, match="after draft 0"):
        verify_tree_probs(target, *arguments)


def test_batches_and_trees_may_be_empty() -> None:
    for batch, nodes in ((0, 2), (2, 0), (0, 0)):
        target = np.full((batch, nodes + 1, 3), 1 / 3)
        drafts, parents = np.zeros((2, batch, nodes), dtype=np.int64)
        for draft in (None, target):
            trees = Trees(target, draft, drafts, parents, np.zeros((batch, 2, 3)), None)
            if nodes:
                trees.tokens[:] = [0, 1]
                trees.parents[:] = -1
        for found in (trees.verified(), trees.tensors().verified()):
            assert tuple(found.tokens.shape) == (batch, 2)
            assert found.node.tolist() == [0 if nodes else -1] * batch
