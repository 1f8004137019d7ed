"""Packed rows and draft rows that list their tokens: the decisions of padded, dense ones.

All backends, bit for bit; Triton's kernels run in the interpreter, or on a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.kernels import SparseDrafts, verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import host, softmax  # noqa: E402
from otm.kernels.common.distributions import torch as distributions  # noqa: E402
from otm.kernels.common.rows import numpy as rows  # noqa: E402
from otm.kernels.common.rows import triton as triton_rows  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402
from otm.rules import RULES, names  # noqa: E402

ONE, SEVERAL = (names("kernel", several=several) for several in (False, True))
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
BACKENDS = ["numpy", "batched", "by rows", "triton"]
OF_SEVERAL = pytest.mark.parametrize("run", ["numpy", "batched", "triton"], indirect=True)


class Run(NamedTuple):
    """Call a verifier on tensors of the CPU by a backend, and return tensors there."""

    name: str
    where: str

    def some(self, number: int, few: int) -> int:
        """Return a number, or one that the interpreter has the time for."""
        return few if self.name == "triton" else number

    def moved(self, x: Any) -> Any:
        """Return an argument as the backend takes it."""
        if isinstance(x, SparseDrafts):
            return SparseDrafts(*map(self.moved, x))
        if not isinstance(x, torch.Tensor):
            return x
        if self.name != "numpy":
            return x.to(self.where)
        return (x.float() if x.dtype == torch.bfloat16 else x).numpy()

    def __call__(self, verify: Any, *arguments: Any, **options: Any) -> list[Any]:
        options = {key: self.moved(x) for key, x in options.items()}
        options["backend"] = self.name if self.name in {"numpy", "triton"} else "torch"
        if options["backend"] not in RULES[options["rule"]].backends:
            pytest.skip(f"{options['rule']} has no kernel there")
        outcome = verify(*map(self.moved, arguments), validate=False, **options)
        return [None if x is None else torch.as_tensor(x).cpu() for x in outcome]


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a verifier by a backend."""
    by_rows = request.param == "by rows"
    monkeypatch.setattr(host, "LEAST_VOCABULARY", 0 if by_rows else 2**62)
    if request.param != "triton":
        return Run(request.param, "cpu")
    request.getfixturevalue("small_blocks")
    return Run("triton", request.getfixturevalue("device"))


def assert_same(outcome: Any, expected: Any) -> None:
    for mine, other in zip(outcome, expected, strict=True):
        assert (mine is None) == (other is None)
        assert mine is None or mine.tolist() == other.tolist()


def pack(inputs: Any) -> tuple[list[Any], Any]:
    """Pack chains that −1 ends, without the rows beyond; return offsets of type int32 too."""
    target, draft, tokens, uniforms = inputs
    lengths = (tokens >= 0).long().cumprod(1).sum(1)
    live = torch.arange(tokens.shape[1]) < lengths[:, None]
    used = torch.cat([torch.ones(len(live), 1, dtype=torch.bool), live], 1)
    if isinstance(draft, SparseDrafts):
        draft = SparseDrafts(*(x[live] for x in draft))
    elif draft is not None:
        draft = draft[live]
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    return [target[used], draft, tokens[live], uniforms], offsets


@pytest.mark.parametrize("rule", ONE)
def test_one_chain_decides_as_with_dense_and_padded_rows(
    rule: str, run: Run, chains: Callable[..., Any], lists: Callable[..., Any]
) -> None:
    """Bugs: rows of another sequence; a token at the edge of a block; padding that counts."""
    rng = np.random.default_rng(3)
    accepted = set()
    # Widths of several chunks, and more chunks than one pass reads.
    shapes = [(2, 17, 40), (1, 9, 0), (3, 5, 0), (0, 4, 0), (4, 25, 70), (1, 1, 0), (2, 45, 0)]
    shapes = shapes[: run.some(7, 2)]
    for (gamma, size, width), dtype in zip(shapes, itertools.cycle(TYPES), strict=False):
        inputs = chains(rng, run.some(25, 2), gamma, size).to(dtype)
        sparse = inputs._replace(draft=lists(rng, inputs.draft, width))
        expected = verify_probs(*inputs, rule=rule, backend="torch", validate=False)
        accepted |= set(expected.accepted.tolist())
        assert_same(run(verify_probs, *sparse, rule=rule), expected)
        for form in (inputs, sparse):
            arguments, offsets = pack(form)
            assert_same(run(verify_probs, *arguments, rule=rule, offsets=offsets), expected)
        arguments, offsets = pack(inputs._replace(draft=None))
        expected = verify_probs(*inputs._replace(draft=None), rule=rule, validate=False)
        assert_same(run(verify_probs, *arguments, rule=rule, offsets=offsets), expected)
    assert {0, 1, 2, 3} <= accepted or run.name == "triton"


@pytest.mark.parametrize("rule", ONE)
def test_long_lists_are_looked_at_in_chunks(
    rule: str, run: Run, chains: Any, lists: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a chunk of a list that is not looked at, or twice."""
    monkeypatch.setattr(triton_rows, "MOST_LISTED", 4)
    rng = np.random.default_rng(4)
    inputs = chains(rng, run.some(30, 3), 2, 19)
    expected = verify_probs(*inputs, rule=rule, validate=False)
    sparse = inputs._replace(draft=lists(rng, inputs.draft, 11))
    assert_same(run(verify_probs, *sparse, rule=rule), expected)


def laws_of(target: Any, draft: Any, tokens: Any, temperatures: Any, of: Any) -> tuple[Any, Any]:
    """Target's softmax by a function; draft rows, of greedy sequences the draft itself."""
    laws = of(target, None, tokens, temperatures)[0]
    certain = torch.nn.functional.one_hot(tokens.clamp(min=0), draft.shape[-1])
    greedy = temperatures.reshape(-1, *[1] * tokens.ndim) == 0
    return laws, torch.where(greedy, certain.to(draft.dtype), draft)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("rule", ONE)
def test_lists_beside_logits_are_probabilities(
    rule: str, packed: bool, run: Run, chains: Any, lists: Any
) -> None:
    """Bugs: a list that is tempered again, or looked at where the sequence is greedy."""
    rng = np.random.default_rng(5)
    triton = run.name == "triton"
    of = softmax.probs_from_logits if triton else distributions.probs_from_logits
    options = {"block": 8} if triton else {}
    for size in (6, 19)[: run.some(2, 1)]:
        inputs = chains(rng, 5, 2, size)
        logits = inputs.target.double().log()
        temperatures = torch.tensor([0.0, 0.7, 1.0, 0.0, 1.6])
        sparse = lists(rng, inputs.draft)
        sparse.tokens[3], sparse.probs[3] = -1, math.nan  # it is greedy: even its drafts are gone

        def law(*arguments: Any) -> Any:
            return of(*arguments, **options)

        laws = laws_of(logits, inputs.draft, inputs.tokens, temperatures, law)
        expected = verify_probs(*laws, *inputs[2:], rule=rule, validate=False)
        arguments: Any = (logits, sparse, *inputs[2:])
        given: dict[str, Any] = {"temperature": temperatures}
        if packed:
            arguments, given["offsets"] = pack(arguments)
        assert_same(run(verify_logits, *arguments, rule=rule, **given), expected)
        # one temperature for all
        laws = laws_of(logits, inputs.draft, inputs.tokens, torch.zeros(5), law)
        expected = verify_probs(*laws, *inputs[2:], rule=rule, validate=False)
        given["temperature"] = 0.0
        assert_same(run(verify_logits, *arguments, rule=rule, **given), expected)


@OF_SEVERAL
@pytest.mark.parametrize("rule", SEVERAL)
def test_chains_decide_as_with_dense_rows(rule: str, run: Run, several: Any, lists: Any) -> None:
    """Bugs: a node that is summed over the vocabulary twice, or over the lists of another chain."""
    rng = np.random.default_rng(6)
    others = 0
    shapes = [(3, 1, 17, 40), (2, 2, 4, 0), (1, 3, 4, 0), (2, 0, 3, 0), (4, 1, 9, 0)]
    shapes = shapes[: run.some(5, 2)]
    for (count, gamma, size, width), dtype in zip(shapes, itertools.cycle(TYPES), strict=False):
        inputs = several(rng, run.some(12, 2), count, gamma, size, rule=rule)
        inputs[:2] = [x.to(dtype) for x in inputs[:2]]
        expected = verify_probs(*inputs, rule=rule, backend="torch", validate=False)
        inputs[1] = lists(rng, inputs[1][:, :1], width)
        inputs[1] = SparseDrafts(*(x.expand(-1, count, -1, -1) for x in inputs[1]))
        assert_same(run(verify_probs, *inputs, rule=rule), expected)
        others += int((expected.accepted > 0).sum())
    assert others > run.some(9, 0)


@OF_SEVERAL
@pytest.mark.parametrize("rule", SEVERAL)
def test_lists_of_chains_beside_logits_are_probabilities(
    rule: str, run: Run, several: Any, lists: Any
) -> None:
    """Bugs: as for one chain; of greedy chains the row of the first counts."""
    rng = np.random.default_rng(7)
    triton = run.name == "triton"
    of = softmax.probs_from_logits if triton else distributions.probs_from_logits
    options = {"block": 8} if triton else {}
    target, draft, tokens, uniforms = several(rng, 4, 2, 1, 11, rule=rule)
    given = {"rule": rule, "counted": draw_tree(rng, tokens)}
    temperatures = torch.tensor([0.0, 0.7, 1.0, 1.6])
    logits, sparse = target.double().log(), lists(rng, draft)
    # of the greedy sequence the second chain has the best token, which the lists have too
    best = int(target[0, 0, 0].argmax())
    tokens[0, :, 0], given["counted"][0] = torch.tensor([(best + 1) % 11, best]), True
    sparse.tokens[0], sparse.probs[0] = -1, math.nan
    sparse.tokens[0, ..., 0], sparse.probs[0, ..., 0] = best, 1.0
    laws = laws_of(logits, draft, tokens, temperatures, lambda *x: of(*x, **options))
    expected = verify_probs(*laws, tokens, uniforms, backend="torch", validate=False, **given)
    assert expected.accepted[0] == 0
    arguments = (logits, sparse, tokens, uniforms)
    assert_same(run(verify_logits, *arguments, temperature=temperatures, **given), expected)


def draw_tree(rng: np.random.Generator, tokens: Any) -> Any:
    """Let paths [B, K, γ] share their first draws with earlier ones; return which are counted."""
    counted = torch.ones(tokens.shape, dtype=torch.bool)
    for b, c in itertools.product(range(len(tokens)), range(1, tokens.shape[1])):
        other, depth = int(rng.integers(c)), int(rng.integers(tokens.shape[2] + 1))
        tokens[b, c, :depth] = tokens[b, other, :depth]
        counted[b, c, :depth] = False
    return counted


@OF_SEVERAL
@pytest.mark.parametrize("rule", SEVERAL)
def test_all_backends_decide_alike_about_trees(
    rule: str, run: Run, several: Any, lists: Any
) -> None:
    """Bugs: a shared draw that is tested, or counted, again; a path that is lost with it."""
    rng = np.random.default_rng(8)
    other, changed = set(), 0
    for count, gamma, size in [(3, 2, 3), (2, 1, 5), (4, 3, 2), (5, 2, 9)][: run.some(4, 1)]:
        number = run.some(15 if rule == "grid k-Seq" else 6, 2)
        inputs = several(rng, number, count, gamma, size, rule=rule)
        counted = draw_tree(rng, inputs[2])
        arrays = [x.numpy() for x in inputs]
        expected = verify_probs(*arrays, rule=rule, counted=counted.numpy())
        found = run(verify_probs, *inputs, rule=rule, counted=counted)
        assert_same(found, expected)
        if run.name != "triton":
            plain = run(verify_probs, *inputs, rule=rule)
            changed += plain[0].tolist() != found[0].tolist()
            counted_all = {"counted": torch.ones_like(counted)}
            assert_same(run(verify_probs, *inputs, rule=rule, **counted_all), plain)
        inputs[1] = lists(rng, inputs[1])
        assert_same(run(verify_probs, *inputs, rule=rule, counted=counted), expected)
        other |= set(expected.chain.tolist())
    if run.name != "triton" and rule.startswith("grid"):  # a rule may look at one draft alone
        assert changed
        assert len(other) > 2


@OF_SEVERAL
def test_copies_of_one_chain_are_that_chain(run: Run, several: Any) -> None:
    """Bug: more drafts than draws.  Copies that share all draws are one draft at each position."""
    rng = np.random.default_rng(9)
    inputs = several(rng, run.some(60, 3), 3, 3, 4)
    inputs[2][:, 1:] = inputs[2][:, :1]
    counted = torch.zeros(inputs[2].shape, dtype=torch.bool)
    counted[:, 0] = True
    uniforms = torch.cat([inputs[3][:, :-2:3], inputs[3][:, -2:]], 1)
    expected = verify_probs(*(x[:, 0] for x in inputs[:3]), uniforms)
    found = run(verify_probs, *inputs, rule="grid k-Seq", counted=counted)
    assert_same(found[:2], expected[:2])
    assert not found[2].any()


def test_nothing_waits_for_the_device() -> None:
    """Bug: a number that is asked for; tensors of the device "meta" have none."""

    def on_meta(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    ids, wide = torch.int32, torch.float64
    lists = SparseDrafts(on_meta(9, 5, dtype=ids), on_meta(9, 5))
    arguments = (on_meta(13, 100), lists, on_meta(9, dtype=ids), on_meta(4, 5, dtype=wide))
    further: dict[str, Any] = {"offsets": on_meta(5, dtype=ids), "validate": False}
    for rule in ONE:
        assert verify_probs(*arguments, rule=rule, **further).tokens.shape == (4, 4)
        for warmth in (0.7, on_meta(4)):
            outcome = verify_logits(*arguments, rule=rule, temperature=warmth, **further)
            assert outcome.tokens.shape == (4, 4)
    lists = SparseDrafts(on_meta(4, 3, 2, 5, dtype=ids), on_meta(4, 3, 2, 5))
    drafts, counted = on_meta(4, 3, 2, dtype=ids), on_meta(4, 3, 2, dtype=torch.bool)
    for rule in SEVERAL:
        uniforms = on_meta(4, 2 * uniforms_per_position(rule, 3) + 2, dtype=wide)
        arguments = (on_meta(4, 3, 3, 100), lists, drafts, uniforms)
        outcome = verify_probs(*arguments, rule=rule, counted=counted, validate=False)
        assert outcome.chain.shape == (4,)


@pytest.mark.parametrize("rule", names("kernel", backend="triton"))
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, about NaN
def test_no_garbage_gives_a_token_outside_the_vocabulary(rule: str, device: str) -> None:
    """Bug: memory beyond a row is read or written, for a listed token that is none."""
    rng = np.random.default_rng(10)
    values = np.array([0, 1, -1, math.nan, math.inf, -math.inf, 1e30, 0.5, 1e-40])
    several = rule in SEVERAL
    leading = (2, 2) if several else (2,)
    for size in (1, 9):
        target = torch.from_numpy(rng.choice(values, (*leading, 3, size))).float()
        # a token listed twice would be stored twice, in any order
        every = np.broadcast_to(np.arange(-3, 2 * size + 1), (*leading, 2, 2 * size + 4))
        ids = torch.from_numpy(rng.permuted(every, axis=-1)[..., :6])
        probs = torch.from_numpy(rng.choice(values, ids.shape)).float()
        tokens = torch.from_numpy(rng.integers(-2, 2 * size, (*leading, 2)))
        coins = uniforms_per_position(rule, 2 if several else 1)
        uniforms = torch.from_numpy(rng.random((2, 2 * coins + 2)))
        inputs = (target, SparseDrafts(ids.to(device), probs.to(device)), tokens, uniforms)
        moved = (x if isinstance(x, SparseDrafts) else x.to(device) for x in inputs)
        options = {"rule": rule, "backend": "triton", "validate": False}
        kept = verify_probs(*moved, **options).tokens.cpu()
        assert ((kept >= -1) & (kept < size)).all()


def test_a_list_is_read_as_its_row() -> None:
    """Bug: an entry of another row, or an integer 0 among fractions, which divides as a float."""
    tokens = np.array([[[3, -1, 0], [1, 2, -1]]])
    listed = rows.Listed(tokens, np.array([[[0.25, 9.0, 0.75], [0.5, 0.5, 9.0]]]), 5)
    assert listed.shape == (1, 2, 5)
    assert listed[0, 0].tolist() == [0.75, 0, 0, 0.25, 0]
    assert [listed[0, 1, x] for x in range(5)] == listed[0, 1].tolist() == [0, 0.5, 0.5, 0, 0]
    exact = rows.Listed(tokens[0], np.full((2, 3), Fraction(1, 2)), 4)[1]
    assert exact.tolist() == [0, Fraction(1, 2), Fraction(1, 2), 0]
    assert {type(x) for x in exact} == {Fraction}
