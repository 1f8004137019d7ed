"""Verifiers that draw from global generators: their distributions from the audit's uniforms."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otm.audit import chain, loop, lossless
from otm.audit.adapters.base import Source
from otm.audit.instances import INSTANCES
from otm.audit.intercept.races import place_of
from otm.errors import ProblemTooLargeError
from tests.audit.helpers import drawing_from

INSTANCE = [INSTANCES["zeros"], INSTANCES["two drafts, two tokens"]]
Draw = Callable[[Any], int]
"""From weights to a place."""


def verifier(coin: Callable[[], Any], draw: Draw, *, shared: bool = False) -> Any:
    """Chain verification with draws of its own; if shared, with one coin for all drafts."""

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> list[int]:
        first = coin()
        for i, x in enumerate(draft_tokens):
            u = first if shared or i == 0 else coin()
            if not u * draft_probs[i][x] < target_probs[i][x]:
                left = [max(t - d, 0 * t) for t, d in zip(target_probs[i], draft_probs[i])]  # noqa: B905
                return [*map(int, draft_tokens[:i]), draw(left)]
        return [*map(int, draft_tokens), draw(list(target_probs[-1]))]

    return verify


def by_choices(weights: Any) -> int:
    return random.choices(range(len(weights)), weights)[0]


def by_tickets(weights: Any) -> int:
    tickets = [i for i, w in enumerate(weights) for _ in range(round(60 * w / sum(weights)))]
    return int(random.choice(tickets))


def by_choice(generator: Any, weights: Any) -> int:
    law = np.array(weights, dtype=np.float64)
    return int(generator.choice(law.size, p=law / law.sum()))


def by_multinomial(weights: Any) -> int:
    return int(np.random.multinomial(1, np.array(weights) / sum(weights)).argmax())  # noqa: NPY002


NUMPY: dict[str, tuple[Any, Draw]] = {
    "random": (lambda: random.random() * 1, by_choices),
    "random, one of many": (lambda: random.uniform(0, 1), by_tickets),
    "numpy, multinomial": (lambda: np.random.rand() * 1, by_multinomial),  # noqa: NPY002
    "numpy, choice": (
        lambda: np.random.uniform() * 1,  # noqa: NPY002
        lambda weights: by_choice(np.random, weights),
    ),
    "generator of NumPy": (
        lambda: np.random.default_rng().random(),
        lambda weights: by_choice(np.random.default_rng(), weights),
    ),
}


@pytest.mark.parametrize("name", NUMPY)
def test_draws_of_python_and_numpy(name: str) -> None:
    """Catches a function that still draws elsewhere, and weights on the wrong places."""
    right = lossless(verifier(*NUMPY[name]), instances=INSTANCE, examples=0)
    assert right.verdict == "lossless on everything tried"
    assert right.method == ("breakpoints" if "choice" in name or "generator" in name else
                            "exact paths")  # fmt: skip
    assert float(right.tv_distance) <= 1e-9
    wrong = lossless(verifier(*NUMPY[name], shared=True), instances=INSTANCE, examples=0)
    assert wrong.verdict == "not lossless"


def as_tensor(array: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.as_tensor(array if array.dtype.kind == "i" else array.astype(np.float64))


def tensors(weights: Any) -> Any:
    return pytest.importorskip("torch").stack(weights)


def race(weights: Any) -> int:
    noise = tensors(weights).new_empty(len(weights)).exponential_()
    return int(tensors(weights).div_(noise).argmax(dim=-1, keepdim=True))


TORCH: dict[str, tuple[Any, Draw]] = {
    "rand": (lambda: torch_module().rand(()), lambda w: int(tensors(w).multinomial(1))),
    "rand_like, race": (lambda: torch_module().rand_like(torch_module().zeros(1))[0], race),
    "uniform_": (
        lambda: torch_module().empty(()).uniform_(),
        lambda w: int(torch_module().distributions.Categorical(tensors(w)).sample()),
    ),
}


def torch_module() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", TORCH)
def test_draws_of_torch(name: str) -> None:
    """Catches an operation that still draws elsewhere, and a race with another winner."""
    torch_module()
    right = lossless(
        chain(verifier(*TORCH[name]), convert=as_tensor), instances=INSTANCE[:1], examples=0
    )
    assert (right.verdict, right.method) == ("lossless on everything tried", "breakpoints")
    shared = chain(verifier(*TORCH[name], shared=True), convert=as_tensor)
    wrong = lossless(shared, instances=INSTANCE[1:], examples=0)
    exact = lossless(verifier(*NUMPY["random"], shared=True), instances=INSTANCE[1:], examples=0)
    assert (wrong.verdict, wrong.method) == ("not lossless", "breakpoints")
    assert float(wrong.tv_distance) == pytest.approx(float(exact.tv_distance), abs=1e-6)


def test_whole_numbers_of_torch() -> None:
    """Catches a draw by an n-gram that knows nothing, which made every run another one."""
    torch = torch_module()
    with drawing_from(Source(np.array([0.0, 0.5, 1 - 2**-53, 0.3, 0.9, 0.99, 0.5]))):
        assert torch.randint(3, (3,)).tolist() == [0, 1, 2]
        assert torch.randint(2, 4, (2,)).tolist() == [2, 3]
        assert torch.randint_like(torch.zeros(1), 100).tolist() == [99]
        assert torch.empty(1).random_(5, 7).tolist() == [6]


@pytest.mark.parametrize("kind", [int, np.int64, "tensor"])
def test_whole_numbers_of_torch_have_bounds_of_any_type(kind: Any) -> None:
    """Bug: a NumPy bound was ignored, so that all draws were the least number."""
    torch = torch_module()
    bound = torch.tensor if kind == "tensor" else kind
    with drawing_from(Source(np.full(5, 0.999))):
        assert torch.randint(0, bound(7), (1,)).tolist() == [6]
        assert torch.randint(bound(2), 7, (1,)).tolist() == [6]
        assert torch.randint(bound(5), (1,)).tolist() == [4]
        assert torch.empty(1).random_(2, bound(7)).tolist() == [6]


def test_draws_of_torch_within_transforms() -> None:
    """Bug: draws in `vmap` crashed, and noise that it is given had torch's own values."""
    torch = torch_module()
    rows = torch.tensor([[0.5, 0.5], [0.25, 0.75]])

    seen = []
    for _ in range(2):
        with drawing_from(Source(np.resize([0.9, 0.1, 0.5, 0.3], 16))):
            drawn = torch.vmap(lambda p: torch.multinomial(p, 1), randomness="different")(rows)
            assert drawn.tolist() == [[1], [0]]
            noise = torch.empty(2, 2).exponential_()
            won = torch.vmap(lambda p, e: (p / e).argmax(-1))(rows, noise)
            assert torch.equal(won, (rows / noise).argmax(-1))
            seen.append((won.tolist(), noise.tolist()))
    assert seen[0] == seen[1]


def test_draws_of_torch_by_names_of_arguments() -> None:
    """Catches an argument that is not where it is looked for, and a size taken for a bound."""
    torch = torch_module()
    weights = torch.tensor([1.0, 1.0])
    uniforms = [0.5, 0.9, 0.9, 0.25, 0.75, 0.25, 0.25]
    with drawing_from(Source(np.array(uniforms))) as generators:
        assert torch.randint(low=2, high=4, size=(1,)).tolist() == [3]
        assert torch.randint(4, size=(1,)).tolist() == [3]
        assert torch.multinomial(input=weights, num_samples=1).tolist() == [1]
        assert torch.empty(1).uniform_(to=8).tolist() == [2]
        assert torch.rand(1, out=torch.empty(1)).tolist() == [0.75]
        assert torch.rand((2, 1)).tolist() == [[0.25], [0.25]]
        assert not generators.races
        noise = torch.rand(1, 3)
        assert len(generators.races) == 1
        assert noise.shape == (1, 3)


def test_bernoulli_variables_of_torch() -> None:
    torch = torch_module()
    probs = torch.tensor([0.25, 0.5, 0.75])
    with drawing_from(Source(np.array([0.3, 0.3, 0.3, 0.4, 0.6, 0.2, 0.9, 0.1, 0.1, 0.3]))):
        assert torch.bernoulli(probs).tolist() == [0, 1, 1]
        assert torch.empty(2).bernoulli_(0.5).tolist() == [1, 0]
        assert torch.empty(2).bernoulli_().tolist() == [1, 0]
        assert torch.bernoulli(probs, 0.2).tolist() == [1, 1, 0]


def test_draws_without_replacement_are_of_different_tokens() -> None:
    torch = torch_module()
    weights = torch.tensor([[0.5, 0.5, 0.0, 1.0]])
    with drawing_from(Source(np.array([0.3, 0.3, 0.99, 0.3, 0.3]))):
        assert torch.multinomial(weights, 3).tolist() == [[1, 0, 3]]
        assert torch.multinomial(weights, 2, replacement=True).tolist() == [[1, 1]]
        with pytest.raises(RuntimeError):
            torch.multinomial(-weights, 1)


def test_exponential_variables_that_are_looked_at_have_their_own_uniforms() -> None:
    """Bug: variables that stay what torch drew, or that a quotient does not know."""
    torch = torch_module()
    uniforms = np.array([0.5, 0.25, 0.75])
    expected = torch.from_numpy(-np.log1p(-uniforms) / 2)
    with drawing_from(Source(uniforms)):
        noise = torch.empty(3, dtype=torch.float64).exponential_(2.0)
        ratio = torch.ones(3, dtype=torch.float64) / noise
        assert (ratio + 0).tolist() == (1 / expected).tolist()
        assert (noise + 0).tolist() == expected.tolist()


def test_a_race_has_one_winner_however_often_it_is_asked_for() -> None:
    torch = torch_module()
    weights = torch.tensor([[0.2, 0.8], [0.5, 0.5]])
    with drawing_from(Source(np.array([0.1, 0.6]))):
        ratio = weights / torch.empty_like(weights).exponential_()
        assert ratio.argmax(-1).tolist() == [0, 1]
        assert ratio.argmax(dim=1, keepdim=True).tolist() == [[0], [1]]


def test_noise_of_two_races_is_not_taken_for_twice_as_much() -> None:
    """Bug: independent winners where the same variables decide both."""
    torch = torch_module()

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> list[int]:
        noise = torch.empty_like(target_probs[0]).exponential_()
        first = int((target_probs[0] / noise).argmax(-1))
        if first != int(draft_tokens[0]) or len(draft_tokens) > 1:
            return [first]
        return [first, int((target_probs[1] / noise).argmax(-1))]

    report = lossless(chain(verify, convert=as_tensor), instances=[INSTANCES["three tokens"]])
    assert report.method == "Monte Carlo"


def test_a_deviation_where_values_of_noise_decide_is_left_to_monte_carlo() -> None:
    """Bug: an error of pieces that are not exact there passed as one of the verifier."""

    def coin() -> float:
        return float(np.exp(-np.random.exponential(size=2)[0]))  # noqa: NPY002

    report = lossless(verifier(coin, by_choices, shared=True), instances=INSTANCE[1:], examples=0)
    assert (report.verdict, report.method) == ("not lossless", "Monte Carlo")


@pytest.mark.parametrize("library", ["random", "numpy", "generator", "torch"])
def test_a_generator_that_the_verifier_seeds_is_left_to_itself(library: str) -> None:
    """Bug: a fixed seed, by which all coins are the same, passed as fresh randomness."""
    seed: dict[str, Callable[[], Any]] = {
        "random": lambda: random.seed(1),
        "numpy": lambda: np.random.seed(1),  # noqa: NPY002
        "generator": lambda: None,
        "torch": lambda: torch_module().manual_seed(1),
    }
    coins: dict[str, Any] = {
        "random": NUMPY["random"][0],
        "numpy": NUMPY["numpy, choice"][0],
        "generator": lambda: np.random.default_rng(1).random(),
        "torch": lambda: float(torch_module().rand(())),
    }
    verify = verifier(coins[library], by_choices)

    def seeded(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        seed[library]()
        return verify(target_probs, draft_probs, draft_tokens)

    report = lossless(seeded, instances=INSTANCE, examples=0)
    assert report.verdict == "not lossless"
    assert report.method != "Monte Carlo"


def test_what_draws_elsewhere_is_sampled() -> None:
    own = np.random.default_rng(0)
    report = lossless(verifier(own.random, by_choices), instances=INSTANCE, examples=0)
    assert (report.verdict, report.method) == ("lossless on everything tried", "Monte Carlo")
    assert "do not always give the same output" in report.why_not_exact[1]


def test_generators_are_as_before() -> None:
    before = random.random, np.random.random, np.random.default_rng, random.seed
    of_torch = torch_module().manual_seed
    with pytest.raises(ProblemTooLargeError), drawing_from(Source(np.zeros(1))):
        random.choices([0], k=2)
    after = random.random, np.random.random, np.random.default_rng, random.seed
    assert after == before
    assert torch_module().manual_seed is of_torch is torch_module().random.manual_seed


def test_no_uniform_falls_on_a_token_without_weight() -> None:
    weights = [0, 0.5, 0, 0.5, 0]
    assert [place_of(weights, u) for u in (0.0, 0.49, 0.5, 1.0)] == [1, 1, 3, 3]
    torch = torch_module()
    with drawing_from(Source(np.array([0.0, 0.5, 1 - 2.0**-53]))):
        drawn = torch.multinomial(torch.tensor(weights), 3, replacement=True)
    assert drawn.tolist() == [1, 3, 3]


def test_numpy_gives_the_last_token_what_others_leave() -> None:
    """Bug: a residual that nobody normalised passed, as if multinomial did it."""

    def forgetful(weights: Any) -> int:
        return int(np.random.multinomial(1, np.array(weights)).argmax())  # noqa: NPY002

    report = lossless(verifier(NUMPY["random"][0], forgetful), instances=INSTANCE, examples=0)
    assert (report.verdict, report.method) == ("not lossless", "exact paths")


def test_whole_numbers_are_places_of_a_uniform() -> None:
    with drawing_from(Source(np.array([0.0, 0.34, 0.67, 1 - 2.0**-53, 0.5]))):
        assert [random.randrange(3) for _ in range(4)] == [0, 1, 2, 2]
        assert random.randint(5, 6) == 6


def test_arguments_of_draws_are_those_of_the_libraries() -> None:
    """Catches an ignored argument, and an argument for which the library raises."""
    table = np.arange(6).reshape(2, 3)
    with drawing_from(Source(np.array([0.1, 0.2, 0.9, 0.9]))):
        buffer = np.zeros(2)
        generator = np.random.default_rng()
        assert generator.random(out=buffer) is buffer
        assert buffer.tolist() == [0.1, 0.2]
        assert generator.choice(table, 2, axis=1).tolist() == [[2, 2], [5, 5]]
        with pytest.raises(ValueError, match="number of weights"):
            random.choices([0, 1], [1])
        with pytest.raises(ValueError, match="greater than zero"):
            random.choices([0, 1], [0, 0])
        with pytest.raises(ValueError, match="pvals"):
            np.random.multinomial(1, [0.8, 0.8, 0.1])  # noqa: NPY002


def with_state_put_back(get: Callable[[], Any], put: Callable[[Any], Any], draw: Any) -> Any:
    def coin() -> float:
        state = get()
        drawn = float(draw())
        put(state)
        return drawn

    return coin


@pytest.mark.parametrize("library", ["random", "numpy", "torch", "fork", "seed"])
def test_a_generator_that_is_reset_unseen_is_sampled(library: str) -> None:
    """Bug: coins that are the same as their generator is put back passed as fresh ones."""
    torch = torch_module()

    def rand() -> Any:
        return torch.rand((), dtype=torch.float64)

    def in_fork() -> float:
        with torch.random.fork_rng(devices=[]):
            return float(rand())

    def seeded() -> float:
        torch.default_generator.manual_seed(1)
        return float(rand())

    coins: dict[str, Any] = {
        "random": with_state_put_back(
            random.getstate,
            random.setstate,
            lambda: random.random(),  # noqa: PLW0108
        ),
        "numpy": with_state_put_back(
            np.random.get_state,
            np.random.set_state,
            lambda: np.random.rand(),  # noqa: NPY002, PLW0108
        ),
        "torch": with_state_put_back(torch.get_rng_state, torch.set_rng_state, rand),
        "fork": in_fork,
        "seed": seeded,
    }
    report = lossless(verifier(coins[library], by_choices), instances=INSTANCE[1:], examples=0)
    assert (report.verdict, report.method) == ("not lossless", "Monte Carlo")
    assert "sets the state" in str(report.why_not_exact)


def by_parameter(name: str, *, shared: bool = False, seeded: bool = False) -> Any:
    """Verify a chain with a generator that is a parameter of that name."""
    torch = torch_module()

    def draws(generator: Any) -> tuple[Any, Draw]:
        if name == "rng":
            return generator.random, lambda weights: by_choice(generator, weights)

        def coin() -> Any:
            return torch.rand((), dtype=torch.float64, generator=generator)

        return coin, lambda weights: int(tensors(weights).multinomial(1, generator=generator))

    def verify(target: Any, draft: Any, tokens: Any, generator: Any) -> Any:
        if seeded:
            generator.manual_seed(1)
        return verifier(*draws(generator), shared=shared)(target, draft, tokens)

    def with_rng(target: Any, draft: Any, tokens: Any, rng: Any) -> Any:
        return verify(target, draft, tokens, rng)

    return chain(with_rng) if name == "rng" else chain(verify, convert=as_tensor)


@pytest.mark.parametrize("name", ["rng", "generator"])
def test_a_generator_that_is_a_parameter_draws_from_the_audit(name: str) -> None:
    """Bug: code that takes its generator was sampled, where code that takes none was computed."""
    right = lossless(by_parameter(name), instances=INSTANCE[:1], examples=0)
    assert (right.verdict, right.method) == ("lossless on everything tried", "breakpoints")
    wrong = lossless(by_parameter(name, shared=True), instances=INSTANCE[1:], examples=0)
    exact = lossless(verifier(*NUMPY["random"], shared=True), instances=INSTANCE[1:], examples=0)
    assert (wrong.verdict, wrong.method) == ("not lossless", "breakpoints")
    assert float(wrong.tv_distance) == pytest.approx(float(exact.tv_distance), abs=1e-6)


def test_a_generator_that_is_a_parameter_and_seeded_is_sampled() -> None:
    """Bug: the same coins in every step passed as fresh ones."""
    report = lossless(by_parameter("generator", seeded=True), instances=INSTANCE[1:], examples=0)
    assert (report.verdict, report.method) == ("not lossless", "Monte Carlo")
    assert "sets the state" in str(report.why_not_exact)


def test_a_loop_may_ask_for_probs_after_a_list() -> None:
    """Bug: TypeError, unhashable, as the verdict on a right loop."""

    def decode(target: Any, draft: Any, prompt: Any, *, max_tokens: Any, rng: Any, **_: Any) -> Any:
        tokens = list(prompt)
        for _ in range(max_tokens):
            weights = target.probs(tokens)
            tokens.append(int(rng.choice(len(weights), p=weights)))
        return tokens[len(prompt) :]

    report = lossless(loop(decode), instances=INSTANCE[:1], examples=0)
    assert (report.verdict, report.method) == ("lossless on everything tried", "exact paths")


def test_a_generator_kept_from_run_to_run_is_sampled() -> None:
    """Bug: uniforms of an earlier run, and in the end none left."""
    kept: list[Any] = []

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> Any:
        kept.extend([np.random.default_rng()] * (not kept))
        draws = verifier(kept[0].random, lambda weights: by_choice(kept[0], weights))
        return draws(target_probs, draft_probs, draft_tokens)

    report = lossless(verify, instances=INSTANCE[1:], examples=0)
    assert (report.verdict, report.method) == ("lossless on everything tried", "Monte Carlo")


def test_code_for_tensors_is_told_how_to_get_them() -> None:
    """Bug: a crash on arrays without a hint at `convert`, or a hint that cannot help."""
    torch = torch_module()

    def verify(target_probs: Any, draft_probs: Any, draft_tokens: Any) -> list[int]:
        return [int(torch.multinomial(target_probs[0], 1))]

    instances = [INSTANCES["zeros"]]
    assert "convert=torch.as_tensor" in str(lossless(verify, instances=instances, examples=0))
    converted = chain(verify, convert=lambda array: array.tolist())
    report = lossless(converted, instances=instances, examples=0)
    assert report.verdict == "not lossless"
    assert "convert" not in str(report)
