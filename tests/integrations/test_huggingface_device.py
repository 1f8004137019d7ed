"""`generate` of transformers with verification on the device: what comes to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from otm.decoding import speculative  # noqa: E402
from otm.decoding.device import tree_drafts  # noqa: E402
from otm.decoding.device.session import DeviceSession  # noqa: E402
from otm.decoding.device.trees import TreeKernelRounds  # noqa: E402
from otm.decoding.rounds import RoundsTask  # noqa: E402
from otm.errors import UnknownMethodError  # noqa: E402
from otm.integrations.huggingface import AssistedDecoding, patch_generate  # noqa: E402
from otm.integrations.huggingface.processors import BatchProcessor  # noqa: E402
from otm.models import HuggingFaceModel  # noqa: E402
from otm.models.cached_rows import LayerStorage  # noqa: E402
from tests.decoding.device.ways_to_host import Host, counted_by_step  # noqa: E402
from tests.integrations.test_huggingface import DRAFT, PADDED, PROMPTS, TARGET  # noqa: E402

GAMMA = 3
RULES: list[tuple[str | None, Any]] = [("k-Seq", 1), ("block", 1), ("grid k-Seq", 3)]
RULES += [("grid optimal", 3), ("grid optimal", (2, 2, 1)), (None, 3), (None, (1, 3))]
RULES += [("list coupling", 1), ("list coupling", 3)]
PROCESSED = {
    "temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01,
    "repetition_penalty": 1.3, "min_new_tokens": 3, "eos_token_id": 16,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify all steps on the device, even if the device is the CPU."""
    monkeypatch.setattr("otm.decoding.rounds.LEAST_VOCABULARY", 2)
    monkeypatch.setattr("otm.decoding.rounds.keeps_all_tokens", lambda sampling: True)


def generate(decoding: AssistedDecoding, **options: Any) -> Any:
    options = {"max_new_tokens": 8, "do_sample": True, **PADDED, **options}
    return TARGET.generate(PROMPTS, custom_generate=decoding, **options)


@pytest.mark.parametrize(("rule", "k"), RULES)
@pytest.mark.parametrize("options", [{"top_k": 0}, PROCESSED], ids=["plain", "processed"])
def test_one_copy_of_whole_numbers_a_step(
    rule: str | None, k: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches another way to the host in a step, and rows of scores that go there at any time."""
    decoding = AssistedDecoding(DRAFT, k=k, gamma=GAMMA, rule=rule)
    apart = []
    with counted_by_step(monkeypatch) as steps:
        for limit in (3, 8):
            torch.manual_seed(0)
            steps.clear()
            with Host() as outside:  # a mode does not see what one within it sees
                generate(decoding, max_new_tokens=limit, **options)
            most = len(PROMPTS) * (np.prod(k) * GAMMA + GAMMA + 3)
            assert len(steps) >= limit / (GAMMA + 1)
            assert all(len(sizes) == 1 and sizes[0] <= most for sizes in steps)
            assert max(outside.sizes) <= PROMPTS.numel()
            apart.append(len(outside.sizes))
    assert apart[0] == apart[1], "as often as there are steps"


WAYS = [
    (DeviceSession, "probs", lambda scores, *_: scores.sum().item()),
    (DeviceSession, "probs", lambda scores, *_: scores.numpy()),
    (LayerStorage, "update", lambda keys, *_: keys.isnan().any().item()),  # within the model
    (BatchProcessor, "__call__", lambda tokens, *_: tokens.numpy()),
    (BatchProcessor, "_process", lambda ids, scores, *_: bool(scores.isnan().any())),
]
"""Further ways to the host, in code that a step runs."""


@pytest.mark.parametrize(("owner", "name", "way"), WAYS)
def test_a_further_way_is_counted(
    owner: Any, name: str, way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the test above."""
    original = getattr(owner, name)

    def leaking(self: Any, *given: Any) -> Any:
        way(*given)
        return original(self, *given)

    # it stands for a line of that method, called by whom that is called by
    monkeypatch.setitem(globals(), "__name__", owner.__module__)
    monkeypatch.setattr(owner, name, leaking)
    with counted_by_step(monkeypatch) as steps:
        generate(AssistedDecoding(DRAFT, k=1, gamma=2), **PROCESSED)
    assert len(steps[0]) > 1


@pytest.mark.parametrize("rule", ["target-only", "walk and keep", None])
def test_trees_stay_on_the_device(rule: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a second copy in a step of trees, other texts, and a wrong place."""
    monkeypatch.setattr(RoundsTask, "is_on_cpu", lambda task: False)
    monkeypatch.setattr(tree_drafts, "sizes_are_known", lambda device: False)
    decoding = AssistedDecoding(DRAFT, gamma=GAMMA, rule=rule, nodes=6)
    greedy = TARGET.generate(PROMPTS, do_sample=False, max_new_tokens=8, **PADDED)
    with counted_by_step(monkeypatch, TreeKernelRounds) as steps:
        for options in ({"top_k": 0}, {"temperature": 0.7, "top_p": 0.9}, {"do_sample": False}):
            steps.clear()
            text = generate(decoding, **options)
            assert decoding.verified_on == "device"
            assert steps
            most = len(PROMPTS) * (2 * 6 + GAMMA + 1 + 2)
            assert all(len(sizes) == 1 and sizes[0] <= most for sizes in steps)
    assert text.tolist() == greedy.tolist()
    generate(decoding, repetition_penalty=1.3)
    assert decoding.verified_on == "host"


def test_rules_for_one_chain() -> None:
    """Bug: a rule of `speculative` that the plug takes for another one."""
    made = []
    for rule in ("chain", "block"):
        torch.manual_seed(3)
        seed = int(torch.randint(2**63 - 1, ()))
        models = HuggingFaceModel(TARGET), HuggingFaceModel(DRAFT)
        options: dict[str, Any] = {"rule": rule, "gamma": 5, "max_tokens": 12, "seed": seed}
        expected = speculative(*models, PROMPTS[:1].tolist(), **options)
        torch.manual_seed(3)
        decoding = AssistedDecoding(DRAFT, k=1, gamma=5, rule=rule)
        TARGET.generate(
            PROMPTS[:1], custom_generate=decoding, do_sample=True, top_k=0, max_new_tokens=12
        )
        assert decoding.generation is not None
        assert decoding.generation.sequences == expected.sequences
        made.append(np.array(expected.sequences))
    assert (made[0] != made[1]).any()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    "options",
    [{"top_k": 0}, PROCESSED, {"do_sample": False}],
    ids=["plain", "processed", "greedy"],
)
def test_a_coupled_text_is_that_of_the_host(
    k: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a batch with padding; catches positions or keys that count what is padded."""

    def text() -> Any:
        torch.manual_seed(6)
        return generate(AssistedDecoding(DRAFT, k=k, gamma=3, rule="list coupling"), **options)

    with counted_by_step(monkeypatch) as steps:
        found = text()
    assert steps
    with monkeypatch.context() as patch, counted_by_step(monkeypatch) as steps:
        patch.setattr("otm.decoding.rounds.LEAST_VOCABULARY", 2048)
        expected = text()
    assert not steps
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("rule", "k"), [("block", 1), ("grid k-Seq", 3), ("list coupling", 1)])
def test_the_named_backend_verifies(rule: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: no way out of Triton for a program that calls `generate`."""
    asked = []
    for place in ("decoding.device.rounds.verify_probs", "coupled.device_rounds.first_rings"):

        def noted(*_: Any, backend: str, **__: Any) -> Any:
            asked.append(backend)
            raise StopIteration

        monkeypatch.setattr(f"otm.{place}", noted)
    for backend in ("auto", "torch", "triton"):
        decoding = AssistedDecoding(DRAFT, k=k, gamma=GAMMA, rule=rule, backend=backend)
        with pytest.raises((StopIteration, RuntimeError)):
            generate(decoding)
    with (
        patch_generate(TARGET, DRAFT, k=k, rule=rule, backend="torch") as patched,
        pytest.raises((StopIteration, RuntimeError)),
    ):
        patched.generate(PROMPTS, max_new_tokens=8, do_sample=True, **PADDED)
    assert asked == ["auto"] * asked.count("auto") + ["torch", "triton", "torch"]
    with pytest.raises(UnknownMethodError, match="auto, torch, triton"):
        AssistedDecoding(DRAFT, backend="numpy")
