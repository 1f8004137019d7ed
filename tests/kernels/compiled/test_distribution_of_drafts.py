"""The output distribution of several chains from float32 logits, small and full vocabularies.

The drafts follow the exact softmax; thresholds, slots and masses come from float32 arithmetic.
At a small vocabulary, the kernels run on both sides of every edge between two decisions, so these
distributions are those of the kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from otm.kernels import verify_logits, verify_probs  # noqa: E402
from otm.kernels.common import softmax  # noqa: E402
from otm.kernels.common.distributions.numpy import mass  # noqa: E402
from otm.kernels.k_seq import torch as grid_k_seq  # noqa: E402
from otm.kernels.optimal import torch as grid_optimal  # noqa: E402
from otm.kernels.optimal.numpy import swap_partners, winner_probs  # noqa: E402
from otm.kernels.registry import uniforms_per_position  # noqa: E402

LAST = 1 - 2.0**-53  # the largest uniform of 53 bits


class Node(NamedTuple):
    """Outcome of a rule at a node with K drafts.

    Attributes
    ----------
    output : Tensor [V]
        Distribution of the output.
    chance : Tensor [V]
        Acceptance probability of a tested draft, by token.
    residual : Tensor [V]
        Residual masses, used if no draft is accepted.
    edges : list of Tensor
        For each token, the uniforms at which the slot of its drafts changes.
    """

    output: Any
    chance: Any
    residual: Any
    edges: list[Any]


def by_k_seq(target: Any, draft: Any, drawn: Any, count: int) -> Node:
    """Return k-Seq's output distribution for float32 rows and the drafts' true one."""
    of_target, of_draft = target.double()[None], draft.double()[None]
    split = grid_k_seq.find_split(of_target, of_draft, torch.tensor([[count]]), count)
    mean = split.one_draft(of_target, of_draft)
    residual = (mass(target) - mass(split.factor * mean)[0]).clamp(min=0)
    chance = (mean / of_draft)[0].clamp(max=1)
    hit = (drawn * chance).sum()
    none = (1 - hit) ** count
    output = drawn * chance * (1 - none) / hit + none * residual.double() / residual.sum()
    return Node(output, chance, residual, [])


def by_bins(target: Any, draft: Any, drawn: Any, count: int) -> Node:
    """Return grid optimal's output distribution for float32 rows and the drafts' true one."""
    of_target, of_draft = target.double(), draft.double()
    numbers = grid_optimal.deterministic_count(torch.tensor([[count]]), count)
    places, table = grid_optimal.bin_tokens(of_target[None], of_draft[None], numbers)
    won = winner_probs(of_draft[None], places, table)[0]
    win, rise, slopes, lack, excess, _ = (x[0] for x in table)
    own, share = places.bin[0], places.share[0]
    start, amount = swap_partners(lack, excess)[1:]
    change = (win[own] + share * rise[own] - slopes[own]).abs()

    # how a draft gets its slot: the moves between two bins are the points with the same partners
    ends = torch.cat([lack, excess]).unique()
    ends = ends[(ends > 0) & (ends <= torch.minimum(lack[-1], excess[-1]))]
    starts = torch.cat([ends[:1] * 0, ends[:-1]])
    low, high = (torch.searchsorted(x, starts, right=True) for x in (lack, excess))
    size, gain = (ends - starts).double(), slopes[high] - slopes[low]
    rates = size / amount[low] / gain, size / amount[high] / gain
    of_bins = torch.zeros(len(win), dtype=torch.float64)
    moving = of_bins.scatter_add(0, own, drawn * change)
    up, down = moving[low] * rates[0], moving[high] * rates[1]
    slot_masses = of_bins.scatter_add(0, own, drawn)
    slot_masses = slot_masses.scatter_add(0, low, down - up).scatter_add(0, high, up - down)
    below = slot_masses.cumsum(0)
    under = torch.cat([below[:1] * 0, below[:-1]])
    wins = sum(under**j * below ** (count - 1 - j) for j in range(count))
    gains = wins[high] - wins[low]
    gains = of_bins.scatter_add(0, low, rates[0] * gains).scatter_add(0, high, -rates[1] * gains)
    winner = drawn * (wins[own] + change * gains[own])

    # where on the way the decisions of a draft change: both ends of each of its moves
    edges = [torch.zeros(0, dtype=torch.float64)] * len(own)
    for x, b in enumerate(own.tolist()) if len(own) < 10 else []:
        mine = (low == b) | (high == b)
        first = (starts[mine] - start[b]).double() / amount[b]
        part = (change[x] / gain[mine] * size[mine]) / amount[b]
        edges[x] = torch.cat([first[1:], first + part])

    chance = (of_target / won).clamp(max=1)
    accepted = winner * chance
    residual = (mass(target) - mass(torch.minimum(of_target, won))).clamp(min=0)
    output = accepted + (1 - accepted.sum()) * residual.double() / residual.sum()
    return Node(output, chance, residual, edges)


LAW = {"grid k-Seq": by_k_seq, "grid optimal": by_bins}


def distance(a: Any, b: Any) -> float:
    return float((a - b).abs().sum() / 2)


@pytest.mark.parametrize("rule", LAW)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("spread", "temperature", "dtype"), [(3.0, 0.6, torch.bfloat16), (3.0, 1.0, torch.float32)]
)
def test_the_law_at_full_vocabulary(
    rule: str, count: int, spread: float, temperature: float, dtype: Any
) -> None:
    rng = torch.Generator().manual_seed(2)
    draft = spread * torch.randn(128_256, generator=rng)
    target = (draft + 0.6 * torch.randn(128_256, generator=rng)).to(dtype)
    draft = draft.to(dtype)
    exact, drawn = ((x.double() / temperature).softmax(-1) for x in (target, draft))
    warm = torch.full((), temperature, dtype=torch.float64)
    laws = [softmax.softmax(x, warm) for x in (target, draft)]
    node = LAW[rule](*laws, drawn, count)
    assert distance(node.output, exact) < 1e-6


def edges_of(masses: Any) -> Any:
    """Cumulative distribution of what is drawn by whole numbers."""
    return masses.cumsum(0).double() / masses.sum()


def assert_decided_there(outcome: Any, uniforms: Any, first: int, least: int) -> None:
    """Check that decisions differ on the sides of an edge, for uniforms from a first one on."""
    below, above = ([*zip(*(x[i::2].tolist() for x in outcome), strict=True)] for i in (0, 1))
    low, high = uniforms[::2], uniforms[1::2]
    place = (low != high).long().argmax(1, keepdim=True)
    inside = (low.gather(1, place) > 0) & (high.gather(1, place) < LAST) & (place >= first)
    assert inside.sum() >= least
    for one, other, decides in zip(below, above, inside[:, 0].tolist(), strict=True):
        assert one != other or not decides


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rule", LAW)
def test_the_law_from_its_breakpoints(rule: str, device: str) -> None:
    rng = torch.Generator().manual_seed(5)
    size, count = 3, 2
    target = 2 * torch.randn(size, generator=rng)
    draft = target + torch.randn(size, generator=rng)
    exact, drawn = (x.double().softmax(0) for x in (target, draft))
    warm = torch.ones((), dtype=torch.float64)
    laws = [softmax.softmax(x, warm) for x in (target, draft)]
    node = LAW[rule](*laws, drawn, count)
    assert distance(node.output, exact) < 1e-6
    masses = mass(laws[0])
    assert distance(masses.double() / masses.sum(), exact) < 1e-6

    # one uniform at a time on both sides of an edge, the others such that its decision is seen
    coins = uniforms_per_position(rule, count)
    worst, best = int(node.chance.argmin()), int(node.chance.argmax())
    assert node.chance[worst] < 1
    cases: list[tuple[list[int], list[float]]] = []

    def beside(edges: Any, place: int, tokens: list[int], others: list[float]) -> None:
        for edge in edges.tolist():
            for uniform in (max(edge - 2.0**-50, 0.0), min(edge + 2.0**-50, LAST)):
                cases.append((tokens, [*others[:place], uniform, *others[place + 1 :]]))

    coin = coins - 1  # of bins; k-Seq has one for each draft
    rejected = [LAST] * coins if rule == "grid k-Seq" else [0.5] * coin + [LAST]
    accepted = [0.0] * (coins + 2)
    for x in range(size):
        if rule == "grid k-Seq":
            beside(node.chance[x : x + 1], 0, [x, worst], [*rejected, 0.5, 0.5])
            beside(node.chance[x : x + 1], 1, [worst, x], [*rejected, 0.5, 0.5])
        else:
            beside(node.chance[x : x + 1], coin, [x, x], [0.5] * (coins + 2))
            others = [0.5] * coin + [0.0, 0.5, 0.5]
            assert len(node.edges[x])
            for y in (x, (x + 1) % size):
                beside(node.edges[x], 0, [x, y], others)
                beside(node.edges[x], 1, [y, x], others)
    beside(edges_of(node.residual), coins, [worst, worst], [*rejected, 0.5, 0.5])
    beside(edges_of(masses), coins + 1, [best, best], accepted)

    number = len(cases)
    tokens = torch.tensor([case[0] for case in cases])[:, :, None]
    uniforms = torch.tensor([case[1] for case in cases], dtype=torch.float64)

    def expanded(law: Any, rows: int) -> Any:
        return law.expand(number, count, rows, size)

    options = {"rule": rule, "validate": False}
    rows = expanded(laws[0], 2), expanded(laws[1], 1)
    expected = verify_probs(*rows, tokens, uniforms, **options)
    inputs = (expanded(target, 2), expanded(draft, 1), tokens, uniforms)
    outcome = verify_logits(*(x.to(device) for x in inputs), backend="triton", **options)
    for mine, other in zip(outcome, expected, strict=True):
        assert mine.cpu().tolist() == other.tolist()
    # slots need not decide anything
    assert_decided_there(expected, uniforms, 0 if rule == "grid k-Seq" else coin, size)
    assert set(expected.tokens[:, 0].tolist()) == set(range(size))
    assert set(expected.accepted.tolist()) == {0, 1}
