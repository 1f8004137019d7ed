"""Drafts from hidden states: against plain runs of the target and unrolled passes of the layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm import SparseProbs
from otm.decoding import (
    DeviceVerifier,
    ModelDrafter,
    SamplingParameters,
    autoregressive,
    spectr,
    speculative,
    stream,
    verify_traversal,
)
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain import record
from otm.models.hidden_states.files import LayerFile, load_layer, save_layer
from otm.models.hidden_states.layer import Layer, LayerConfig, random_weights, unrolled
from otm.models.hidden_states.model import HiddenStateModel
from otm.models.huggingface.model import HuggingFaceModel
from tests.models.test_huggingface import SIZES, V

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONFIG = LayerConfig(states=(1, 3), width=16, heads=4, key_heads=2, hidden=24)
TOKENS = torch.tensor([1, 2, 5, 7, 8, 11, 16])
GREEDY = SamplingParameters(temperature=0)


def tiny() -> HuggingFaceModel:
    torch.manual_seed(0)
    settings = {"num_hidden_layers": 3, "initializer_range": 0.5, "pad_token_id": None}
    config = transformers.LlamaConfig(**SIZES | settings)
    return HuggingFaceModel(transformers.LlamaForCausalLM(config).double().eval())


def layer_file() -> LayerFile:
    return LayerFile(CONFIG, random_weights(CONFIG, len(TOKENS), seed=1), TOKENS)


def pair() -> tuple[HuggingFaceModel, HiddenStateModel]:
    target = tiny()
    return target, HiddenStateModel(target, layer_file())


def plainly(target: HuggingFaceModel, draft: HiddenStateModel, text: Any, known: int) -> Any:
    """Scores [V] after a text by whole passes; the target has read its first `known` tokens."""
    ids = torch.tensor([text])
    with torch.no_grad():
        hidden = target.model(ids, output_hidden_states=True).hidden_states
        states = torch.cat([hidden[layer] for layer in CONFIG.states], -1)
        before = torch.nn.functional.pad(states, (0, 0, 1, 0))[:, :-1]
        passes = max(len(text) - known, 1)
        outputs = unrolled(draft.bound.layer, before, target.model.model.embed_tokens(ids), passes)
        return draft.bound.scores(outputs[-1])[0, -1]


def test_slots_are_those_of_the_unrolled_passes() -> None:
    """Bug: a state that is one token early or late, or an own output of another slot."""
    target, draft = pair()
    texts = np.array([[3, 4, 5, 6, 7, 8], [9, 10, 11, 12, -1, -1]])
    read = target.start(2)
    read.read(np.array([[3, 4, 5], [9, 10, -1]]))
    scores = draft.start(2).append(texts)
    for row, known in ((0, 3), (1, 2)):
        text = [token for token in texts[row].tolist() if token >= 0]
        for end in range(known, len(text) + 1):
            expected = plainly(target, draft, text[:end], min(known, end))
            torch.testing.assert_close(scores[row, end - 1], expected)


@pytest.mark.parametrize("k", [1, 3])
def test_drafts_after_rejections_are_those_of_a_fresh_session(k: int) -> None:
    """Bug: slots of rejected drafts, or of accepted drafts without the target's states."""
    target, draft = pair()
    drafter = ModelDrafter(draft, k)
    trees: list[Any] = []
    plain = drafter.draft

    def draft_and_note(contexts: Any, *rest: Any) -> Any:
        roots = plain(contexts, *rest)
        trees.extend(zip(contexts, roots, strict=True))
        return roots

    drafter.draft = draft_and_note  # type: ignore[method-assign]
    prompts = [[3, 4, 5], [6, 7]]
    verifier = None if k == 1 else verify_traversal
    for _ in stream(target, prompts, drafter, verifier, gamma=3, max_tokens=12, seed=k):
        pass
    assert len(trees) > 6
    for context, root in trees:
        for node in root.nodes():
            if node.draft_probs is None:
                continue
            scores = plainly(target, draft, context + node.path, len(context) - 1)
            expected = scores.softmax(-1).numpy()
            np.testing.assert_allclose(node.draft_probs.dense(V), expected, atol=1e-6)


def test_recorded_drafts_are_those_of_a_loop() -> None:
    """Bug: a recording whose target has not read the context when the drafts are sampled."""
    target, draft = pair()
    contexts = [[[3, 4, 5], [3, 4, 5, 8, 9], [3, 4, 5, 8, 9, 6]], [[6, 7], [6, 7, 1]]]
    recordings = record(target, ModelDrafter(draft, 2), contexts, 2, batch=1, seed=1)
    for recording in recordings:
        for node in recording.tree.nodes():
            if node.draft_probs is not None:
                known = len(recording.context) - 1
                scores = plainly(target, draft, recording.context + node.path, known)
                expected = scores.softmax(-1).numpy()
                np.testing.assert_allclose(node.draft_probs.dense(V), expected, atol=1e-6)


def test_a_state_of_other_tokens_is_not_used() -> None:
    """Bug: states of a longer row remain after a rewind, for the tokens that follow."""
    target, draft = pair()
    reading = target.start(1)
    reading.read(np.array([[3, 4, 5, 6]]))
    session = draft.start(1)
    session.append(np.array([[3, 4, 5, 6]]))
    session.keep(np.array([0]), np.array([2]))
    scores = session.append(np.array([[7, 8]]))
    torch.testing.assert_close(scores[0, 1], plainly(target, draft, [3, 4, 7, 8], 2))


def test_tokens_outside_the_head_are_never_drafted() -> None:
    """Bug: an index of the head taken for a token."""
    target, draft = pair()
    scores = draft.start(1).append(np.array([[3]]))[0, 0]
    assert torch.isfinite(scores).nonzero()[:, 0].tolist() == TOKENS.tolist()
    output = torch.randn(1, 1, 16, dtype=torch.float64)
    head = target.model.lm_head.weight[TOKENS[4]]
    gain = draft.bound.layer.weights["final_norm"]
    norm = output[0, 0] / (output[0, 0].square().mean() + 1e-5).sqrt()
    expected = (norm * gain) @ head + draft.bound.layer.weights["bias"][4]
    assert draft.bound.scores(output)[0, 0, TOKENS[4]].item() == pytest.approx(
        expected.item(), abs=1e-5
    )


@pytest.mark.parametrize("rule", ["chain", "block", "traversal", "optimal", "walk and keep"])
def test_greedy_text_is_that_of_the_target(rule: str) -> None:
    target, draft = pair()
    options: Any = {"max_tokens": 20, "sampling": GREEDY}
    plain = autoregressive(target, [[3, 4], [5]], **options)
    if rule in ("chain", "block"):
        found = speculative(target, draft, [[3, 4], [5]], rule=rule, gamma=3, **options)
    else:
        found = spectr(target, draft, [[3, 4], [5]], rule=rule, k=2, gamma=3, **options)
    assert found.sequences == plain.sequences


def test_the_device_loop_has_the_states_too() -> None:
    """Bug: the target reads the context after the draft, so that states are one step old."""
    target, draft = pair()
    drafter = ModelDrafter(draft, sampling=GREEDY)
    verifiers = DeviceVerifier(), None
    device, host = (
        [
            (step.drafts, step.output)
            for step in stream(
                target, [[3, 4, 5]], drafter, v, gamma=3, max_tokens=20, sampling=GREEDY
            )
        ]
        for v in verifiers
    )
    assert device == host


def test_files_keep_weights_to_eight_bits(tmp_path: Any) -> None:
    """Bug: a scale for columns where the rows have one."""
    file = layer_file()
    save_layer(tmp_path / "layer", file, "notice")
    again = load_layer(tmp_path / "layer")
    assert again.config == CONFIG
    assert again.tokens.tolist() == TOKENS.tolist()
    for name, weight in file.weights.items():
        scale = weight.abs().amax(-1, keepdim=True)
        assert ((again.weights[name] - weight).abs() <= scale / 200 + 1e-6).all(), name


def test_what_cannot_be_used_is_refused(tmp_path: Any) -> None:
    target = tiny()
    (tmp_path / "text").write_text("nothing")
    with pytest.raises(InvalidInputError, match="is not a draft layer"):
        load_layer(tmp_path / "text")
    with pytest.raises(InvalidParameterError, match="needs a HuggingFaceModel"):
        HiddenStateModel(object(), layer_file())  # type: ignore[arg-type]
    wide = LayerConfig((1, 3), width=32, heads=4, key_heads=2, hidden=24)
    with pytest.raises(InvalidInputError, match="of width 32"):
        HiddenStateModel(target, LayerFile(wide, random_weights(wide, 7, 0), TOKENS))
    target.remember_states((2,))
    with pytest.raises(InvalidParameterError, match="remembers the states of layers"):
        HiddenStateModel(target, layer_file())
    with pytest.raises(InvalidParameterError, match="causal model with a cache"):
        HuggingFaceModel(target.model, cache=False).remember_states((1,))


def test_a_past_without_states_is_read_again() -> None:
    """Bug: the states of the tokens after a past are taken for those of the first tokens."""
    from otm.models.huggingface.session import Past

    target, draft = pair()
    session: Any = target.start(1)
    session.past = Past(np.array([2]), [])
    session.read(np.array([[3, 4, 5]]))
    states, row = draft.bound.memory.of((3, 4, 5, 6))
    assert (states.shape, row) == ((3, 32), 0)


def test_the_longest_prefix_is_found_from_any_row() -> None:
    """Bug: the search ends at the first row with a common prefix."""
    target, draft = pair()
    session = target.start(3)
    session.read(np.array([[3, 4, -1, -1], [3, 4, 5, 6], [3, 4, 5, -1]]))
    for near in range(5):
        states, row = draft.bound.memory.of((3, 4, 5, 6, 7, 8), near)
        assert (len(states), row) == (4, 1)
    assert draft.bound.memory.of((9,))[0] is None


def test_sampled_texts_follow_the_target() -> None:
    """Bug: drafts drawn from another distribution than the one that verification uses."""
    target, draft = pair()
    prompt, count = [3, 4], 300
    with torch.no_grad():
        first = target.model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        after = target.model(torch.tensor([[*prompt, t] for t in range(V)])).logits[:, -1]
    law = (first[:, None] * after.softmax(-1)).numpy()
    options: Any = {"gamma": 2, "max_tokens": 3, "seed": 0}
    found = [
        speculative(target, draft, [prompt] * count, rule="block", **options),
        spectr(target, draft, [prompt] * count, rule="walk and keep", k=2, **options),
        speculative(target, _Misstated(draft), [prompt] * count, rule="block", **options),
    ]
    distances = []
    for generation in found:
        counts = np.zeros((V, V))
        for one, two, *_ in generation.sequences:
            counts[one, two] += 1
        distances.append(abs(counts / count - law).sum() / 2)
    # 300 samples of this distribution are at a distance of about 0.14.
    assert max(distances[:2]) < 0.22 < distances[2]


class _Misstated(ModelDrafter):
    """The control: it draws from other distributions than it states."""

    def draft(self, *arguments: Any) -> Any:
        roots = super().draft(*arguments)
        for root in roots:
            for node in root.nodes():
                if node.draft_probs is not None:
                    node.draft_probs = SparseProbs(TOKENS, np.full(len(TOKENS), 1 / len(TOKENS)))
        return roots


def test_the_same_layers_share_one_memory() -> None:
    target, draft = pair()
    assert HiddenStateModel(target, layer_file()).bound.memory is draft.bound.memory
    assert isinstance(draft.bound.layer, Layer)
