"""The plug-in of vLLM, on tensors as its two model runners pass them; vLLM is not installed here.

`make vllm` runs it in the engine itself.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from otm.audit import batch, lossless  # noqa: E402
from otm.audit.diagnose import diagnosis  # noqa: E402
from otm.audit.instances import INSTANCES  # noqa: E402
from otm.errors import (  # noqa: E402
    InvalidParameterError,
    UnknownMethodError,
    UnsupportedVersionError,
)
from otm.integrations.vllm import plugin, register, runner_v1, runner_v2  # noqa: E402

FEW = [INSTANCES["rows differ"]]
LOSSLESS = "lossless on everything tried"


def pick(probs: Any, uniform: Any) -> Any:
    """Draw a token from each row [B, V]."""
    ends = probs.double().cumsum(1)
    return (ends <= uniform[:, None] * ends[:, -1:]).sum(1).clamp(max=probs.shape[1] - 1)


def packed(rows: Any, lengths: Any, extra: int = 0) -> Any:
    return torch.cat([row[: n + extra] for row, n in zip(rows, lengths.tolist(), strict=True)])


def metadata(batch_size: int, temperature: float = 1.0, **more: Any) -> Any:
    given = torch.full((batch_size,), temperature)
    greedy = {"all_greedy": temperature == 0, "all_random": temperature > 0}
    return SimpleNamespace(temperature=given, generators={}, **greedy | more)


@pytest.fixture
def given_uniforms(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Uniforms come from the audit."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(diagnosis, "KNOWN_BUGS", ())
    monkeypatch.setattr(runner_v1, "draw_uniforms", lambda *_: given["uniforms"])
    monkeypatch.setattr(runner_v2, "counted_uniforms", lambda *_: given["uniforms"])
    return given


def by_v1(given: dict[str, Any], rule: str, *, one_hot: bool = False, late: int = 0) -> Any:
    """Verify as runner V1 calls it; a mistake: the bonus comes from an earlier row."""

    def verify(target: Any, draft: Any, tokens: Any, lengths: Any, uniforms: Any) -> Any:
        size, most = tokens.shape
        last = target[torch.arange(size), (lengths - late).clamp(min=0)]
        given["uniforms"] = uniforms.double()
        return runner_v1.rejection_sample(
            *(packed(tokens, lengths).int(), lengths.tolist(), most, lengths.cumsum(0).int()),
            None if one_hot else packed(draft, lengths).float(),
            packed(target, lengths).log().float(),
            pick(last, uniforms[:, -1])[:, None].int(),
            metadata(size),
            rule=rule,
        )

    return batch(verify, convert=torch.as_tensor)


def by_v2(given: dict[str, Any], rule: str, *, warm: float = 1.0, colder: float = 1.0) -> Any:
    """Verify as runner V2 calls it; a mistake: drafts are drawn at a lower temperature.

    Requests have places, in reverse.
    """

    def verify(target: Any, draft: Any, tokens: Any, lengths: Any, uniforms: Any) -> Any:
        size, most = tokens.shape
        given["uniforms"] = uniforms.double()
        places = torch.arange(size).flip(0) + 1
        logits = torch.full((size + 2, most, target.shape[2]), math.nan)
        logits[places] = draft.log().float() * warm * colder
        ends = (lengths + 1).cumsum(0)
        sampled = torch.cat([torch.full((size, 1), 7), tokens], dim=1)  # 7 came before
        which = torch.arange(size).repeat_interleave(lengths + 1)
        local = torch.cat([torch.arange(n + 1) for n in lengths.tolist()])
        warmth = torch.full((size + 2,), warm)
        output, count = runner_v2.rejection_sample(
            *(packed(target, lengths, 1).log().float(), logits, packed(sampled, lengths, 1)),
            *(torch.cat([torch.zeros(1, dtype=torch.long), ends]), local + 5, places),
            *(places[which], local, warmth, torch.zeros(size + 2, dtype=torch.long), most),
            rule=rule,
        )
        assert torch.equal((output >= 0).sum(1), count.long())
        return output

    return batch(verify, convert=torch.as_tensor)


@pytest.mark.parametrize(
    ("runner", "options", "rule"),
    [
        (by_v1, {}, "block"),
        (by_v1, {"one_hot": True}, "chain"),
        (by_v2, {}, "chain"),
        (by_v2, {"warm": 0.5}, "block"),
    ],
    ids=["V1", "V1, one-hot", "V2", "V2, warm"],
)
def test_both_runners_are_lossless(
    runner: Any, options: dict[str, Any], rule: str, given_uniforms: dict[str, Any]
) -> None:
    """Catches rows of another request, a bonus that is drawn again, a temperature on one side.

    That the drafts were chosen may be said of any draft: that is lossless, and accepts less.  A
    runner hands the rule to the kernels and does nothing else by it, so each has each rule once.
    """
    report = lossless(runner(given_uniforms, rule, **options), instances=FEW, examples=0)
    assert (report.verdict, report.method) == (LOSSLESS, "breakpoints")
    assert report.tv_distance < 1e-6


@pytest.mark.parametrize(("runner", "mistake"), [(by_v1, {"late": 1}), (by_v2, {"colder": 2.0})])
def test_mistakes_around_them_are_seen(
    runner: Any, mistake: dict[str, Any], given_uniforms: dict[str, Any]
) -> None:
    """Negative controls."""
    assert not lossless(
        runner(given_uniforms, "block", **mistake), instances=FEW, examples=0
    ).lossless


def test_rows_are_the_same_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a row in the place of another, where all of them are copied at once."""
    logits, counts = torch.randn(6, 5), [2, 0, 3, 1]
    offsets, bonus = torch.tensor([0, 2, 2, 5, 6]), torch.tensor([4, 0, 1, 3])
    on_host = runner_v1.target_rows(logits, bonus, counts, offsets).clone()
    monkeypatch.setattr(runner_v1, "is_host", lambda device: False)
    assert torch.equal(runner_v1.target_rows(logits, bonus, counts, offsets), on_host)
    assert on_host[[2, 3, 7, 9]].argmax(1).tolist() == bonus.tolist()


def test_the_same_acceptance_as_the_kernels(given_uniforms: dict[str, Any]) -> None:
    """Catches a verifier that is lossless because it rejects every draft."""
    target = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    draft = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    given_uniforms["uniforms"] = torch.full((1, 4), 0.99, dtype=torch.float64)
    tokens, lengths = torch.tensor([1, 0], dtype=torch.int32), torch.tensor([2])
    for rule in plugin.RULES:
        output = runner_v1.rejection_sample(
            *(tokens, [2], 2, lengths.int(), draft, target, torch.tensor([[1]]), metadata(1)),
            rule=rule,
        )
        assert output.tolist() == [[1, 0, 1]]
        assert output.dtype == torch.int32


@pytest.mark.parametrize("rule", plugin.RULES)
def test_sampled_drafts_that_a_grammar_forbids_are_rejected(rule: str) -> None:
    """Catches a token from the whole target behind a −1: of draft (½, 0, ½), 2 was drawn there."""
    target = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]).log()
    draft = torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    forbidden = torch.tensor([-1, -1], dtype=torch.int32)
    for _ in range(20):
        output = runner_v1.rejection_sample(
            *(forbidden, [2], 2, torch.tensor([2]), draft, target, torch.tensor([[0]])),
            metadata(1),
            rule=rule,
        )
        assert output.tolist() == [[1, -1, -1]]


def test_padding_of_runner_v2(given_uniforms: dict[str, Any]) -> None:
    """Catches rows behind those of all requests, and vocabularies of different padding."""
    given_uniforms["uniforms"] = torch.full((2, 4), 0.5, dtype=torch.float64)
    tokens, ends = torch.tensor([7, 1, 7, 2, 0, 0]), torch.tensor([0, 2, 4])
    which, local = torch.tensor([0, 0, 1, 1, 1, 1]), torch.tensor([0, 1, 0, 1, 2, 3])
    logits = torch.eye(4)[[1, 3, 2, 0, 0, 0]] * 1e3
    for sizes in ((4, 4), (4, 6), (6, 4)):
        target, draft = (
            torch.nn.functional.pad(x, (0, size - 4), value=-1e3)
            for x, size in zip(
                (logits, logits[[0, 2]][:, None].repeat(1, 2, 1)), sizes, strict=True
            )
        )
        output, count = runner_v2.rejection_sample(
            *(target, draft, tokens, ends, local, torch.tensor([0, 1]), which, local),
            *(torch.ones(2), torch.zeros(2, dtype=torch.long), 2),
        )
        assert output.tolist() == [[1, 3, -1], [2, 0, -1]]
        assert count.tolist() == [2, 2]


def test_greedy_requests_among_others() -> None:
    """Catches a draft behind the first mismatch, the bonus at another place, and mixed batches."""
    largest = torch.tensor([3, 1, 2, 0, 2])
    logits = torch.eye(4)[largest] * 1e4
    tokens = torch.tensor([3, 1, 2, 1, 2], dtype=torch.int32)
    lengths = torch.tensor([3, 2, 0]).cumsum(0).int()
    bonus = torch.tensor([[0], [1], [2]], dtype=torch.int32)
    expected = [[3, 1, 2, 0], [0, -1, -1, -1], [2, -1, -1, -1]]
    packed_drafts = (tokens, [3, 2, 0], 3, lengths, None, logits, bonus)
    for temperature in (0.0, 1.0):  # at 1 the logits leave no other choice
        output = runner_v1.rejection_sample(*packed_drafts, metadata(3, temperature))
        assert output.tolist() == expected
    mixed = metadata(3, all_greedy=False, all_random=False)
    mixed.temperature[1] = 0
    assert runner_v1.rejection_sample(*packed_drafts, mixed).tolist() == expected


def test_no_drafts_at_all() -> None:
    empty = torch.zeros(0, dtype=torch.int32)
    for temperature in (0.0, 1.0):
        output = runner_v1.rejection_sample(
            *(empty, [0, 0], 2, torch.zeros(2, dtype=torch.int32), None, torch.zeros(0, 4)),
            *(torch.tensor([[3], [1]]), metadata(2, temperature)),
        )
        assert output.tolist() == [[3, -1, -1], [1, -1, -1]]


def test_a_seed_gives_the_same_numbers_in_any_batch() -> None:
    """Catches numbers that depend on the longest request of the batch, or on its place."""

    def of_seed(counts: list[int], request: int, most: int) -> Any:
        own = {request: torch.Generator().manual_seed(5)}
        row = runner_v1.draw_uniforms(counts, most, own, torch.device("cpu"))[request]
        return [*row[: counts[request]].tolist(), *row[most:].tolist()]

    alone = of_seed([2], 0, 2)
    assert alone == of_seed([4, 0, 2], 2, 4)
    assert len(set(alone)) == 4


def test_counted_uniforms() -> None:
    """Catches numbers that repeat between steps, requests or places, or are not uniform."""
    seeds, positions = torch.arange(50).repeat(40), torch.arange(40).repeat_interleave(50)
    uniforms = runner_v2.counted_uniforms(seeds, positions, 6)
    assert uniforms.shape == (2000, 6)
    assert uniforms.unique().numel() == uniforms.numel()
    assert 0 <= uniforms.min() < uniforms.max() < 1
    counts = torch.histc(uniforms, 16, 0, 1)
    assert float(((counts - 750) ** 2 / 750).sum()) < 50  # χ² of 15 degrees, exceeded by 1e-5
    one = runner_v2.counted_uniforms(seeds[777:778], positions[777:778], 6)
    assert torch.equal(one[0], uniforms[777])
    # SplitMix64's first number from the state 0, by its authors' program
    assert runner_v2.mix(torch.tensor([runner_v2.GOLDEN])).item() % 2**64 == 0xE220A8397B1DCDAF


def test_sampling_parameters_reach_the_rows_of_their_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vllm-project/vllm #55005: on a CPU, temperatures were uninitialised memory."""
    given: list[Any] = []

    def apply(logits: Any, top_k: Any, top_p: Any) -> Any:
        given.append((top_k if top_k is None else top_k.tolist(), top_p))
        return logits

    for name in ("vllm", "vllm.v1", "vllm.v1.sample", "vllm.v1.sample.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    name = "vllm.v1.sample.ops.topk_topp_sampler"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(apply_top_k_top_p=apply))
    drafts = metadata(4, all_greedy=False, all_random=False, top_k=torch.tensor([4, 5, 6, 7]))
    drafts.top_p, drafts.temperature = None, torch.tensor([0.5, 0.0, 1.0, 2.0])
    ends = torch.tensor([2, 3, 3, 4], dtype=torch.int32)
    rows = runner_v1.apply_sampling_constraints(torch.ones(4, 3), ends, drafts)
    assert rows[:, 0].tolist() == [2, 2, 1, 0.5]
    assert given == [([4, 4, 5, 7], None)]
    nothing = torch.ones(0, 3)
    assert runner_v1.apply_sampling_constraints(nothing, ends * 0, drafts) is nothing
    assert len(given) == 1
    greedy = metadata(4, 0.0)
    assert runner_v1.apply_sampling_constraints(rows, ends, greedy) is rows


@pytest.mark.parametrize("runner", [runner_v1, runner_v2])
def test_what_is_not_lossless_is_refused(runner: ModuleType) -> None:
    drafts = torch.tensor([0])
    if runner is runner_v1:
        metadata_1 = metadata(1)
        with pytest.raises(InvalidParameterError, match=r"synthetic.*unset it"):
            runner_v1.rejection_sample(
                *(drafts.int(), [1], 1, torch.tensor([1]), None, torch.zeros(1, 4)),
                *(drafts[None], metadata_1, True),
            )
        return
    rest = (*[torch.zeros(2, 4), None], *[drafts] * 5, drafts, torch.ones(1), drafts, 1)
    for name in ("synthetic_conditional_rates", "contexts"):
        with pytest.raises(InvalidParameterError, match="which no verifier of OTM supports"):
            runner_v2.rejection_sample(*rest, **{name: torch.ones(1)})


# how it is put in place


def stand_in(replaced: plugin.Replaced, parameters: tuple[str, ...] | None = None) -> Any:
    """Make a function of the parameters that vLLM's has."""
    names = ", ".join(replaced.parameters if parameters is None else parameters)
    space: dict[str, Any] = {}
    exec(f"def {replaced.name}({names}):\n    return 'stock'", space)
    return space[replaced.name]


@pytest.fixture
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules by the names of vLLM's."""
    for replaced in plugin.REPLACED:
        parts = replaced.module.split(".")
        for i in range(1, len(parts) + 1):
            name = ".".join(parts[:i])
            monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or ModuleType(name))
        setattr(sys.modules[replaced.module], replaced.name, stand_in(replaced))


@pytest.mark.usefixtures("_engine")
def test_it_is_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    register()
    for replaced in plugin.REPLACED:
        assert getattr(sys.modules[replaced.module], replaced.name).__module__ != replaced.ours


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize("rule", plugin.RULES)
def test_it_replaces_what_it_knows(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, rule)
    register()
    register()  # vLLM may load plug-ins several times
    for replaced in plugin.REPLACED:
        there: Any = getattr(sys.modules[replaced.module], replaced.name)
        function = there.func if replaced.takes_rule else there
        assert function.__module__ == f"otm.integrations.vllm.{replaced.ours}"
        assert not replaced.takes_rule or there.keywords == {"rule": rule}


@pytest.mark.usefixtures("_engine")
def test_an_unknown_backend_is_refused_when_the_engine_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a server that starts, and fails at its first request."""
    monkeypatch.setenv(plugin.VARIABLE, "chain")
    monkeypatch.setenv("OTM_BACKEND", "cuda")
    with pytest.raises(UnknownMethodError, match=r"auto, numpy, torch, triton.*OTM_BACKEND"):
        register()
    monkeypatch.setenv("OTM_BACKEND", "torch")
    register()


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize("replaced", plugin.REPLACED, ids=lambda replaced: replaced.ours)
def test_a_version_that_it_does_not_know_is_refused_and_left_alone(
    replaced: plugin.Replaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "chain")
    module = sys.modules[replaced.module]
    monkeypatch.setattr(module, replaced.name, stand_in(replaced, ("something", "else_")))
    with pytest.raises(UnsupportedVersionError, match="parameters something, else_; OTM needs"):
        register()
    for other in plugin.REPLACED:
        assert callable(getattr(sys.modules[other.module], other.name))
        assert not hasattr(getattr(sys.modules[other.module], other.name), "keywords")
    monkeypatch.delattr(module, replaced.name)
    with pytest.raises(UnsupportedVersionError, match="is missing"):
        register()


def test_a_rule_of_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "blocks")
    with pytest.raises(UnknownMethodError, match=r"'blocks'; give one of chain, block"):
        register()
