"""α_k of tensors: values of NumPy, and gradients against finite differences of fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from otm import alpha
from otm._core.arithmetic import Probs
from otm._core.ratios.bins import FEW
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidInputError,
    MissingDependencyError,
)
from otm.optimum import many_rows as rows
from otm.optimum import torch as on_torch
from otm.optimum.cut import minimum_cut
from otm.optimum.torch import optimal_values
from otm.problem import Problem
from otm.testing.instances import INSTANCES, instance
from otm.testing.strategies import pairs, problems

torch = pytest.importorskip("torch")

F = Fraction
LARGEST = 2**63 - 1
fewer = settings(max_examples=settings.default.max_examples // 2)
P, Q = [0.5, 0.25, 0.25, 0.0], [0.125, 0.25, 0.5, 0.125]  # k = 2: H holds the first two tokens


def random_logits(*shape: int, seed: int = 0, scale: float = 2.0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def exact_value(draft: list[Fraction], target: list[Fraction], k: int) -> Fraction:
    """α_k of weights divided by their sums, in fractions."""
    p, q = ([x / sum(law) for x in law] for law in (draft, target))
    return Fraction(minimum_cut(Problem(p, q, k)).value)


# Values


@given(pairs(), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_values_are_those_of_numpy(pair: tuple[Probs, Probs], k: list[int]) -> None:
    """Catches tokens with p = 0 in a cut, and digits lost where α is tiny.

    Below 2^−1022 torch may take a probability for 0, and then loses k times as much.
    """
    draft, target = (law for law in pair)
    problem = Problem(draft, target, 1)
    k = [*k, 10**6, LARGEST]
    expected = rows.optimal_values(problem.draft, problem.target, k)
    found, sizes = optimal_values(*(torch.from_numpy(law.copy()) for law in pair), torch.tensor(k))
    assert found.dtype == torch.float64
    assert sizes.dtype == torch.int64
    assert found.numpy() == pytest.approx(expected, rel=2e-15, abs=LARGEST * 2.0**-1022)
    assert sizes.max() <= np.count_nonzero(draft)


@pytest.mark.parametrize("k", [1, 2, LARGEST])
def test_tokens_of_infinite_ratio_are_in_no_cut(k: int) -> None:
    """Catches tokens with p = 0 between those whose ratio overflows."""
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        draft = torch.tensor([1e-310, 0.0, 1.0, 0.0], dtype=torch.float64)[order]
        target = torch.tensor([0.25, 0.25, 0.5, 0.0], dtype=torch.float64)[order]
        value, size = optimal_values(draft, target, k)
        assert (value.item(), size.item()) == (0.5, 1)


@pytest.mark.parametrize("n", [1, 511, 512, 513, 5_000])
def test_long_rows_are_those_of_numpy(n: int) -> None:
    # the power is taken by expm1 here, by squaring there: equal up to rounding
    draft, target = (torch.softmax(random_logits(6, n, seed=seed), -1) for seed in (1, 2))
    draft[:, 1::3] = 0
    draft = draft / draft.sum(-1, keepdim=True)
    k = torch.tensor([[1], [2], [8], [1000]])
    expected = rows.optimal_values(draft.numpy(), target.numpy(), k.numpy())
    found, _ = optimal_values(draft, target, k)
    assert found.numpy() == pytest.approx(expected, rel=2e-15)


LONG = FEW + 700
WAYS = pytest.mark.parametrize("on_host", [True, False])


def long_pair(name: str) -> tuple[Any, Any]:
    """Long rows, some with most tokens in few bins: draft [2, n] and target [2, n]."""
    a, b = (random_logits(2, LONG, seed=seed) for seed in (1, 2))
    target = torch.softmax(a, -1)
    if name in {"close", "closer"}:  # all in a dozen bins, or in two
        return torch.softmax(a + (0.02 if name == "close" else 1e-4) * b, -1), target
    draft = torch.softmax(a + b, -1)
    if name == "zeros":
        draft[:, ::3], target[:, 1::5], target[:, ::6] = 0, 0, 0
    if name == "disjoint but for one":
        draft[:, ::2], target[:, 3::2], target[:, 1] = 0, 0, 1e-20
    if name == "extreme":
        draft[:, :9] = torch.logspace(-310, -10, 9, dtype=torch.float64)
        target[:, 9:18] = torch.logspace(-320, -10, 9, dtype=torch.float64)
    if name == "few ratios":
        steps = torch.arange(LONG) % 7 + 1.0
        draft, target = torch.ones(2, LONG).double(), steps.double().expand(2, LONG)
    if name == "equal":
        draft = target.clone()
    return tuple(law / law.sum(-1, keepdim=True) for law in (draft, target))  # type: ignore[return-value]


@WAYS
@pytest.mark.parametrize(
    "name",
    ["apart", "close", "closer", "zeros", "disjoint but for one", "extreme", "few ratios", "equal"],
)
def test_long_rows_in_bins_are_as_sorted_ones(
    name: str, on_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a bin in doubt that is passed over, tokens of another row, and mass lost in bins."""
    draft, target = long_pair(name)
    k = torch.tensor([[1], [2], [8], [1000], [LARGEST]])
    expected = rows.optimal_values(draft.numpy(), target.numpy(), k.numpy())
    gradients = []
    for validate in (True, False):
        monkeypatch.setattr(on_torch, "ON_HOST", on_host and validate)  # else by a sort
        laws = [law.clone().requires_grad_() for law in (draft, target)]
        values, sizes = optimal_values(*laws, k, validate=validate)
        assert values.detach().numpy() == pytest.approx(expected, rel=2e-15, abs=1e-320)
        (values * torch.arange(1.0, 11.0).reshape(5, 2)).sum().backward()
        for law in laws:  # scaling a row does not change it once it is divided by its sum
            assert (law * law.grad).sum(-1).tolist() == pytest.approx([0, 0], abs=1e-13)
        gradients.append([law.grad for law in laws])
        for i, row in np.ndindex(tuple(sizes.shape)):
            if values[i, row] < 1 - 1e-14:  # otherwise several cuts are minimum
                problem = Problem(draft[row].numpy(), target[row].numpy(), int(k[i]))
                assert sizes[i, row] == minimum_cut(problem).tokens.size
    if name == "equal":  # every cut is minimum for k = 1
        return
    for in_bins, by_sort in zip(*gradients, strict=True):
        assert torch.allclose(in_bins, by_sort, rtol=1e-11, atol=1e-14)


@WAYS
def test_long_rows_of_no_distributions_end(on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches bins that are split forever."""
    monkeypatch.setattr(on_torch, "ON_HOST", on_host)
    draft, target = long_pair("apart")
    for wrong in (torch.nan, torch.inf, -1.0):
        broken = draft.clone()
        broken[0, 3] = wrong
        for pair in ((broken, target), (target, broken), (0 * draft, target)):
            values, _ = optimal_values(*pair, 3, validate=False)
            assert values.shape == (2,)
    expected = optimal_values(draft, target, 3)[0]
    found = optimal_values(7 * draft, target / 3, 3, validate=False)[0]
    assert found.numpy() == pytest.approx(expected.numpy(), rel=2e-15)
    assert optimal_values(draft[:0], target[:0], 3)[0].shape == (0,)
    assert optimal_values(draft, target, torch.ones(0, 1).long())[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("draft", "target", "k"),
    [
        ((4, 5), (4, 5), ()),
        ((5,), (5,), ()),
        ((5,), (4, 5), (3, 1)),
        ((4, 1, 5), (2, 5), (3, 1, 1)),
        ((0, 5), (5,), ()),
        ((2, 1, 5), (5,), (0,)),
    ],
)
def test_all_leading_axes_broadcast(draft: Any, target: Any, k: Any) -> None:
    """Catches axes in another order, forwards or in the gradient."""
    a, b = (torch.softmax(random_logits(*shape), -1) for shape in (draft, target))
    counts = torch.arange(1, 1 + int(np.prod(k))).reshape(k)
    for law in (a, b):
        law.requires_grad_()
    values, sizes = optimal_values(a, b, counts)
    expected = rows.optimal_values(a.detach().numpy(), b.detach().numpy(), counts.numpy())
    assert values.shape == sizes.shape == expected.shape
    assert values.detach().numpy() == pytest.approx(expected, abs=1e-15)
    for row in np.ndindex(tuple(values.shape)):
        here = (a.detach().broadcast_to(*values.shape, 5)[row].numpy() for a in (a, b))
        k_here = int(counts.broadcast_to(values.shape)[row])
        assert sizes[row] == minimum_cut(Problem(*here, k_here)).tokens.size
    weights = torch.arange(1.0, 1.0 + values.numel(), dtype=torch.float64).reshape(values.shape)
    values.backward(weights)
    assert (a.grad.shape, b.grad.shape) == (a.shape, b.shape)

    # one row at a time
    sums = [torch.zeros_like(law) for law in (a, b)]
    wide = [law.detach().broadcast_to(*values.shape, 5) for law in (a, b)]
    for row in np.ndindex(tuple(values.shape)):
        laws = [law[row].clone().requires_grad_() for law in wide]
        k_row = counts.broadcast_to(values.shape)[row]
        optimal_values(*laws, int(k_row))[0].backward(weights[row])
        for total, law in zip(sums, laws, strict=True):
            lead = total.broadcast_to(*values.shape, 5).new_zeros(*values.shape, 5)
            lead[row] = law.grad
            total.add_(lead.sum_to_size(total.shape))
    for law, total in zip((a, b), sums, strict=True):
        assert torch.allclose(law.grad, total, rtol=1e-12, atol=1e-14)


def test_strided_and_expanded_tensors_are_as_contiguous_ones() -> None:
    draft, target = (torch.softmax(random_logits(3, 8, seed=seed), -1) for seed in (1, 2))
    expected = optimal_values(draft, target, 3)[0]
    strided = torch.stack([draft, target], dim=-1)
    assert torch.equal(optimal_values(strided[..., 0], strided[..., 1], 3)[0], expected)
    assert torch.equal(optimal_values(draft.T.contiguous().T, target, 3)[0], expected)
    one = draft[:1].clone().requires_grad_()
    optimal_values(one.expand(3, 8), target, 3)[0].sum().backward()
    assert torch.equal(
        optimal_values(one.expand(3, 8), target, 3)[0], optimal_values(one, target, 3)[0]
    )
    assert one.grad.shape == (1, 8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_type_gives_float64_and_gradients_of_its_own(dtype: str) -> None:
    """Catches sums and powers in half precision."""
    kind = getattr(torch, dtype)
    draft, target = (torch.softmax(random_logits(4, 300, seed=s), -1).to(kind) for s in (1, 2))
    exact = [(x.double() / x.double().sum(-1, keepdim=True)).numpy() for x in (draft, target)]
    draft.requires_grad_()
    values, _ = optimal_values(draft, target, 4)
    assert values.dtype == torch.float64
    assert values.detach().numpy() == pytest.approx(rows.optimal_values(*exact, 4), rel=1e-14)
    values.sum().backward()
    assert draft.grad.dtype == kind
    assert torch.isfinite(draft.grad).all()


@pytest.mark.parametrize("k", [2, np.int64(2), np.array(2), torch.tensor(2, dtype=torch.int32)])
def test_k_may_be_any_integer(k: Any) -> None:
    value, size = optimal_values(torch.tensor(P), torch.tensor(Q), k)
    assert (value.item(), size.item()) == (F(13, 16), 2)


# Gradients


@pytest.mark.parametrize("k", [1, 2, 5])
def test_gradcheck(k: int) -> None:
    logits = [random_logits(2, 4, seed=seed).requires_grad_() for seed in range(2)]

    def value(a: Any, b: Any) -> Any:
        return optimal_values(a.exp(), b.exp(), k, validate=False)[
            0
        ]  # weights that do not sum to 1

    assert torch.autograd.gradcheck(value, logits)


@fewer
@given(problems(exact=True, kinds=["independent", "overlapping"]), st.data())
def test_gradients_are_finite_differences_of_fractions(
    problem: Problem, data: st.DataObject
) -> None:
    """Catches a wrong factor, a sign, the other side of the cut, a forgotten normalisation."""
    p, q, k = problem.draft.tolist(), problem.target.tolist(), problem.k
    token = data.draw(st.integers(0, problem.n - 1))
    tensors = [
        torch.tensor([float(x) for x in law], dtype=torch.float64, requires_grad=True)
        for law in (p, q)
    ]
    optimal_values(*tensors, k)[0].backward()
    for which, law in enumerate((p, q)):
        if law[token] == 0:
            continue  # cannot be lowered
        step = law[token] * F(1, 10**9)
        values = []
        for sign in (-1, 0, 1):
            moved = [list(p), list(q)]
            moved[which][token] += sign * step
            values.append(exact_value(moved[0], moved[1], k))
        low, high = (values[1] - values[0]) / step, (values[2] - values[1]) / step
        assume(abs(high - low) < 1e-4)  # away from the kinks where two cuts are minimum
        assert tensors[which].grad[token].item() == pytest.approx(float(low + high) / 2, abs=1e-4)


@pytest.mark.parametrize("k", [1, 2, 8, 1000])
def test_gradients_are_the_closed_form(k: int) -> None:
    """∂α/∂q = 1_H and ∂α/∂p = −k p(H)^(k−1) 1_H, both through p = a/Σa by autograd."""
    weights = [random_logits(50, seed=seed).exp().requires_grad_() for seed in (3, 4)]
    p, q = (law / law.sum() for law in weights)
    values, size = optimal_values(*weights, k, validate=False)
    values.backward()
    inside = torch.zeros(50, dtype=torch.float64)
    inside[(q / p).argsort()[:size]] = 1
    mass = (p * inside).sum()
    surrogate = (q * inside).sum() + 1 - mass**k
    expected = torch.autograd.grad(surrogate, weights)
    for law, gradient in zip(weights, expected, strict=True):
        assert torch.allclose(law.grad, gradient, rtol=1e-9, atol=1e-14)


def test_gradients_do_not_cancel() -> None:
    """At p(H) = 1 − 10^−20 the difference 1 − p(H) is 0, and the gradient of H's tokens is not."""
    draft = torch.tensor([1.0, 1e-20], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1e-30, 1.0], dtype=torch.float64, requires_grad=True)
    optimal_values(draft, target, 3)[0].backward()
    assert draft.grad.tolist() == pytest.approx([-3e-20, 3.0], rel=1e-14)
    assert target.grad.tolist() == pytest.approx([1.0, -1e-30], rel=1e-14)


@pytest.mark.parametrize("k", [1, 2, LARGEST])
def test_gradients_are_finite_at_the_edges(k: int) -> None:
    """Catches 0 · log 0 at an empty cut, and at a cut that holds everything."""
    for p, q in (
        ([1.0, 0.0], [0.0, 1.0]),
        ([0.5, 0.5], [0.5, 0.5]),
        ([1.0], [1.0]),
        (P, Q),
        (Q, P),
    ):
        laws = [torch.tensor(law, dtype=torch.float64, requires_grad=True) for law in (p, q)]
        optimal_values(*laws, k)[0].backward()
        for law in laws:
            assert torch.isfinite(law.grad).all()
            # scaling a row does not change it once it is divided by its sum
            assert (law * law.grad).sum().item() == pytest.approx(0, abs=1e-12)


def test_training_the_draft_raises_alpha() -> None:
    logits = random_logits(64, scale=1.0).requires_grad_()
    target = torch.softmax(random_logits(64, seed=1), -1)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    history = []
    for _ in range(40):
        value, _ = optimal_values(torch.softmax(logits, -1), target, k=3)
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
        history.append(value.item())
    assert history[-1] > history[0] + 0.2


def test_second_derivatives_are_refused() -> None:
    draft = torch.tensor(P, requires_grad=True)
    value, size = optimal_values(draft, torch.tensor(Q), 2)
    assert not size.requires_grad
    with pytest.raises(InvalidInputError, match="create_graph=True"):  # not taken as constants
        torch.autograd.grad(value, draft, create_graph=True)


# Rejected input


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ([[0.5, 0.5], [0.75, 0.5]], "the draft distribution of row 1 sums to 1.25"),
        ([[0.5, 0.5], [1.5, -0.5]], "the draft distribution of row 1 has -0.5 at index 1"),
        ([[0.5, np.nan], [0.5, 0.5]], "the draft distribution of row 0 has nan at index 1"),
        (
            [[[0.5, 0.5]], [[np.inf, 0.0]]],
            r"the draft distribution of row \(1, 0\) has inf at index 0",
        ),
        ([[0.0, 0.0]], "the draft distribution of row 0 is zero everywhere"),
        ([0.5, 0.25], "the draft distribution sums to 0.75"),
    ],
)
def test_rows_that_are_no_laws_are_named(draft: Any, message: str) -> None:
    target = torch.tensor([0.5, 0.5])
    with pytest.raises(InvalidDistributionError, match=message):
        optimal_values(torch.tensor(draft), target, 2)
    with pytest.raises(InvalidDistributionError, match=message.replace("draft", "target")):
        optimal_values(target, torch.tensor(draft), 2)
    optimal_values(torch.tensor(draft), target, 2, validate=False)


@pytest.mark.parametrize(
    ("draft", "target", "message"),
    [
        (torch.ones(2, 1), torch.ones(3, 1), "must broadcast"),
        (torch.ones(1, 2) / 2, torch.ones(3) / 3, "2 tokens and the target distribution 3"),
        (torch.ones(1), [1.0], "the target distribution has type list"),
        (torch.ones(1).int(), torch.ones(1), "torch.int32; allowed are"),
        (torch.ones(1).to_sparse(), torch.ones(1), "sparse"),
        (torch.tensor(1.0), torch.ones(1), r"shape \(\)"),
        (torch.ones(2, 0), torch.ones(2, 0), r"shape \(2, 0\)"),
        (torch.ones(1, device="meta"), torch.ones(1), "on meta and the target distribution on cpu"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(draft: Any, target: Any, message: str) -> None:
    for validate in (True, False):
        with pytest.raises(InvalidDistributionError, match=message):
            optimal_values(draft, target, 2, validate=validate)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (0, "k = 0"),
        (1.0, "k = 1.0 of type float"),
        (torch.tensor([1, 0]), "row 1: k = 0"),
        (torch.tensor([1.0]), "torch.float32"),
        (torch.tensor([True]), "torch.bool"),
        (torch.ones(3, dtype=torch.int64), r"k of shape \(3,\).*must broadcast"),
    ],
)
def test_what_is_not_a_number_of_drafts_is_refused(k: Any, message: str) -> None:
    laws = torch.full((2, 2), 0.5)
    with pytest.raises(InvalidDraftCountError, match=message):
        optimal_values(laws, laws, k)


@pytest.mark.parametrize("name", INSTANCES)
def test_nothing_waits_for_the_device_without_validation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a number that the host reads, which makes it wait for the GPU."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the host looked at a tensor")

    problem = instance(name)
    draft = torch.tensor(problem.draft.astype(float), requires_grad=True)
    target, k = torch.tensor(problem.target.astype(float)), torch.tensor([1, problem.k])
    for method in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, method, refuse)
    for counts in (k, problem.k):
        values, _ = optimal_values(draft, target, counts, validate=False)
        values.sum().backward()
    with pytest.raises(AssertionError, match="the host looked"):
        optimal_values(draft, target, k)


@pytest.mark.parametrize("n", [50, LONG])
def test_other_devices_sort_where_they_may_not_wait(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches bins, which need the number of tokens in doubt, where nothing may wait."""
    monkeypatch.setattr(on_torch, "ON_HOST", False)
    monkeypatch.setattr(on_torch, "_in_bins", lambda *_: pytest.fail("the host waits in here"))
    draft, target = (torch.softmax(random_logits(n, seed=seed), -1) for seed in (1, 2))
    expected = alpha(draft.numpy(), target.numpy(), 3)
    assert optimal_values(draft, target, 3, validate=False)[0].item() == pytest.approx(expected)


def test_a_missing_torch_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"otm\[torch\]"):
        on_torch.optimal_values([1.0], [1.0], 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_values_are_those_of_the_cpu() -> None:
    draft, target = (torch.softmax(random_logits(5, 3_000, seed=s), -1) for s in (1, 2))
    draft[:, ::3] = 0
    draft = draft / draft.sum(-1, keepdim=True)
    gradients = []
    for device in ("cpu", "cuda"):
        law = draft.to(device).requires_grad_()
        values, sizes = optimal_values(law, target.to(device), torch.tensor([[1], [8]]))
        assert values.device.type == sizes.device.type == device
        values.sum().backward()
        gradients.append((values.detach().cpu(), law.grad.cpu()))
    for cpu, cuda in zip(*gradients, strict=True):
        assert torch.allclose(cpu, cuda, rtol=1e-12, atol=1e-14)


def test_draft_mass_where_neither_law_has_any_is_lost() -> None:
    # bug: a token with p = q = 0 had the gradient of one outside the cut, which is wanted
    draft = torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.3, 0.7, 0.0], dtype=torch.float64)
    alpha(draft, target, 1).backward()
    h = 2.0**-24
    to_the_right = (
        alpha([0.6, 0.4, h], [0.3, 0.7, 0], 1) - alpha([0.6, 0.4, 0], [0.3, 0.7, 0], 1)
    ) / h
    assert draft.grad is not None
    assert float(draft.grad[2]) == pytest.approx(to_the_right, abs=1e-6)


def test_a_gradient_is_not_dropped_without_a_word() -> None:
    draft = torch.tensor([0.5, 0.5], requires_grad=True)
    for other in ([0.5, 0.5], torch.tensor([1, 0])):
        with pytest.raises(InvalidDistributionError, match="give both as float tensors"):
            alpha(draft, other, 2)
    assert alpha(torch.tensor([1, 0]), torch.tensor([1, 0]), 2) == 1.0
