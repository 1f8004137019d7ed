"""Torch tensors: recognised, brought to the host, and answered with tensors on their device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otm
from otm._core.probs.sparse import SparseProbs
from otm._core.tensors import is_tensor, like, to_host
from otm.coupling import OptimalPlan
from otm.drafts import IID
from otm.errors import InvalidDraftsError
from otm.problem import Problem

torch = pytest.importorskip("torch")

P, Q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
DRAFTS = [[0, 1], [2, 0]]
NUMBERS = [[0.5, 0.125, 0.25, 0.75]] * 2


class Faraway(torch.Tensor):  # type: ignore[misc]
    """A tensor that NumPy cannot read before it is brought to the host, like one on a GPU."""

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def cpu(self) -> Any:
        """Bring it to the host."""
        return self.as_subclass(torch.Tensor)


def faraway(values: Any, dtype: Any = None) -> Any:
    """Make a tensor that is not on the host."""
    return torch.tensor(values, dtype=dtype).as_subclass(Faraway)


def on_gpu(values: Any, dtype: Any = None) -> Any:
    """Make a tensor on a real GPU."""
    return torch.tensor(values, dtype=dtype, device="cuda")


PLACES = [
    faraway,
    pytest.param(
        on_gpu, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
Make = Callable[..., Any]


def test_what_is_a_tensor() -> None:
    assert is_tensor(torch.zeros(2))
    assert is_tensor(faraway([1.0]))
    assert not any(is_tensor(values) for values in (np.zeros(2), [0.5], None, torch))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_floats_of_all_kinds_come_as_float64(kind: str) -> None:
    """Catches bfloat16, which NumPy lacks, and gradients, for which NumPy raises."""
    array = to_host(torch.tensor(P, dtype=getattr(torch, kind), requires_grad=True))
    assert array.dtype == np.float64
    assert array.tolist() == P


def test_what_is_no_tensor_passes_as_it_is() -> None:
    values = [0.5, "a"]
    assert to_host(values) is values
    array = np.arange(3)
    assert like(values, array) is array


def test_the_answer_is_on_the_device_and_shares_no_memory() -> None:
    array = np.arange(3)
    assert like(torch.empty(1, device="meta"), array).device.type == "meta"
    answer = like(torch.zeros(2, dtype=torch.int32), array)
    answer[0] = 7
    assert (answer.dtype, array[0]) == (torch.int64, 0)


@pytest.mark.parametrize("make", PLACES)
def test_plans_take_tensors_from_any_device(make: Make) -> None:
    plan = OptimalPlan(Problem(P, Q, 2))
    dense = plan.select(DRAFTS, NUMBERS)
    ids = np.array([7, 800, 9000])
    sparse = OptimalPlan(Problem(SparseProbs(ids, P), SparseProbs(ids, Q), 2))
    for rule, drafts, expected in (
        (plan, np.array(DRAFTS), dense.token),
        (sparse, ids[DRAFTS], ids[dense.token]),
    ):
        given = make(drafts, torch.int32)
        for numbers in (make(NUMBERS), NUMBERS):
            token, index = rule.select(given, numbers)
            assert token.dtype == index.dtype == torch.int64
            assert token.device == index.device == given.device
            assert (token.tolist(), index.tolist()) == (expected.tolist(), dense.index.tolist())
        seeds = [np.random.default_rng(3) for _ in range(2)]
        sampled = rule.sample(given, seeds[0]).token
        assert is_tensor(sampled)
        assert sampled.tolist() == rule.sample(drafts, seeds[1]).token.tolist()
        assert isinstance(rule.select(drafts, make(NUMBERS)).token, np.ndarray)
        assert rule.conditional(given).tolist() == rule.conditional(drafts).tolist()
        assert rule.drafts.check(given).tolist() == drafts.tolist()
        single = rule.select(given[0], make(NUMBERS)[0])
        assert (single.token.shape, single.token.item()) == ((), expected[0])
        drawn = rule.drafts.draw(make(NUMBERS)[:, : rule.drafts.uniforms_per_draw])
        assert (drawn.dtype, drawn.device) == (torch.int64, given.device)
        host = np.array(NUMBERS)[:, : rule.drafts.uniforms_per_draw]
        assert drawn.tolist() == rule.drafts.draw(host).tolist()


@pytest.mark.parametrize("make", PLACES)
def test_rows_take_tensors_from_any_device(make: Make) -> None:
    rows = otm.solve(make([P, P]), make(Q), make([2, 2]))
    plain = otm.solve([P, P], Q, 2)
    assert rows.alpha.tolist() == plain.alpha.tolist()
    drafts = make(DRAFTS)
    token, index = rows.select(drafts, make(NUMBERS))
    assert token.dtype == index.dtype == torch.int64
    assert token.device == drafts.device
    assert token.tolist() == plain.select(DRAFTS, NUMBERS).token.tolist()
    sampled = rows.sample(drafts, np.random.default_rng(3)).token
    assert is_tensor(sampled)
    assert sampled.tolist() == plain.sample(DRAFTS, np.random.default_rng(3)).token.tolist()


@pytest.mark.parametrize("make", PLACES)
def test_laws_take_tensors_from_any_device(make: Make) -> None:
    assert otm.alpha(make(P, torch.float64), Q, 2) == otm.alpha(P, Q, 2)
    assert SparseProbs(make([7, 3, 5]), make(P)).tokens.tolist() == [3, 5, 7]
    assert IID(make(P, torch.float16), 2).probs.tolist() == P


def test_tensors_of_a_wrong_type_are_refused_as_arrays_are() -> None:
    with pytest.raises(InvalidDraftsError, match="type float64"):
        OptimalPlan(Problem(P, Q, 2)).select(faraway([0.0, 1.0]), NUMBERS[0])
