"""Which backend "auto" takes: Triton where it decides as torch does, found out at the first call.

Triton's interpreter and tensors on the CPU stand in for a GPU.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")

from otm.coupled.clocks import cases as clock_cases  # noqa: E402
from otm.coupled.clocks import triton as triton_clocks  # noqa: E402
from otm.coupled.clocks.first_rings import first_rings  # noqa: E402
from otm.errors import InvalidInputError, UnknownMethodError  # noqa: E402
from otm.kernels import (  # noqa: E402
    SparseDrafts,
    registry,
    self_checks,
    verify_logits,
    verify_probs,
    verify_sigmoid,
    verify_tree_logits,
    verify_tree_probs,
)
from otm.kernels.chain import triton as chain  # noqa: E402
from otm.kernels.common import runtime  # noqa: E402
from otm.kernels.k_seq import triton as grid_k_seq  # noqa: E402
from otm.kernels.registry import VARIABLE, uniforms_per_position  # noqa: E402
from otm.kernels.self_check import chain_cases  # noqa: E402
from otm.kernels.self_check import run as self_check  # noqa: E402
from otm.kernels.tree import cases as tree_cases  # noqa: E402
from otm.kernels.tree import triton as tree  # noqa: E402
from otm.rules import names  # noqa: E402

pytestmark = pytest.mark.skipif(runtime.compiles(), reason="needs TRITON_INTERPRET=1")

BROKEN = "does not use its Triton kernels"


@pytest.fixture(autouse=True)
def as_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors on the CPU count as CUDA tensors, with nothing checked so far, by few cases."""
    for module in (chain_cases, clock_cases, tree_cases):
        monkeypatch.setattr(module, "SEQUENCES", 6)
    monkeypatch.setattr(registry, "suits_triton", lambda target: True)
    monkeypatch.setattr(self_check, "_known", {})
    monkeypatch.delenv(VARIABLE, raising=False)


def arguments(
    rule: str = "chain", size: int = 9, gamma: int = 2, dtype: Any = torch.float32
) -> list[Any]:
    """Chains of two sequences, with probabilities that add up to one exactly."""
    rng = torch.Generator().manual_seed(1)
    chains = (2,) if rule in names("kernel", several=True) else ()
    rows = torch.full((2, *chains, gamma + 1, size), 1 / 256)
    rows[..., 0] += 1 - rows[..., 0, :].sum(-1)[..., None]
    tokens = torch.randint(size, (2, *chains, gamma), generator=rng)
    coins = gamma * uniforms_per_position(rule, 2 if chains else 1) + 2
    uniforms = torch.rand(2, coins, generator=rng, dtype=torch.float64)
    return [rows.to(dtype), rows[..., :-1, :].to(dtype), tokens, uniforms]


def trees(coins: int = 2) -> list[Any]:
    """Trees of two sequences."""
    rng = torch.Generator().manual_seed(1)
    rows = torch.full((2, 4, 8), 1 / 8)
    tokens, parents = torch.tensor([[0, 1, 2]] * 2), torch.tensor([[-1, -1, 0]] * 2)
    uniforms = torch.rand(2, 3, coins, generator=rng, dtype=torch.float64)
    return [rows, None, tokens, parents, uniforms]


def clocked() -> list[Any]:
    """Rows and their clocks, in two lists."""
    numbers = torch.zeros(2, 1, dtype=torch.int64)
    return [torch.full((2, 1, 8), 1 / 8), numbers[:, 0] + 5, numbers, numbers, 2]


def backends() -> list[str]:
    return [check.backend for check in self_checks()]


def test_right_kernels_are_taken_and_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a self-check that warns for nothing, is made at each call, or passes for nothing."""
    given = arguments()
    expected = verify_probs(*given, backend="torch")
    sizes = []
    right = chain.verify

    def counted(target: Any, *rest: Any, **options: Any) -> Any:
        sizes.append(len(target))
        return right(target, *rest, **options)

    monkeypatch.setattr(chain, "verify", counted)
    for calls in ([3, 3, 2], [2]):
        sizes.clear()
        assert torch.equal(verify_probs(*given).tokens, expected.tokens)
        assert sizes == calls
        (check,) = self_checks()
    assert check.call == "rule 'chain' from probabilities (torch.float32, 9 tokens, 2 drafts)"
    assert (check.device, check.backend, check.reason) == ("cpu", "triton", "")
    assert check.seconds > 0


def spoiled(change: Callable[..., Any]) -> Callable[..., Any]:
    """Kernels of chain verification whose results are changed."""
    right = chain.verify
    return lambda *given, **options: change(right(*given, **options))


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("PassManager::run failed")


SPOILED: dict[str, tuple[Callable[..., Any], str]] = {
    "wrong token": (
        lambda x: x._replace(tokens=x.tokens.roll(1, 0)),
        "first in sequence 0: ",
    ),
    "wrong count": (lambda x: x._replace(accepted=x.accepted.clamp(max=1)), "accepted differ in"),
    "out of range": (lambda x: x._replace(tokens=x.tokens + 2**40), " in Triton, "),
    "one token too few": (lambda x: x._replace(tokens=x.tokens[:, 1:]), "have shape"),
    "no token after a rejection": (
        lambda x: x._replace(tokens=x.tokens.where(x.accepted[:, None] > 0, -1)),
        " in Triton, ",
    ),
    "cannot be built": (fails, "RuntimeError: PassManager::run failed"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_broken_kernels_are_not_used_and_one_warning_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, reason = SPOILED[name]
    monkeypatch.setattr(chain, "verify", change if change is fails else spoiled(change))
    given = arguments()
    expected = verify_probs(*given, backend="torch")
    with pytest.warns(RuntimeWarning, match=BROKEN) as said:
        outcome = verify_probs(*given)
    (warning,) = said
    text = str(warning.message)
    for words in (reason, VARIABLE, "backend=", "report", torch.__version__, "cpu", "rule 'chain'"):
        assert words in text
    assert warning.filename == __file__
    again = verify_probs(*given)  # without a warning, which would be an error
    for result in (outcome, again):
        assert torch.equal(result.tokens, expected.tokens)
        assert torch.equal(result.accepted, expected.accepted)
    assert backends() == ["torch"]


def test_only_the_calls_whose_kernels_are_wrong_go_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: one wrong kernel turns all off, or a right one vouches for others."""
    right_chain, right_tree = chain.verify, tree.verify
    right_k_seq, right_clocks = grid_k_seq.verify, triton_clocks.first_rings

    def wrong_if(is_wrong: Callable[..., bool], right: Callable[..., Any]) -> Callable[..., Any]:
        def verify(*given: Any, **options: Any) -> Any:
            result = right(*given, **options)
            if not is_wrong(*given, **options):
                return result
            return (
                result + 1
                if isinstance(result, torch.Tensor)
                else type(result)(result.tokens + 1, *result[1:])
            )

        return verify

    def of_chain(target: Any, draft: Any, *_: Any, **options: Any) -> bool:
        return (
            target.shape[-1] > 100
            or target.dtype == torch.bfloat16
            or isinstance(draft, SparseDrafts)
            or "offsets" in options
        )

    monkeypatch.setattr(chain, "verify", wrong_if(of_chain, right_chain))
    monkeypatch.setattr(tree, "verify", wrong_if(lambda *_, **__: True, right_tree))
    monkeypatch.setattr(grid_k_seq, "verify", wrong_if(lambda *_, **__: True, right_k_seq))
    monkeypatch.setattr(triton_clocks, "first_rings", wrong_if(lambda *_: True, right_clocks))

    target, draft, tokens, uniforms = given = arguments()
    sparse = SparseDrafts(torch.arange(9).expand(2, 2, 9), draft)
    packed = [target.flatten(0, 1), draft.flatten(0, 1), tokens.flatten()]
    calls: dict[str, tuple[Callable[[], Any], str]] = {
        "dense": (lambda: verify_probs(*given), "triton"),
        "another batch": (lambda: verify_probs(*(x[:1] for x in given)), "triton"),
        "sparse drafts": (lambda: verify_probs(target, sparse, tokens, uniforms), "torch"),
        "one-hot drafts": (lambda: verify_probs(target, None, tokens, uniforms), "triton"),
        "large vocabulary": (lambda: verify_probs(*arguments(size=120)), "torch"),
        "bfloat16": (lambda: verify_logits(*arguments(dtype=torch.bfloat16)), "torch"),
        "float16": (lambda: verify_logits(*arguments(dtype=torch.float16)), "triton"),
        "packed": (
            lambda: verify_probs(*packed, uniforms, offsets=torch.tensor([0, 2, 4])),
            "torch",
        ),
        "several chains": (
            lambda: verify_probs(*arguments("grid k-Seq", gamma=1), rule="grid k-Seq"),
            "torch",
        ),
        "trees": (lambda: verify_tree_probs(*trees()), "torch"),
        "trees from logits": (lambda: verify_tree_logits(*trees()), "torch"),
        "whole paths": (lambda: verify_tree_probs(*trees(4), rule="walk and keep"), "triton"),
        "clocks": (lambda: first_rings(*clocked()), "torch"),
    }
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name, (call, backend) in calls.items():
            before = len(self_checks())
            call()
            new = backends()[before:]
            assert new == [backend] if name != "another batch" else new == [], name
        for call, _ in calls.values():
            call()
    assert len(said) == backends().count("torch") == 8


def test_a_named_backend_is_not_checked_and_has_no_substitute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = arguments()
    monkeypatch.setattr(chain, "verify", fails)
    verify_probs(*given, backend="torch")
    with pytest.raises(RuntimeError, match="PassManager"):
        verify_probs(*given, backend="triton")
    monkeypatch.setenv(VARIABLE, "triton")
    with pytest.raises(RuntimeError, match="PassManager"):
        verify_probs(*given)
    verify_probs(*given, backend="torch")  # the argument comes first
    monkeypatch.setenv(VARIABLE, "torch")
    verify_probs(*given)
    assert not self_checks()
    monkeypatch.setenv(VARIABLE, "auto")
    with pytest.warns(RuntimeWarning, match=BROKEN):
        verify_probs(*given)


CALLS: dict[str, Callable[..., Any]] = {
    "probabilities": lambda **options: verify_probs(*arguments(), **options),
    "logits": lambda **options: verify_logits(*arguments(), **options),
    "sigmoids": lambda **options: verify_sigmoid(*arguments(), **options),
    "trees": lambda **options: verify_tree_probs(*trees(), **options),
    "trees from logits": lambda **options: verify_tree_logits(*trees(), **options),
    "whole paths": lambda **o: verify_tree_probs(*trees(4), rule="walk and keep", **o),
    "clocks": lambda **options: first_rings(*clocked(), **options),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_entry_asks_argument_and_environment(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: an entry that has no way out of Triton."""
    call = CALLS[name]
    for variable in ("torch", "triton"):
        monkeypatch.setenv(VARIABLE, variable)
        call()
    assert self_checks() == ()
    monkeypatch.setenv(VARIABLE, "cuda")
    with pytest.raises(UnknownMethodError, match=f"auto, numpy, torch, triton.*{VARIABLE}"):
        call()
    call(backend="torch")
    monkeypatch.setenv(VARIABLE, "numpy")
    with pytest.raises(InvalidInputError, match=f"'numpy' .*{VARIABLE}.* cannot process a Tensor"):
        call()
    monkeypatch.delenv(VARIABLE)
    call()
    assert backends() == ["triton"]


def test_nothing_is_checked_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a capture that ends in CUDA's own error, or a graph that holds torch's operations."""
    given = arguments()
    monkeypatch.setattr(self_check, "is_capturing", lambda: True)
    with pytest.raises(InvalidInputError, match=f"one call of the same shapes.*{VARIABLE}"):
        verify_probs(*given)
    assert self_checks() == ()
    verify_probs(*given, backend="triton")
    monkeypatch.setattr(self_check, "is_capturing", lambda: False)
    verify_probs(*given)
    monkeypatch.setattr(self_check, "is_capturing", lambda: True)
    verify_probs(*given)  # what is known already
    assert backends() == ["triton"]


def test_torch_is_asked_whether_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert self_check.is_capturing() is there


def test_of_many_threads_one_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: each thread checks, and each of them warns."""
    made: list[Any] = []
    check = self_check.run_check

    def slowly(call: Any) -> Any:
        made.append(call.family)
        started.wait(0.2)  # nobody sets it: others come here meanwhile, if they can
        return check(call)

    started = threading.Event()
    monkeypatch.setattr(self_check, "run_check", slowly)
    monkeypatch.setattr(chain, "verify", fails)
    given = arguments()
    expected = verify_probs(*given, backend="torch").tokens
    outcomes: list[Any] = []

    def verify() -> None:
        outcomes.append(verify_probs(*given).tokens)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        threads = [threading.Thread(target=verify) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(made) == len(said) == 1
    assert [torch.equal(tokens, expected) for tokens in outcomes] == [True] * 6


def test_a_warning_that_is_an_error_leaves_the_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: with -W error each call checks and fails again."""
    monkeypatch.setattr(chain, "verify", fails)
    with pytest.raises(RuntimeWarning, match=BROKEN):
        verify_probs(*arguments())
    verify_probs(*arguments())
    assert backends() == ["torch"]


def zeros(batch: int, gamma: int, size: int) -> list[Any]:
    """Chains of nothing: their sizes and layout alone count for a self-check."""
    rows = torch.zeros(batch, gamma + 1, size)
    uniforms = torch.zeros(batch, gamma + 2, dtype=torch.float64)
    return [rows, rows[:, :gamma], torch.zeros(batch, gamma, dtype=torch.int64), uniforms]


def no_trees(nodes: int, levels: int, size: int, coins: int = 3) -> list[Any]:
    rows, numbers = torch.zeros(1, nodes + 1, size), torch.zeros(1, nodes, dtype=torch.int64)
    return [rows, rows, numbers, numbers, torch.zeros(1, levels, coins, dtype=torch.float64)]


EDGES: dict[str, Callable[..., Any]] = {
    "no drafts": lambda **o: verify_probs(*zeros(2, 0, 9), **o),
    "no sequences": lambda **o: verify_probs(*zeros(0, 2, 9), **o),
    "one token": lambda **o: verify_probs(*zeros(1, 2, 1), **o),
    "rows shared by all": lambda **o: verify_probs(
        *(x[:1, :1].expand(x.shape) for x in zeros(3, 2, 9)), **o
    ),
    "tokens far apart": lambda **o: verify_probs(
        torch.zeros(9, 3, 2).permute(2, 1, 0), *zeros(2, 2, 9)[1:], **o
    ),
    "a tree without drafts": lambda **o: verify_tree_probs(*no_trees(0, 1, 9), **o),
    "a tree without levels": lambda **o: verify_tree_probs(*no_trees(3, 1, 9), **o),
    "a tree of one token": lambda **o: verify_tree_probs(*no_trees(3, 3, 1), **o),
    "whole paths without drafts": lambda **o: verify_tree_probs(
        *no_trees(0, 1, 9, 4), rule="walk and keep", **o
    ),
    "whole paths of one token": lambda **o: verify_tree_probs(
        *no_trees(3, 3, 1, 4), rule="walk and keep", **o
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_right_kernels_pass_at_the_edges_of_shapes(name: str) -> None:
    """Bug: cases that cannot be made of such a call, so that a warning blames the kernels."""
    EDGES[name](validate=False)
    assert backends() == ["triton"]


def test_a_check_leaves_seeds_as_they_are() -> None:
    """Bug: a run with a seed gives another text after the first check than later."""
    state = torch.random.get_rng_state()
    with torch.inference_mode():
        verify_probs(*arguments(), validate=False)
    assert torch.equal(state, torch.random.get_rng_state())
    assert backends() == ["triton"]


def test_whoever_shows_warnings_may_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the warning is shown under the lock, so a logger that verifies waits forever."""
    monkeypatch.setattr(chain, "verify", fails)
    asked: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *_, **__: asked.append(self_checks()))
        verify_probs(*arguments())
    assert [len(checks) for checks in asked] == [1]
