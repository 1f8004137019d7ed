"""Logits processors in verification: the output has the distribution of plain `generate`.

`generate` of transformers prepares a call, with tiny random models; the plug then decodes along
every path of its comparisons, in fractions.  Plain sampling is computed from its definition: the
processors of the call, on the rows of the batch, one token after another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from otm._core.probs.sparse import SparseProbs
from otm._core.tensors import to_host
from otm.coupling import KSeq
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.decoding.sampling_parameters import SamplingParameters
from otm.integrations.huggingface import AssistedDecoding, generate, processors
from otm.models.base import LanguageModel, PaddedTokens, Session, TokenRows
from otm.testing.sequences import by_conditional, output_distribution_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

V, END, PAD = 4, 3, 0
ONE = torch.tensor([[1, 2, 1]])
TWO = torch.tensor([[2, 1, 2, 1], [PAD, PAD, 1, 2]])  # the tests check the second row
MASK = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Run tiny models on one thread: several would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


pytestmark = pytest.mark.usefixtures("each_plan_once")


def llama(seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.9,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=PAD,
    )
    return transformers.LlamaForCausalLM(config).double().eval()


TARGET, DRAFT = llama(0), llama(1)
RULE = by_conditional(KSeq)


@functools.cache
def logits_of(model: Any, tokens: Path) -> Any:
    """Logits of the token after these: each prefix is read once in all tests."""
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0, -1].float()


class Remembered(LanguageModel):
    """A model of transformers as the plug takes it, that reads each prefix once in all tests."""

    vocabulary = V
    tokenizer = None
    past = None

    def __init__(self, model: Any, **_: Any) -> None:
        self.model = model

    def start(self, rows: int) -> Session:
        return RememberedSession(self.model, rows)


class RememberedSession(TokenRows):
    def __init__(self, model: Any, rows: int) -> None:
        super().__init__(rows)
        self.model = model

    def append(self, tokens: PaddedTokens) -> Any:
        before = self.rows
        self.read(tokens)
        scores = torch.full((*tokens.shape, V), torch.nan)
        for r, (old, new) in enumerate(zip(before, self.rows, strict=True)):
            for i in range(len(old), len(new)):
                scores[r, i - len(old)] = logits_of(self.model, new[: i + 1])
        return scores


@functools.cache
def exact(*scores: float) -> SparseProbs:
    """Round softmax(scores) to fractions: in the plug and in plain sampling, so both are exact."""
    weights = np.exp(np.array(scores) - max(scores))
    counts = [round(w * 2**20) for w in (weights / weights.sum()).tolist()]
    return SparseProbs.from_dense([Fraction(count, sum(counts)) for count in counts])


def exact_rows(self: SamplingParameters, scores: Any) -> list[SparseProbs]:
    assert self == SamplingParameters(top_k=self.top_k), "the processors have done all the rest"
    rows = np.array(to_host(scores), np.float64)
    if self.top_k is not None:
        rows[rows < np.sort(rows)[:, [-self.top_k]]] = -np.inf
    return [exact(*row) for row in rows.tolist()]


class Call(NamedTuple):
    """What `generate` prepares."""

    input_ids: Any
    logits_processor: Any
    given: dict[str, Any]


def prepared(ids: Any, options: dict[str, Any]) -> Call:
    """Return what `generate` hands over to its loop."""
    calls = []

    def look(model: Any, input_ids: Any, logits_processor: Any, **given: Any) -> Any:
        calls.append(Call(input_ids, logits_processor, given))
        return input_ids

    mask = MASK if len(ids) == 2 else torch.ones_like(ids)
    TARGET.generate(
        ids, attention_mask=mask, custom_generate=look, do_sample=True, max_new_tokens=2,
        pad_token_id=PAD, eos_token_id=END, **({"top_k": 0} | options),
    )  # fmt: skip
    return calls[0]


def plain_law(call: Call) -> dict[Path, Fraction]:
    """Distribution of two tokens of the last sequence, as `generate` samples them."""
    b = len(call.input_ids) - 1
    prompt = tuple(call.input_ids[b][(MASK if b else torch.ones_like(ONE))[b] > 0].tolist())

    def after(new: Path) -> Any:
        # what stands in the other rows does not matter, so they may have the same tokens
        tail = torch.tensor([new] * (b + 1), dtype=torch.int64).reshape(b + 1, len(new))
        scores = logits_of(TARGET, prompt + new).repeat(b + 1, 1)
        ids = torch.cat([call.input_ids, tail], dim=1)
        return exact(*call.logits_processor(ids, scores)[b].tolist()).dense(V)

    law: dict[Path, Fraction] = {}
    for first, mass in enumerate(after(())):
        if first == END:
            law[first,] = mass
            continue
        for second, more in enumerate(after((first,))):
            law[first, second] = mass * more
    return {path: mass for path, mass in law.items() if mass}


def plug_law(call: Call, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[Path, Fraction]:
    """Distribution of the last sequence by the plug, along all paths of its comparisons."""
    b = len(call.input_ids) - 1
    third = np.array([Fraction(1, 3)] * 64)
    sources: list[Randomness] = [lambda m: third[:m]] * b
    monkeypatch.setattr(SamplingParameters, "sparse_probs_rows", exact_rows)
    monkeypatch.setattr(generate, "ContinuedModel", Remembered)
    loop = generate.stream

    def output(source: Randomness) -> Path:
        def stream(*args: Any, seed: int, **given: Any) -> Any:
            return loop(*args, uniforms=[*sources, source], **given)

        with monkeypatch.context() as patch:
            patch.setattr(generate, "stream", stream)
            decoding = AssistedDecoding(DRAFT, rule=RULE, **options)
            decoding(TARGET, call.input_ids, logits_processor=call.logits_processor, **call.given)
        assert decoding.generation is not None
        return decoding.generation.sequences[b]

    return output_distribution_of(output)


class Alternating(transformers.LogitsProcessor):
    """A processor of somebody's own: what it does depends on the length, padding, row and token."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        shift = input_ids.shape[1] + (input_ids == PAD).sum(1) + 2 * input_ids[:, -1]
        shift += 3 * torch.arange(len(input_ids))  # its place in the batch
        scores[:, 1] += torch.sin(1.0 * shift)  # in place, as many do
        return scores * (1 + 0.2 * (shift % 3))[:, None]


def allowed(b: int, tokens: Any) -> list[int]:
    """Tokens that may follow in sequence b: no token twice, and 2 only in sequence 1."""
    assert END not in tokens, "generate never asks what follows an end"
    return [token for token in range(V) if token != tokens[-1] and (token != 2 or b == 1)]


PROCESSORS: dict[str, Callable[[], dict[str, Any]]] = {
    "repetition penalty": lambda: {"repetition_penalty": 1.8},
    "no repeated bigrams": lambda: {"no_repeat_ngram_size": 2},
    "min_new_tokens": lambda: {"min_new_tokens": 2},
    "typical_p": lambda: {"typical_p": 0.7, "temperature": 1.5},
    "of one's own": lambda: {"logits_processor": [Alternating()]},
    "allowed tokens": lambda: {"prefix_allowed_tokens_fn": allowed},
    "several": lambda: {
        "sequence_bias": {(1, 2): 1.5, (0,): -1.0}, "repetition_penalty": 0.7, "min_new_tokens": 1,
        "bad_words_ids": [[2, 2], [1, 0]], "eta_cutoff": 0.02, "renormalize_logits": True,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "process_drafts"),
    [(ONE, True), (TWO, True), (TWO, False)],
    ids=["alone", "padded, in a batch", "padded, drafts as they are"],
)
@pytest.mark.parametrize("name", PROCESSORS)
def test_processed_output_has_the_law_of_generate(
    name: str, ids: Any, process_drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches another prefix or row than that of generate, and drafts of another distribution."""
    call = prepared(ids, PROCESSORS[name]())
    law = plug_law(call, monkeypatch, k=1, gamma=1, process_drafts=process_drafts)
    assert law == plain_law(call)


@pytest.mark.parametrize("name", PROCESSORS)
def test_processed_output_of_several_chains_has_the_law_of_generate(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches rows of one sequence that are processed as if they were sequences of a batch."""
    call = prepared(TWO, PROCESSORS[name]() | {"top_k": 2})  # to have fewer paths
    assert plug_law(call, monkeypatch, k=3, gamma=1) == plain_law(call)


class FirstTokenOnly(processors.BatchProcessor):
    def _process(self, ids: Any, scores: Any, sequences: list[int]) -> Any:
        first = ids.shape[1] == self._input_ids.shape[1]
        return super()._process(ids, scores, sequences) if first else scores


class WithoutPadding(processors.BatchProcessor):
    def _process(self, ids: Any, scores: Any, sequences: list[int]) -> Any:
        return super()._process(ids[:, 2:], scores, sequences)


class FirstRow(processors.BatchProcessor):
    def _process(self, ids: Any, scores: Any, sequences: list[int]) -> Any:
        return super()._process(ids, scores, [0] * len(sequences))


@pytest.mark.parametrize("broken", [FirstTokenOnly, WithoutPadding, FirstRow])
def test_broken_processing_changes_the_law(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above fails if processors see less of the tokens, or another row."""
    monkeypatch.setattr(generate, "BatchProcessor", broken)
    call = prepared(TWO, PROCESSORS["of one's own"]())
    assert plug_law(call, monkeypatch, k=1, gamma=1) != plain_law(call)


def test_drafts_that_are_processed_are_accepted_more_often() -> None:
    """Catches unprocessed drafts, and drafts that are processed although they should not be."""
    rates = []
    for process_drafts in (False, True):
        torch.manual_seed(0)
        decoding = AssistedDecoding(TARGET, k=1, gamma=2, process_drafts=process_drafts)
        TARGET.generate(
            ONE, custom_generate=decoding, do_sample=True, max_new_tokens=24, pad_token_id=PAD,
            logits_processor=[Alternating()], no_repeat_ngram_size=3,
        )  # fmt: skip
        assert decoding.generation is not None
        rates.append(decoding.generation.acceptance_rate)
    assert rates[0] < rates[1] == 1


class Watching(transformers.LogitsProcessor):
    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.shapes.append(tuple(input_ids.shape))
        assert scores.dtype == torch.float32, "as generate gives them"
        return scores


def test_a_processor_of_ones_own_sees_batches_and_known_ones_all_rows() -> None:
    """Catches unknown processors that see more rows than the batch has, and needless calls."""
    own = Watching()
    known = type("TopKLogitsWarper", (Watching,), {"__module__": "transformers.generation"})()
    assert processors.kind_of(known) == "TopKLogitsWarper"
    process = processors.BatchProcessor([own, known], TWO, [[2, 1, 2, 1], [1, 2]], (), V)
    tokens = torch.tensor([[1, 2, 1, 1], [1, 2, 2, 3], [1, 2, 1, 3], [2, 1, 2, 1]])
    scores = torch.arange(16.0).reshape(4, V).double()
    processed = process(tokens, scores, np.array([1, 1, 1, 0]))
    assert torch.equal(processed, scores.float())
    assert sorted(own.shapes) == [(2, 4), (2, 6), (2, 6), (2, 6)]
    assert sorted(known.shapes) == [(1, 4), (3, 6)]
