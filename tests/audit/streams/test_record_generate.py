"""Steps of transformers' `generate`: recorded as verified, audited, and the rule put back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.audit import NOT_LOSSLESS, record_generate, recorded
from otm.errors import InvalidInputError, InvalidParameterError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.generation import candidate_generator, utils  # noqa: E402

SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}


@pytest.fixture(scope="module")
def pair() -> Any:
    """Return a target and a draft with peaked rows, on 12 tokens."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=12, **SIZES)
    models = [transformers.LlamaForCausalLM(config).eval() for _ in range(2)]
    for model in models:
        model.generation_config.eos_token_id = None
        with torch.no_grad():
            model.lm_head.weight *= 25
    models[1].generation_config.num_assistant_tokens = 3
    models[1].generation_config.num_assistant_tokens_schedule = "constant"
    models[1].generation_config.assistant_confidence_threshold = 0.0
    return models


def text(pair: Any, *, sample: bool = True, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    ids = torch.tensor([[1, 2]])
    options = {"do_sample": sample, "max_new_tokens": 120, "pad_token_id": 0}
    mask = torch.ones_like(ids)
    return pair[0].generate(ids, attention_mask=mask, assistant_model=pair[1], **options)


def test_steps_are_what_was_verified_and_the_text_is_the_same(pair: Any) -> None:
    """Bug: rows of another step, drafts cut off, or a text that the recording changes."""
    plain = text(pair)[0, 2:].tolist()
    with record_generate() as steps:
        again = text(pair)[0, 2:].tolist()
    assert again == plain
    # The last token may come from a step without drafts, which the rule does not verify.
    written = [token for step in steps for token in step["output"]]
    assert written == plain[: len(written)]
    assert len(written) >= len(plain) - 1
    with torch.no_grad():
        rows = pair[0](torch.tensor([[1, 2, *plain]])).logits[0].softmax(-1).numpy()
    place = 1
    for step in steps:
        drafts, output = step["drafts"], step["output"]
        assert step["target_probs"].shape == (len(drafts) + 1, 12)
        assert step["draft_probs"].shape == (len(drafts), 12)
        assert output[:-1] == drafts[: len(output) - 1]
        np.testing.assert_allclose(
            step["target_probs"][: len(output)], rows[place : place + len(output)], atol=1e-5
        )
        place += len(output)
    report = recorded(steps, delta=0.9)
    assert report.verdict != NOT_LOSSLESS
    assert report.drafts is not None
    assert report.drafts.follow


def test_draft_rows_in_another_order_are_found(pair: Any, monkeypatch: Any) -> None:
    """Bug: the shipped one of two tokenizers, whose draft rows belong to other tokens."""
    kind = candidate_generator.AssistedCandidateGenerator
    right = kind.get_candidates

    def permuted(self: Any, *arguments: Any, **options: Any) -> Any:
        ids, logits = right(self, *arguments, **options)
        return ids, logits.roll(1, dims=-1)

    monkeypatch.setattr(kind, "get_candidates", permuted)
    with record_generate() as steps:
        text(pair)
    report = recorded(steps)
    assert report.drafts is not None
    assert not report.drafts.follow


def test_the_limit_holds_and_the_rule_is_put_back(pair: Any) -> None:
    """Bug: memory without limit, or a rule that records after the context."""
    rule = utils._speculative_sampling
    with record_generate(max_steps=2) as steps:
        text(pair)
    assert len(steps) == 2
    with pytest.raises(RuntimeError, match="stop"), record_generate():
        raise RuntimeError("stop")
    assert utils._speculative_sampling is rule


def test_nothing_recorded_is_an_error(pair: Any) -> None:
    """Bug: "undecided" for a call that did not sample."""
    with pytest.raises(InvalidInputError, match="do_sample=True"), record_generate():
        text(pair, sample=False)
    with pytest.raises(InvalidParameterError, match="max_steps"), record_generate(0):
        pass
