"""Trees of tokens that a model reads at once: the scores of their paths, and what a row keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.models import HuggingFaceModel, LanguageModel, load
from otm.models.base import padded

torch = pytest.importorskip("torch")

from otm.models.tree_attention import ancestors, visible_slots  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4,
}  # fmt: skip
PARENTS = np.array([[-1, 0, 0, 1, 1, 2, 5], [-1, 0, 1, 1, 2, 2, 4], [-1, 0, 1, 2, 3, 0, 5]])
COUNTS = np.array([1, 2, 1])
KEPT = np.array([[2, 5, 6], [2, -1, -1], [1, 2, 3]])


def of_transformers(kind: str) -> HuggingFaceModel:
    """Return a small random model of transformers."""
    transformers = pytest.importorskip("transformers")
    config = {
        "Llama": transformers.LlamaConfig,
        "GPTNeoX": transformers.GPTNeoXConfig,
        "Bloom": transformers.BloomConfig,
        "Mistral": transformers.MistralConfig,
    }[kind](**SIZES)
    torch.manual_seed(0)
    return HuggingFaceModel(getattr(transformers, f"{kind}ForCausalLM")(config).eval())


def alone(model: LanguageModel, text: list[int]) -> Any:
    """Return the scores after a text that a new session reads as one row."""
    return model.start(1).append(np.array([text]))[0, -1]


@pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 6, 4)], ids=["equal", "different"])
@pytest.mark.parametrize("kind", ["GPT", "Llama", "GPTNeoX"])
def test_a_tree_gets_the_scores_of_its_paths(kind: str, lengths: tuple[int, ...]) -> None:
    """Catches positions by place, masks of other rows, and a kept path at the wrong slots."""
    model = load("small") if kind == "GPT" else of_transformers(kind)
    rng = np.random.default_rng(0)
    contexts = [rng.integers(0, 50, length).tolist() for length in lengths]
    tokens = rng.integers(0, 50, PARENTS.shape)
    assert model.reads_trees
    session = model.start(3)
    session.read(padded(contexts))
    order = [2, 0, 1]  # rows at other places
    session.keep(np.array(order), np.array([lengths[r] for r in order]))
    contexts = [contexts[r] for r in order]
    scores = session.append_tree(torch.from_numpy(tokens), torch.from_numpy(PARENTS), COUNTS)

    def path(b: int, entry: int) -> list[int]:
        return [] if entry < 0 else [*path(b, PARENTS[b, entry]), int(tokens[b, entry])]

    for b, entry in np.ndindex(*PARENTS.shape):
        expected = alone(model, contexts[b] + path(b, entry))
        torch.testing.assert_close(scores[b, entry], expected, atol=1e-4, rtol=1e-4)
    session.keep_paths(KEPT)
    texts = [
        context + path(b, int(KEPT[b].max())) for b, context in enumerate(contexts)
    ]  # the last entry of a path is the largest
    for _ in range(2):
        found = session.append(np.array([[7], [8], [9]]))[:, 0]
        for b, text in enumerate(texts):
            expected = alone(model, [*text, 7 + b])
            torch.testing.assert_close(found[b], expected, atol=1e-4, rtol=1e-4)
        session.keep(np.arange(3), np.array(list(map(len, texts))))


@pytest.mark.parametrize("kind", ["Bloom", "Mistral"])
def test_models_with_other_masks_read_no_trees(kind: str) -> None:
    """Catches positions that a model takes from the places of its tokens, and sliding windows."""
    assert not of_transformers(kind).reads_trees


def test_a_model_that_ignores_masks_reads_no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the mask, each token of the tree sees all tokens before it."""
    model = of_transformers("Llama")
    forward = model.model.forward

    def ignoring(*arguments: Any, attention_mask: Any = None, **options: Any) -> Any:
        return forward(*arguments, **options)

    monkeypatch.setattr(model.model, "forward", ignoring)
    assert not model.reads_trees


def test_masks_by_hand() -> None:
    """Catches a path that ends after two steps, and slots of another row's start."""
    known = ancestors(torch.tensor([[-1, 0, 1, 2, 0, 4]]))
    assert known[0].nonzero().tolist() == [
        [0, 0], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2], [3, 0], [3, 1], [3, 2], [3, 3], [4, 0],
        [4, 4], [5, 0], [5, 4], [5, 5],
    ]  # fmt: skip
    seen = visible_slots(ancestors(torch.tensor([[-1, -1], [-1, 0]])), torch.tensor([1, 2]), 5)
    assert seen.int().tolist() == [
        [[[1, 1, 0, 0, 0], [1, 0, 1, 0, 0]]],
        [[[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]],
    ]
