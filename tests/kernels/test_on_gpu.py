"""What only a GPU can show: compiled kernels at full vocabulary, CUDA graphs, no waiting.

    TRITON_INTERPRET=0 python -m pytest tests/kernels

runs these tests, and the other tests of kernels on the GPU instead of in the interpreter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from otm.kernels.multi_draft_checks import RULES, coins_of  # noqa: E402

from otm.kernels import (  # noqa: E402
    Workspace,
    block_reference,
    block_triton,
    chain_triton,
    multi_draft_reference,
    multi_draft_triton,
    reference,
    sigmoid,
    softmax,
    triton_,
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(
        not triton_.compiles(), reason="needs Triton, and TRITON_INTERPRET=0 (see the module)"
    ),
]

SIZES = [1, 4095, 8193, 10_000, 128_256, 151_936]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
HEATS = torch.tensor([0.0, 0.7, 1.0, 1.3, 1e-8])


class Logits(NamedTuple):
    """Arguments of a verifier from logits, on the CPU."""

    target: Any
    draft: Any
    tokens: Any
    uniforms: Any

    def laws(self, dtype: Any) -> tuple[Any, ...]:
        """Return the arguments of a verifier from probabilities."""
        target, draft = (x.float().softmax(-1).to(dtype) for x in self[:2])
        return (target, draft, self.tokens, self.uniforms)


def make(size: int, dtype: Any, seed: int = 1, batch: int = 5, gamma: int = 4) -> Logits:
    """Draw chains of lengths 0 to γ; the last block of the target is impossible."""
    rng = torch.Generator().manual_seed(seed)
    draft = 3 * torch.randn(batch, gamma, size, generator=rng)
    target = torch.cat([draft, 3 * torch.randn(batch, 1, size, generator=rng)], 1)
    target += 0.6 * torch.randn(target.shape, generator=rng)
    tokens = torch.multinomial(draft.softmax(-1).flatten(0, 1), 1, generator=rng)
    tokens = tokens.reshape(batch, gamma)
    lengths = torch.tensor([gamma, gamma, gamma - 1, 1, 0]).repeat(-(-batch // 5))[:batch]
    tokens[torch.arange(gamma) >= lengths[:, None]] = -1
    if size > 8192:
        target[:, :, 8192:] = -torch.inf
    uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64, generator=rng)
    return Logits(target.to(dtype), draft.to(dtype), tokens, uniforms)


def on_gpu(arguments: Any) -> list[Any]:
    return [None if x is None else x.cuda() for x in arguments]


def assert_same(found: Any, expected: Any) -> None:
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.accepted.tolist() == expected.accepted.tolist()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_every_decision_is_the_reference_s(size: int, dtype: Any) -> None:
    for seed in range(3):
        given = make(size, dtype, seed)
        laws = given.laws(dtype)
        kept = softmax.laws_from_logits(*given[:3], HEATS)
        for triton_module, plain, rule in (
            (chain_triton, reference, "verify_chain"),
            (block_triton, block_reference, "verify_block"),
        ):
            verify = getattr(triton_module, rule)
            compare = getattr(plain, rule)
            expected = compare(*laws, validate=False)
            assert_same(verify(*on_gpu(laws), validate=False), expected)
            assert_same(compare(*on_gpu(laws), validate=False), expected)
            one_hot = (laws[0], None, *laws[2:])
            expected = compare(*one_hot, validate=False)
            assert_same(verify(*on_gpu(one_hot), validate=False), expected)
            from_logits = getattr(triton_module, f"{rule}_from_logits")
            found = from_logits(*on_gpu(given), HEATS.cuda(), validate=False)
            assert_same(found, compare(*kept, *given[2:], validate=False))
        found = sigmoid.verify_chain_triton(*on_gpu(given), validate=False)
        assert_same(found, sigmoid.verify_chain(*given, validate=False))


def test_the_softmax_has_the_same_bits() -> None:
    logits, heat = make(128_256, torch.bfloat16).target, torch.full((5, 5), 0.7)
    found = softmax.softmax(logits.cuda(), heat.cuda())
    assert torch.equal(found.cpu(), softmax.softmax(logits, heat))


@pytest.mark.parametrize("rule", ["chain", "block"])
@pytest.mark.parametrize("logits", [False, True], ids=["probabilities", "logits"])
def test_a_graph_replays_with_changed_inputs(rule: str, logits: bool) -> None:
    module = chain_triton if rule == "chain" else block_triton
    name = f"verify_{rule}" + ("_from_logits" if logits else "")
    verify = getattr(module, name)

    def arguments(seed: int) -> list[Any]:
        given = make(10_000, torch.float32, seed)
        heats = (HEATS.roll(seed),) if logits else ()
        return on_gpu((*(given if logits else given.laws(torch.float32)), *heats))

    static = arguments(0)
    verify(*static, validate=False)  # compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        verify(*static, validate=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = verify(*static, validate=False)
    for seed in range(1, 6):
        fresh = arguments(seed)
        for old, new in zip(static, fresh, strict=True):
            old.copy_(new)
        graph.replay()
        assert_same(result, verify(*fresh, validate=False))


def several(size: int, dtype: Any, seed: int, rule: str, count: int = 4) -> list[Any]:
    """Draw at least two chains for each sequence, with the laws of `make`, some of them shorter."""
    target, draft, *_ = make(size, torch.float32, seed).laws(dtype)
    (batch, gamma), rng = draft.shape[:2], torch.Generator().manual_seed(seed)
    weights = draft.float().flatten(0, 1).clamp(min=1e-30)
    tokens = torch.multinomial(weights, count, replacement=True, generator=rng)
    tokens = tokens.reshape(batch, gamma, count).transpose(1, 2).contiguous()
    tokens[1, :, 1:] = tokens[1, :1, 1:].clone()
    tokens[:, 1, 2:], tokens[0, -1] = -1, -1
    uniforms = torch.rand(
        batch, gamma * coins_of(rule, count) + 2, dtype=torch.float64, generator=rng
    )
    laws = [x[:, None].expand(-1, count, -1, -1) for x in (target, draft)]
    return [*laws, tokens, uniforms]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_several_chains_are_decided_as_by_the_reference(size: int, dtype: Any, rule: str) -> None:
    for seed, count in enumerate((2, 4, 8)):
        given = several(size, dtype, seed, rule, count)
        expected = multi_draft_reference.verify_drafts(*given, rule=rule, validate=False)
        for module in (multi_draft_triton, multi_draft_reference):
            found = module.verify_drafts(*on_gpu(given), rule=rule, validate=False)
            for mine, other in zip(found, expected, strict=True):
                assert mine.tolist() == other.tolist()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("module", [multi_draft_triton, multi_draft_reference])
def test_a_graph_of_several_chains_replays_with_changed_inputs(module: Any, rule: str) -> None:
    static = on_gpu(x.contiguous() for x in several(10_000, torch.float32, 0, rule))
    module.verify_drafts(*static, rule=rule, validate=False)  # compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        module.verify_drafts(*static, rule=rule, validate=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module.verify_drafts(*static, rule=rule, validate=False)
    for seed in range(1, 6):
        fresh = on_gpu(several(10_000, torch.float32, seed, rule))
        for old, new in zip(static, fresh, strict=True):
            old.copy_(new)
        graph.replay()
        expected = multi_draft_triton.verify_drafts(*fresh, rule=rule, validate=False)
        for mine, other in zip(result, expected, strict=True):
            assert mine.tolist() == other.tolist()


def several_logits(size: int, dtype: Any, seed: int, rule: str, count: int = 4) -> list[Any]:
    """Draw what `several` does, from logits, with one chain for each greedy sequence."""
    logits = [x[:, None].expand(-1, count, -1, -1) for x in make(size, dtype, seed)[:2]]
    *_, tokens, uniforms = several(size, dtype, seed, rule, count)
    tokens[HEATS == 0, 1:] = -1
    return [*logits, tokens, uniforms, HEATS]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_several_chains_from_logits_are_decided_as_by_the_reference(
    size: int, dtype: Any, rule: str
) -> None:
    workspace, options = Workspace(), {"rule": rule, "validate": False}
    for seed, count in enumerate((2, 4, 8)):
        given = several_logits(size, dtype, seed, rule, count)
        laws = softmax.laws_from_logits(*given[:3], HEATS)
        expected = multi_draft_reference.verify_drafts(*laws, *given[2:4], **options)
        found = multi_draft_triton.verify_drafts_from_logits(
            *on_gpu(given), **options, workspace=workspace
        )
        for mine, other in zip(found, expected, strict=True):
            assert mine.tolist() == other.tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_graph_with_a_workspace_replays_when_others_have_used_it(rule: str) -> None:
    verify, workspace = multi_draft_triton.verify_drafts_from_logits, Workspace()
    options = {"rule": rule, "validate": False, "workspace": workspace}
    static = on_gpu(x.contiguous() for x in several_logits(10_000, torch.float32, 0, rule))
    verify(*static, **options)  # compiles, and takes the memory
    torch.cuda.synchronize()
    held = workspace.nbytes
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = verify(*static, **options)
    assert workspace.nbytes == held
    verify(*on_gpu(several_logits(128_256, torch.float32, 1, rule)), **options)
    assert workspace.nbytes > held  # the graph writes to the memory that was outgrown
    for seed in range(1, 4):
        fresh = on_gpu(several_logits(10_000, torch.float32, seed, rule))
        for old, new in zip(static, fresh, strict=True):
            old.copy_(new)
        graph.replay()
        expected = verify(*fresh, rule=rule, validate=False)
        for mine, other in zip(result, expected, strict=True):
            assert mine.tolist() == other.tolist()


def test_a_chain_does_not_see_the_batch() -> None:
    given = on_gpu(make(32_000, torch.bfloat16, batch=65))
    whole = chain_triton.verify_chain_from_logits(*given, 0.8, validate=False)
    for b in (0, 31, 64):
        one = [x[b : b + 1] for x in given]
        alone = chain_triton.verify_chain_from_logits(*one, 0.8, validate=False)
        assert alone.tokens.tolist() == whole.tokens[b : b + 1].tolist()


def test_rows_beyond_two_to_the_31_entries() -> None:
    batch, gamma, size = 2100, 7, 2**17
    if torch.cuda.mem_get_info()[0] < 3 * 2 * batch * (gamma + 1) * size:
        pytest.skip("needs 14 GB of free memory")
    target = torch.zeros(batch, gamma + 1, size, dtype=torch.bfloat16, device="cuda")
    places = torch.arange(batch, device="cuda")[:, None] + torch.arange(gamma + 1, device="cuda")
    target.scatter_(2, places[..., None], 1.0)  # one-hot, and another token for each row
    tokens = places[:, :gamma].contiguous()
    uniforms = torch.full((batch, gamma + 2), 0.5, dtype=torch.float64, device="cuda")
    for verify in (chain_triton.verify_chain, block_triton.verify_block):
        found = verify(target, target[:, :gamma], tokens, uniforms, validate=False)
        assert torch.equal(found.tokens, places)
