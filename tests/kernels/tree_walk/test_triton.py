"""Walk and keep over trees in Triton: the same decisions as the reference, from the same rows."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import Workspace, verify_tree_logits, verify_tree_probs  # noqa: E402
from otm.kernels.common import runtime, softmax  # noqa: E402
from otm.kernels.tree.checks import Trees  # noqa: E402
from otm.kernels.tree_walk.torch import walk  # noqa: E402
from tests.kernels.compiled.accesses import apart, recorded  # noqa: E402

WALK = "walk and keep"
BATCH, NODES, LEVELS = 2, 5, 2
LAST = 1 - 2.0**-53


class Rows(NamedTuple):
    """Arguments of a verification as arrays; the trees have several shapes."""

    target: npt.NDArray[Any]  # [B, N + 1, V]
    draft: npt.NDArray[Any] | None  # [B, N + 1, V']
    trees: Trees[npt.NDArray[Any]]

    def tensors(self, device: str, dtype: Any = torch.float32) -> list[Any]:
        """Return target, draft, tokens, parents, uniforms and marks as tensors."""
        rows = [None if x is None else torch.from_numpy(x).to(dtype) for x in self[:2]]
        tokens, parents, sampled, uniforms = map(torch.from_numpy, self.trees)
        marks = None if self.draft is None else sampled
        return [
            None if x is None else x.to(device)
            for x in (*rows, tokens, parents, uniforms, marks)
        ]  # fmt: skip


def draw(seed: int, size: int, *, drawn: bool = True) -> Rows:
    """Draw trees with certain children and at most one drawn child a node, and rows with zeros."""
    rng = np.random.default_rng(seed)
    draft_size = max(size - 1, 1)
    rows = []
    for width in (size, draft_size):
        weights = rng.integers(0, 4, (BATCH, NODES + 1, width)) * rng.random(width)
        np.put_along_axis(weights, rng.integers(width, size=(BATCH, NODES + 1, 1)), 1.0, axis=2)
        rows.append((weights / weights.sum(axis=2, keepdims=True)).astype(np.float32))
    target, draft = rows
    tokens, parents = np.full((2, BATCH, NODES), -1)
    sampled = np.zeros((BATCH, NODES), np.bool_)
    for b in range(BATCH):
        depths = {-1: 0}
        for node in range(NODES - b):  # the last entry of the second tree is not used
            inner = [place for place, depth in depths.items() if depth < LEVELS]
            parent = int(rng.choice(inner[-2:]))
            siblings = (parents[b] == parent) & (tokens[b] >= 0)
            free = np.ones(size, np.bool_)
            free[tokens[b, siblings]] = False
            is_drawn = drawn and not sampled[b, siblings].any() and rng.random() < 0.6
            if is_drawn:
                free[:draft_size] &= draft[b, parent + 1] > 0
                free[draft_size:] = False
            if free.any():
                likely = np.where(free, target[b, parent + 1] + 0.1 * rng.random(size), 0)
                tokens[b, node], parents[b, node] = likely.argmax(), parent
                sampled[b, node], depths[node] = is_drawn, depths[parent] + 1
    uniforms = rng.random((BATCH, LEVELS + 1, 4))
    uniforms[rng.random(uniforms.shape) < 0.1] = 0
    uniforms[rng.random(uniforms.shape) < 0.1] = LAST
    uniforms[..., 2] *= 0.7  # most nodes are kept
    return Rows(target, draft if drawn else None, Trees(tokens, parents, sampled, uniforms))


def verified(rows: list[Any], backend: str, **options: Any) -> Any:
    """Verify tensors or arrays, as probabilities unless there is a temperature."""
    verify = verify_tree_logits if "temperature" in options else verify_tree_probs
    *arguments, sampled = rows
    return verify(*arguments, sampled=sampled, rule=WALK, backend=backend, **options)


def numbers(found: Any) -> list[Any]:
    return [x.tolist() for x in found]


TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CASES = [(9, True, TYPES[:2]), (6, True, TYPES[2:]), (9, False, TYPES[::2]), (1, True, TYPES[:1])]
"""Sizes with three blocks, two and one, whether a child is drawn, and types of the rows."""


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("size", "drawn", "types"), CASES)
def test_triton_decides_as_numpy(size: int, drawn: bool, types: list[Any], device: str) -> None:
    """From all types; the rows of float64 are apart in memory, and their tokens too."""
    for seed, dtype in enumerate(types):
        rows = draw(seed, size, drawn=drawn).tensors(device, dtype)
        arrays = [None if x is None else x.cpu() for x in rows]
        arrays = [None if x is None else (x.double() if i < 2 else x).numpy()
                  for i, x in enumerate(arrays)]  # fmt: skip
        expected = verified(arrays, "numpy", validate=False)
        if dtype == torch.float64:
            rows[0] = torch.stack([rows[0], rows[0]], -1)[..., 1]
        elif device == "cpu":
            rows[:2] = [None if x is None else apart(x, 3) for x in rows[:2]]
        assert numbers(verified(rows, "triton", validate=False)) == numbers(expected)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("drawn", [True, False])
def test_triton_decides_from_logits_as_its_softmax_says(
    drawn: bool, device: str, small_blocks: int
) -> None:
    """A batch has two temperatures, one of them 0; −∞ excludes a token; memory is used again."""
    workspace, held = Workspace(), set()
    for seed, warmth in enumerate(([0.7, 0.0], [0.0, 1.3] if drawn else 0.9)):
        rows = draw(seed, 9, drawn=drawn).tensors(device)
        rows[:2] = [None if x is None else x.log() for x in rows[:2]]
        temperature = warmth if isinstance(warmth, float) else torch.tensor(warmth, device=device)

        def probs(logits: Any, temperature: Any = temperature) -> Any:
            warmths = torch.as_tensor(temperature, device=logits.device)
            of_rows = softmax.probs_from_logits(
                logits[:, None], None, logits[:, :1], warmths, small_blocks
            )
            return of_rows[0][:, 0]

        target, draft, tokens, parents, uniforms, sampled = rows
        is_warm = torch.as_tensor(temperature, device=device).reshape(-1, 1) > 0
        tested = torch.zeros_like(tokens, dtype=torch.bool) if sampled is None else sampled
        trees = Trees(tokens, parents, tested & is_warm, uniforms)
        expected = walk(target, draft, trees, probs)
        options = {"temperature": temperature, "workspace": workspace}
        assert numbers(verified(rows, "triton", **options)) == numbers(expected)
        held.add(workspace.nbytes)
    assert len(held) == 1 + (not drawn)  # one temperature has its own place


@pytest.mark.usefixtures("small_blocks")
def test_the_shapes_at_the_edge(device: str) -> None:
    """No drafts, no level for a draft, and no sequence: only the bonus token follows."""
    rows = draw(0, 4).tensors(device)
    arrays = [x.cpu().numpy() for x in rows]
    for nodes, levels, batch in ((0, LEVELS, 2), (NODES, 0, 1), (NODES, 1, 0)):
        cut = [
            (x[:batch, : nodes + 1], x[:batch, : nodes + 1]) if i < 2
            else (x[:batch, : levels + 1],) * 2 if i == 4
            else (x[:batch, :nodes],) * 2
            for i, x in enumerate(rows)
        ]  # fmt: skip
        found = verified([x for x, _ in cut], "triton", validate=False)
        host = [x.cpu().numpy() for _, x in cut]
        assert numbers(found) == numbers(verified(host, "numpy", validate=False))
    assert len(arrays) == 6


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
def test_no_garbage_gives_a_token_outside_the_vocabulary(device: str) -> None:
    """Bug: NaN moves the walk to a row that does not exist; `small_blocks` sees its address."""
    for seed in range(2):
        rows = draw(seed, 5).tensors(device)
        rows[seed][:, ::2] = math.nan
        found = verified(rows, "triton", validate=False)
        last = found.tokens.gather(1, found.accepted[:, None])
        assert ((last >= 0) & (last < 5)).all()


@pytest.mark.skipif(
    runtime.triton is None or runtime.compiles(), reason="accesses are seen in the interpreter"
)
@pytest.mark.parametrize(
    ("drawn", "logits", "passes"), [(False, False, 3), (True, False, 9), (True, True, 14)]
)
def test_only_the_rows_along_the_walk_are_read(drawn: bool, logits: bool, passes: int) -> None:
    """Without a drawn child once, else both rows twice; once more for a softmax.

    Two of twelve drafts are reached.  The last node has no children: only its target's row is read.
    """
    size, nodes = 4 * runtime.BLOCK, 12
    target = torch.full((1, nodes + 1, size), 0.5 / (size - 1))
    target[:, :, 5] = 0.5
    drafts = torch.tensor([[5, 5] + [6] * (nodes - 2)])
    parents = torch.tensor([[-1, 0] + [0] * (nodes - 2)])
    sampled = torch.tensor([[True, True] + [False] * (nodes - 2)])
    drafts[0, 2:] = torch.arange(10, 10 + nodes - 2)
    rows = [target, target if drawn else None, drafts, parents]
    rows += [torch.full((1, 4, 4), 0.1, dtype=torch.float64), sampled if drawn else None]
    rows[:2] = [None if x is None else x.log() if logits else x for x in rows[:2]]
    options: dict[str, Any] = {"temperature": 1.0} if logits else {}
    with recorded() as launches:
        found = verified(rows, "triton", validate=False, **options)
    assert found.node.tolist() == [1]
    moved = sum(
        access.nbytes
        for launch, access in itertools.chain.from_iterable(
            ((launch, access) for access in launch.accesses) for launch in launches
        )
        if access.argument in {"target", "draft"}
    )
    # A half block of each of two rows is read again, to draw the token.
    assert passes <= moved / (size * target.element_size()) < passes + 0.3
