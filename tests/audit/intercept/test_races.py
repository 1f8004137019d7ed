"""Races of exponential variables and Gumbel noise: one uniform draws the winner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import lossless, token_rule
from otm.audit.adapters.base import Source
from otm.audit.instances import INSTANCES
from tests.audit.helpers import drawing_from


def torch_module() -> Any:
    return pytest.importorskip("torch")


def as_tensor(array: Any) -> Any:
    return torch_module().as_tensor(array if array.dtype.kind == "i" else array.astype(np.float64))


def test_noise_that_is_overwritten_makes_no_race() -> None:
    """Bug: seeded noise, or noise changed through another tensor, passed as fresh."""
    torch = torch_module()
    weights = torch.tensor([0.5, 0.5, 0.5, 0.5], dtype=torch.float64)
    for uniform in (0.1, 0.9):
        with drawing_from(Source(np.full(4, uniform))):
            noise = torch.empty_like(weights).exponential_()
            noise.exponential_(generator=torch.Generator().manual_seed(7))
            expected = int((1 / noise).argmax())
            assert int((weights / noise).argmax()) == expected
            base = weights.clone()
            base[:].div_(torch.empty_like(base).exponential_())
            row = base[:]
            row.div_(torch.empty_like(row).exponential_())
            base[:3] = 0
            assert int(row.argmax()) == 3


def test_a_race_after_its_noise_was_looked_at_has_no_other_noise() -> None:
    """Bug: a winner drawn afresh from variables whose values decided something before."""
    torch = torch_module()
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    with drawing_from(Source(np.array([0.1, 0.9, 0.9]))):
        noise = torch.empty_like(weights).exponential_()
        assert int((weights / noise).max(-1).indices) == 0
        assert int((weights / noise).argmax()) == 0
    with drawing_from(Source(np.array([0.6]))):
        ratio = torch.tensor([0.2, -0.5, 0.0, 0.3]) / torch.empty(4).exponential_()
        assert int(ratio.argmax()) == 3


def rule_of(race: Callable[[Any], Any]) -> Any:
    """Return a rule that ignores drafts, and draws a token from the target by a race."""

    def rule(target_probs: Any, draft_probs: Any, drafts: Any) -> int:
        return int(race(target_probs))

    return rule


def exponentials(p: Any) -> Any:
    return torch_module().empty_like(p).exponential_()


def gumbel_of_uniforms(p: Any, eps: float = 0.0) -> Any:
    torch = torch_module()
    return -torch.log(-torch.log(torch.rand_like(p) + eps) + eps)


def gumbel_of_clamped(p: Any) -> Any:
    noise = torch_module().zeros_like(p).uniform_(0, 1)
    return -((-noise.clamp(min=1e-20).log()).clamp(min=1e-20).log())


def one_hot(p: Any, **options: Any) -> Any:
    return torch_module().nn.functional.gumbel_softmax(p.log()[None], hard=True, **options)[0]


RACES: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda p: (p / exponentials(p)).max(dim=-1).indices,
    "topk": lambda p: (p / exponentials(p)).topk(1).indices[0],
    "argmin": lambda p: (exponentials(p) / p).argmin(-1),
    "reciprocal": lambda p: (p[None] * exponentials(p)[None] ** -1)[0].argmax(),
    "minus log": lambda p: (p.log() - exponentials(p).log()).argmax(-1),
    "rand": lambda p: (p.log() + gumbel_of_uniforms(p)).softmax(-1).argmax(-1),
    "rand, eps": lambda p: (p.log() + gumbel_of_uniforms(p, 1e-10)).argmax(dim=-1),
    "rand, clamped": lambda p: (p.log() / 0.5 + gumbel_of_clamped(p) / 0.5).argmax(-1),
    "Gumbel": lambda p: torch_module().distributions.Gumbel(p.log(), 1.0).sample().argmax(-1),
    "gumbel_softmax": lambda p: one_hot(p).argmax(-1),
}
NOT_THE_TARGET: dict[str, Callable[[Any], Any]] = {
    "no logarithm": lambda p: (p + gumbel_of_uniforms(p)).argmax(-1),
    "one variable": lambda p: (p / torch_module().empty(1).exponential_()).argmax(-1),
    "temperature": lambda p: (p.log() / 0.5 + gumbel_of_uniforms(p)).argmax(-1),
    "added twice": lambda p: (p.log() + 2 * gumbel_of_uniforms(p)).argmax(-1),
}


@pytest.mark.parametrize("name", [*RACES, *NOT_THE_TARGET])
def test_races_of_torch(name: str) -> None:
    """Bug: noise that is not followed, or followed to another distribution than it has."""
    torch_module()
    race = RACES.get(name) or NOT_THE_TARGET[name]
    instance = INSTANCES["zeros" if name in RACES else "three tokens"]
    report = lossless(
        token_rule(rule_of(race), convert=as_tensor), instances=[instance], examples=0
    )
    expected = "lossless on everything tried" if name in RACES else "not lossless"
    method = "Monte Carlo" if name == "one variable" else "breakpoints"  # no race, values decide
    assert (report.verdict, report.method) == (expected, method)
    assert name not in RACES or float(report.tv_distance) < 1e-6


NUMPY_RACES: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda p: (p / np.random.exponential(size=len(p))).argmax(),  # noqa: NPY002
    "standard": lambda p: np.argmax(p / np.random.standard_exponential(p.shape)),  # noqa: NPY002
    "gumbel": lambda p: (np.log(p) + np.random.gumbel(size=len(p))).argmax(-1),  # noqa: NPY002
    "generator": lambda p: np.argmin(np.random.default_rng().exponential(1.0, p.shape) / p),
    "around logits": lambda p: np.random.default_rng().gumbel(np.log(p)).argmax(),
    "wrong": lambda p: (p + np.random.gumbel(size=len(p))).argmax(),  # noqa: NPY002
}


@pytest.mark.parametrize("name", NUMPY_RACES)
def test_races_of_numpy(name: str) -> None:
    """Bug: noise of NumPy that draws elsewhere, or races by another distribution."""
    names = ["three tokens"] if name == "wrong" else ["zeros"]
    report = lossless(
        token_rule(rule_of(NUMPY_RACES[name])), instances=[INSTANCES[n] for n in names], examples=0
    )
    expected = "not lossless" if name == "wrong" else "lossless on everything tried"
    exact = name in {"exponential", "standard"}
    assert (report.verdict, report.method) == (expected, "exact paths" if exact else "breakpoints")


def test_values_after_a_race_go_with_its_winner() -> None:
    """Bug: a winner and values that contradict it, or values of another distribution."""
    torch = torch_module()
    weights = torch.tensor([[0.1, 0.0, 0.3, 0.6]]).expand(4000, 4).contiguous()
    rng = np.random.default_rng(1)
    with drawing_from(rng.random):
        noise = torch.empty_like(weights).exponential_()
        ratio = weights / noise
        largest, winners = ratio.max(-1)
        assert torch.equal((ratio + 0).argmax(-1), winners)
        assert torch.equal((ratio + 0).amax(-1), largest + 0)
        values = np.asarray(noise)
    # P(E > 1) of each is e^-1, with a standard deviation of 0.0076; six of them
    assert abs((values > 1).mean(0) - np.exp(-1)).max() < 0.046


def test_noise_that_is_read_in_other_ways_has_values() -> None:
    """Bug: an array or a list of what torch drew, which no uniform determines."""
    torch = torch_module()
    for read in (lambda x: x.tolist(), lambda x: x.numpy().tolist(), lambda x: list(np.asarray(x))):
        with drawing_from(Source(np.array([0.25, 0.75]))):
            assert read(torch.rand(2)) == [0.25, 0.75]
    with drawing_from(Source(np.array([0.25, 0.75, 0.5, 0.5]))):
        noise = np.random.exponential(2.0, size=2)  # noqa: NPY002
        noise[0] = 7
        assert noise.tolist() == [7, -2 * np.log1p(-0.75)]
        noise = np.random.gumbel(size=2)  # noqa: NPY002
        noise += 1
        assert list(noise) == [1 - np.log(np.log(2))] * 2
