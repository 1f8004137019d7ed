"""Two greedy texts: identical, different by rounding, or different by a fault."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from otm.audit import compare_greedy
from otm.audit.greedy import EXPLAINED, IDENTICAL, NOT_EXPLAINED
from otm.audit.report import UNDECIDED
from otm.decoding import SamplingParameters, autoregressive, speculative
from otm.errors import InvalidInputError
from otm.models import HuggingFaceModel, TableModel
from otm.models.base import LanguageModel, Session, TokenRows

NOISE = 1e-3


class Noisy(LanguageModel):
    """Logits 0, −margin and −9 after every text, rounded differently in passes of each shape."""

    vocabulary = 3

    def __init__(self, margin: float) -> None:
        self.logits = np.array([0.0, -margin, -9.0])

    def start(self, rows: int) -> Session:
        """Open a session."""
        return NoisySession(self.logits, rows)


class NoisySession(TokenRows):
    def __init__(self, logits: np.ndarray, rows: int) -> None:
        super().__init__(rows)
        self.logits = logits

    def append(self, tokens: np.ndarray) -> np.ndarray:
        self.read(tokens)
        sign = 1 if sum(tokens.shape) % 2 else -1
        return np.broadcast_to(self.logits + np.array([0, sign * NOISE / 2, 0]), (*tokens.shape, 3))


@pytest.mark.parametrize(
    ("margin", "verdict"),
    [(0, EXPLAINED), (0.9, EXPLAINED), (2, UNDECIDED), (4.4, UNDECIDED), (9, NOT_EXPLAINED)],
)
def test_the_margin_is_compared_with_the_rounding(margin: float, verdict: str) -> None:
    """Bugs: a margin of the first pass alone, a rounding of one token instead of a difference."""
    found = compare_greedy(Noisy(margin * NOISE), [2, 2], [0, 0, 0], [0, 1, 0])
    assert found.verdict == verdict
    assert found.rounding == pytest.approx(NOISE)
    assert found.margin == pytest.approx(max(margin - 0.5, 0.5 - margin, 0) * NOISE, abs=1e-9)
    assert (found.position, found.plain, found.speculative) == (1, 0, 1)


def tiny(dtype: torch.dtype) -> HuggingFaceModel:
    """Return a random Llama."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return HuggingFaceModel(LlamaForCausalLM(config).eval().to(dtype))


@pytest.mark.parametrize(("dtype", "rank"), [(torch.float32, 1), (torch.bfloat16, 9)])
def test_a_decoder_with_a_planted_fault_is_found(dtype: torch.dtype, rank: int) -> None:
    """Negative control: accepts a draft of a lower rank; the correct loop passes."""
    model = tiny(dtype)
    prompt = [1, 2, 3, 4]
    options = {"max_tokens": 24, "sampling": SamplingParameters(temperature=0), "seed": 0}
    plain = autoregressive(model, [prompt], **options).sequences[0]
    drafted = speculative(model, tiny(torch.float32), [prompt], gamma=3, **options).sequences[0]
    assert compare_greedy(model, prompt, plain, drafted).verdict in (IDENTICAL, EXPLAINED)
    faulty = list(plain[:10])
    logits = model.start(1).append(np.array([prompt + faulty]))[0, -1].float()
    faulty.append(int(logits.topk(rank + 1).indices[rank]))
    faulty += autoregressive(model, [prompt + faulty], **options).sequences[0][:13]
    found = compare_greedy(model, prompt, plain, faulty)
    assert found.is_fault
    assert found.position == 10
    assert found.speculative == faulty[10]


def test_nearly_equal_logits_in_bfloat16_are_explained() -> None:
    """Bug: a rounding of zero, where all passes agree and two tokens have the same logit."""
    model = tiny(torch.bfloat16)
    with torch.no_grad():
        head = model.model.get_output_embeddings().weight
        head[5] = head[7]
    prompt = [1, 2, 3]
    rows = model.start(1).append(np.array([prompt]))[0, -1].float()
    with torch.no_grad():
        # make these two tokens the largest
        head[[5, 7]] = head[int(rows.argmax())] * 1.5
    assert compare_greedy(model, prompt, [5, 1], [7, 1]).verdict == EXPLAINED


def test_a_text_that_ends_early_and_bad_input() -> None:
    """Bugs: a lost end of the text, or an error from within a session."""
    model = TableModel({(): [0.2, 0.5, 0.3]})
    short = compare_greedy(model, [0], [1, 1], [1])
    assert short.is_fault
    assert str(short) == "not explained: token 1 is 1 and the end"
    with pytest.raises(InvalidInputError, match=r"speculative text is .* from 0 to 2"):
        compare_greedy(model, [0], [1], [3])
    with pytest.raises(InvalidInputError, match="prompt is empty"):
        compare_greedy(model, [], [1], [1])
    with pytest.raises(InvalidInputError, match="give a LanguageModel"):
        compare_greedy(model.start, [0], [1], [1])  # type: ignore[arg-type]
