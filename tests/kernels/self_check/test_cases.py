"""The cases of self-checks: no decision is close, they are laid out as the call, and see slips."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from otm.coupled.clocks import cases as clock_cases  # noqa: E402
from otm.coupled.clocks import numpy as clocks  # noqa: E402
from otm.coupled.clocks import triton as triton_clocks  # noqa: E402
from otm.coupled.clocks.first_rings import _ring  # noqa: E402
from otm.kernels import SparseDrafts  # noqa: E402
from otm.kernels.common import one_chain, runtime  # noqa: E402
from otm.kernels.common.distributions import triton as distributions  # noqa: E402
from otm.kernels.layout import Chains  # noqa: E402
from otm.kernels.multi_draft import triton as multi_draft  # noqa: E402
from otm.kernels.optimal import numpy as grid_optimal  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402
from otm.kernels.self_check import chain_cases  # noqa: E402
from otm.kernels.self_check import run as self_check  # noqa: E402
from otm.kernels.self_check.chain_cases import Shape  # noqa: E402
from otm.kernels.tree import cases as tree_cases  # noqa: E402
from otm.kernels.tree import numpy as tree  # noqa: E402
from otm.kernels.tree import triton as triton_tree  # noqa: E402
from otm.kernels.tree import triton_rows  # noqa: E402
from otm.kernels.tree.checks import Trees  # noqa: E402
from otm.kernels.tree.verify import WALK_UNIFORMS, _walk, _walk_and_keep  # noqa: E402
from otm.kernels.tree_walk import numpy as tree_walk  # noqa: E402
from otm.kernels.tree_walk import triton as triton_tree_walk  # noqa: E402
from otm.kernels.verify import _verify  # noqa: E402
from otm.kernels.walk_and_keep import triton as grid_walk_and_keep  # noqa: E402
from otm.rules import named, names  # noqa: E402

MARGIN = Fraction(1, 10**5)
"""Ten times what logits and their softmax in float32 may change of a probability."""

ONE = Fraction(1)
RATIO_MARGIN = Fraction(1, 10**6)
"""Five times what it may change of the ratio of two probabilities, as a part of the ratio."""


class Watched:
    """A uniform in exact arithmetic that notes how far it is from all that it is compared with."""

    def __init__(self, value: Fraction, scale: Fraction, distances: list[Fraction]) -> None:
        self.value, self.scale, self.distances = value, scale, distances

    def __mul__(self, factor: Any) -> Any:
        factor = Fraction(factor)
        return Watched(self.value * factor, self.scale * factor, self.distances)

    def __add__(self, term: Any) -> Any:
        return Watched(self.value + Fraction(term), self.scale, self.distances)

    def __sub__(self, term: Any) -> Any:
        return self + -Fraction(term)

    __rmul__, __radd__ = __mul__, __add__

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, Watched):  # searches for several sort them
            return self.value < other.value
        if self.scale:
            self.distances.append(abs(self.value - other) / abs(self.scale))
        return self.value < other

    def __gt__(self, other: Any) -> bool:
        return not self < other


def exact(rows: Any, temperature: Any = None) -> Any:
    """Probabilities in fractions of rows [..., S]: of logits, to 40 digits, if not None."""
    probs = np.empty(rows.shape, dtype=object)
    for place in np.ndindex(rows.shape[:-1]):
        probs[place] = softmax(rows[place], temperature)
    return probs


def softmax(row: Any, temperature: Any) -> list[Fraction]:
    if np.isnan(row).any():
        return [Fraction(0)] * len(row)
    if temperature is None:
        return [Fraction(x) for x in row.tolist()]
    if temperature == 0:
        return [Fraction(int(i == row.argmax())) for i in range(len(row))]
    with localcontext() as context:
        context.prec = 40
        weights = [(Decimal(x) / Decimal(temperature)).exp() for x in row.tolist()]
        parts = [int(weight / sum(weights) * 10**30) for weight in weights]
    parts[0] += 10**30 - sum(parts)
    return [Fraction(part, 10**30) for part in parts]


def watched(uniforms: Any, distances: list[Fraction]) -> Any:
    made = np.empty(uniforms.shape, dtype=object)
    for place, u in np.ndenumerate(uniforms):
        made[place] = Watched(Fraction(u), Fraction(1), distances)
    return made


@contextmanager
def watched_bins(distances: list[Fraction]) -> Iterator[None]:
    """Note how far the ratios of tokens are from edges between bins, as a part of the ratio."""
    find = grid_optimal.find_places

    def find_places(target: Any, draft: Any, edges: Any) -> Any:
        for ratio in (target / np.where(draft > 0, draft, 1))[draft > 0]:
            place = int(edges.searchsorted(ratio))
            gap = min(abs(edge - ratio) for edge in edges[max(place - 1, 0) : place + 1])
            if 0 < ratio < edges[-1] and gap:  # one-hot rows are exact in all types
                distances.append(gap / ratio)
        return find(target, draft, edges)

    with mock.patch.object(grid_optimal, "find_places", find_places):
        yield


def decide(rule: str, shape: Shape, distances: list[Fraction]) -> tuple[list[int], list[int]]:
    """Decide the cases of a shape in fractions: numbers of accepted drafts, and lengths."""
    cases = chain_cases.draw_cases(shape)
    accepted = []
    for b, warmth in enumerate(cases.temperatures.tolist()):
        target, draft, tokens, uniforms, _, counted = (x[b : b + 1] for x in cases)
        draft = exact(draft, warmth if shape.draft_logits else None)
        if shape.target_logits and warmth == 0:  # one-hot
            draft = 1 * (np.arange(draft.shape[-1]) == tokens[..., None]) * ONE
        rows = [exact(target, warmth if shape.target_logits else None), draft, tokens]
        options = {"counted": counted} if shape.counted else {}
        if rule in names("kernel", several=False):
            rows = [x[:, 0] for x in rows]
        outcome = (
            named(rule, "kernel")
            .load_kernel("numpy")
            .verify(*rows, watched(uniforms, distances), **options)
        )
        accepted += outcome.accepted.tolist()
    return accepted, (cases.tokens >= 0).sum(2).max(1).tolist()


def shapes_of(rule: str) -> Iterator[Shape]:
    """Yield sizes that calls have, from probabilities and from logits."""
    several = rule in names("kernel", several=True)
    sizes = [(2, 2, 14, 14), (3, 3, 10, 7)] if several else [(1, 4, 14, 14), (1, 7, 10, 7)]
    if rule == "grid walk and keep":  # which takes long in fractions
        sizes = [(2, 2, 10, 7)]
    for chains, *others in sizes:
        shape = Shape(chains, *others, uniforms_per_position(rule, chains))
        yield shape._replace(counted=several)
        yield shape._replace(target_logits=True, draft_logits=True, one_temperature=False)
        yield shape._replace(target_logits=True)


@pytest.mark.parametrize("rule", names("kernel", backend="triton"))
def test_no_decision_about_chains_is_close(rule: str) -> None:
    """Bug: a right kernel that rounds otherwise is found wrong, or cases that all end alike."""
    uniforms: list[Fraction] = []
    shapes = list(shapes_of(rule))
    all_accepted = 0
    for shape in shapes:
        ratios: list[Fraction] = []
        with watched_bins(ratios):
            accepted, lengths = decide(rule, shape, uniforms)
        if shape.target_logits:
            assert min(ratios, default=ONE) > RATIO_MARGIN, shape
        assert max(lengths) == shape.gamma
        assert 0 in accepted
        all_accepted += any(n == most > 0 for n, most in zip(accepted, lengths, strict=True))
    assert min(uniforms) > MARGIN
    assert all_accepted >= len(shapes) / 2


@contextmanager
def watched_points(distances: list[Fraction]) -> Iterator[None]:
    """Note how far ratios of draft to target are from the points that they are compared with."""
    find = tree_walk.largest_step

    def largest_step(masses: Any, count: int) -> Any:
        points = tree_walk.starting_points(masses.of_certain, masses.hidden, count)
        for point, (q, p) in itertools.product(points, zip(*masses[:2], strict=True)):
            if p:
                distances.append(abs(p - point[0] * q) / p)
        return find(masses, count)

    with mock.patch.object(tree_walk, "largest_step", largest_step):
        yield


SHAPES_OF_PATHS = ((3, 3, WALK_UNIFORMS), (8, 4, WALK_UNIFORMS))


@pytest.mark.parametrize("whole_paths", [False, True], ids=["tokens", "whole paths"])
@pytest.mark.parametrize("logits", [False, True], ids=["probabilities", "logits"])
def test_no_decision_about_trees_is_close(logits: bool, whole_paths: bool) -> None:
    """Bug: a right kernel that rounds otherwise is found wrong, or cases that all end alike."""
    distances, ratios = list[Fraction](), list[Fraction]()
    nodes = set()
    verify = tree_walk.verify if whole_paths else tree.verify
    for shape in SHAPES_OF_PATHS if whole_paths else ((3, 3, 2), (8, 4, 3), (24, 6, 4)):
        for draft_tokens in (0, 7, 14):
            options = {"logits": logits, "one_temperature": False, "whole_paths": whole_paths}
            cases = tree_cases.draw_trees(shape, 14, draft_tokens, **options)
            for b, warmth in enumerate(cases.temperatures.tolist()):
                trees = Trees(*(x[b : b + 1] for x in cases.trees))
                if warmth == 0:  # all drafts are deterministic
                    trees = trees._replace(sampled=trees.sampled & False)
                laws = [x[b : b + 1] for x in cases[: 1 + (draft_tokens > 0)]]
                rows = [exact(x, warmth if logits else None) for x in laws]
                trees = trees._replace(uniforms=watched(trees.uniforms, distances))
                with watched_points(ratios):
                    outcome = verify(*(*rows, None)[:2], trees)
                nodes.add(int(outcome.accepted[0]))
    assert min(distances) > MARGIN
    assert len(nodes) > 3
    assert whole_paths == bool(ratios)
    if logits:
        assert min(ratios, default=ONE) > RATIO_MARGIN


def test_no_clock_rings_close_to_the_first() -> None:
    for rows in (1, 3, 6):
        laws, keys, positions, lists = clock_cases.draw_clocked(rows, 14)
        for count in (1, 4):
            first = clocks.first_rings(laws, keys, positions, lists, count)
            others = laws.copy()
            np.put_along_axis(others, first[..., None], 0.0, axis=-1)
            # a rate that is 10^−6 higher makes no other token the first
            for token in range(14):
                raised = laws.copy()
                raised[..., token] *= 1 + 1e-6
                assert (clocks.first_rings(raised, keys, positions, lists, count) == first).all()
            assert (clocks.first_rings(others, keys, positions, lists, count) != first).all()


LAUNCHING = (
    *(one_chain, distributions, multi_draft, grid_walk_and_keep, triton_clocks),
    *(triton_tree, triton_rows, triton_tree_walk),
)


@contextmanager
def recorded_kernels() -> Iterator[set[Any]]:
    """Launch nothing, and note what Triton would compile: kernels with all that it compiles for."""
    compiled: set[Any] = set()

    def of_argument(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.dtype, value.data_ptr() % 16 == 0
        if isinstance(value, int):
            return value == 1, value % 16 == 0, value < 2**31
        return type(value)

    def launch(kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
        named = dict(zip(kernel.arg_names, arguments, strict=False))
        given = (named[x] for x in named if x not in {"position", "level", "test"})
        key = (runtime.name_of(kernel), *map(of_argument, given), *sorted(constants.items()))
        compiled.add(key)

    with ExitStack() as stack:
        for module in LAUNCHING:
            stack.enter_context(mock.patch.object(module, "launch", launch))
            if hasattr(module, "check_device"):  # the tensors are on the CPU, also beside a GPU
                stack.enter_context(mock.patch.object(module, "check_device"))
        yield compiled


def given_layout(seed: int, batch: int, gamma: int) -> tuple[str, Chains]:
    """Draw a memory layout that engines use, and make tensors for a batch in this layout."""
    rng = np.random.default_rng(seed)
    rule = str(rng.choice(names("kernel", backend="triton")))
    several = rule in names("kernel", several=True)
    count = int(rng.integers(1, 4))
    size = int(rng.choice([16, 17, 40, 4096, 5000]))
    logits, packed = rng.random() < 0.5, not several and rng.random() < 0.3
    dtype = [torch.float32, torch.bfloat16][rng.integers(2)]
    draft_size, wide = size - int(rng.choice([0, 0, 1])), int(rng.choice([0, 0, 3, 16]))
    lead = (batch, count) if several else (batch,)

    def rows(number: int, width: int) -> Any:
        if packed:
            return torch.zeros(batch * number, width + wide, dtype=dtype)[:, :width]
        made = torch.zeros(*lead, number, width + wide, dtype=dtype)[..., :width]
        return made[:, :1].expand(made.shape) if several and shared else made

    shared = rng.random() < 0.3
    start = int(rng.integers(2))  # some tensors do not begin at a multiple of 16 bytes
    shape = (batch * gamma,) if packed else (*lead, gamma)
    tokens = torch.zeros(int(np.prod(shape)) + start, dtype=torch.int32)[start:].view(shape)
    coins = gamma * uniforms_per_position(rule, count if several else 1) + 2
    uniforms = torch.zeros(batch, coins, dtype=torch.float64)
    target, draft = rows(gamma + 1, size), rows(gamma, draft_size)
    form = rng.integers(3)
    if form == 0:
        listed = torch.zeros(*shape, int(rng.choice([1, 5, 16])), dtype=torch.int64)
        draft = SparseDrafts(listed, torch.zeros(listed.shape, dtype=dtype))
    elif form == 1 and not several:
        draft = None
    temperature = [1.0, torch.ones(batch), torch.ones(1)][rng.integers(3)] if logits else None
    offsets = torch.arange(batch + 1) * gamma if packed else None
    counted = torch.ones(shape, dtype=torch.bool) if several and rng.random() < 0.5 else None
    return rule, Chains(target, draft, tokens, uniforms, temperature, offsets, counted)


def test_a_check_compiles_what_the_call_runs_and_calls_of_a_family_run_the_same() -> None:
    """Bug: other kernels are checked than those that are used afterwards, or only some of them."""
    families: dict[Any, set[Any]] = {}
    gammas = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 5), (8, 9))
    calls = [
        (seed, batch, gamma)
        for seed in range(50)
        for batch, gamma in zip((1, 2, 3), (*gammas[seed % 7], gammas[seed % 7][0]), strict=True)
    ]
    repeated = 0
    for given in calls:
        rule, chains = given_layout(*given)
        verify = partial(_verify, named(rule, "kernel"))
        call = chain_cases.call_of_chains(rule, chains, verify)
        with recorded_kernels() as used:
            verify("triton", chains, None)
        assert used
        repeated += call.family in families
        if call.family not in families:
            with recorded_kernels() as checked:
                for cases in call.cases():
                    verify("triton", cases, self_check.GarbageWorkspace())
            families[call.family] = checked
        assert used == families[call.family], call.name
    assert repeated > len(calls) / 3


@pytest.mark.parametrize("whole_paths", [False, True], ids=["tokens", "whole paths"])
@pytest.mark.parametrize("logits", [False, True], ids=["probabilities", "logits"])
@pytest.mark.parametrize("drafted", [False, True], ids=["certain", "sampled"])
def test_a_check_of_trees_compiles_what_the_call_runs(
    logits: bool, drafted: bool, whole_paths: bool
) -> None:
    verify = _walk_and_keep if whole_paths else _walk
    for batch, nodes, size, wide in ((1, 3, 17, 0), (2, 16, 32, 1), (3, 1, 40, 16)):
        rows = torch.zeros(batch, nodes + 1, size + wide)[..., :size]
        numbers = torch.zeros(batch, nodes, dtype=torch.int64)
        coins = WALK_UNIFORMS if whole_paths else 2 + nodes % 2
        uniforms = torch.zeros(batch, 3, coins, dtype=torch.float64)
        trees = Trees(numbers, numbers - 1, numbers > 0, uniforms)
        warmth = [None, 1.0, torch.ones(batch)][logits * (1 + nodes % 2)]
        given = (rows, rows if drafted else None, trees, warmth)
        with recorded_kernels() as used:
            verify("triton", given, None)
        call = tree_cases.call_of_trees(*given, verify, whole_paths=whole_paths)
        with recorded_kernels() as checked:
            for cases in call.cases():
                verify("triton", cases, None)
        assert used == checked


def test_a_check_of_clocks_compiles_what_the_call_runs() -> None:
    for batch, rows, size, count in ((1, 1, 17, 1), (2, 5, 32, 4), (3, 16, 4097, 16)):
        numbers = torch.zeros(batch, rows, dtype=torch.int64)
        given = (torch.zeros(batch, rows, size), numbers[:, 0].clone(), numbers, numbers, count)
        with recorded_kernels() as used:
            _ring("triton", given)
        with recorded_kernels() as checked:
            for cases in clock_cases.call_of_clocks(given, _ring).cases():
                _ring("triton", cases)
        assert used == checked
