"""A draft without training: the first layers of a model, with a head fitted by least squares."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["LAYERS", "answers", "early_layers"]

LAYERS = 14
LENGTH, COPIES = 96, 8
"""Number of tokens of an answer, and number of answers to each prompt."""

PENALTY = 1e-3
"""Weight of the ridge penalty, as a share of the median variance."""

PROMPTS = (
    "Which vegetables can I plant in spring?",
    "How does a refrigerator keep food cold?",
    "Give me advice for a first job interview.",
    "What is the purpose of a constitution?",
    "Explain what an atom is.",
    "Write a Python function that adds all even numbers of a list.",
    "Write a Python program that prints the first twenty prime numbers.",
    "How do I sort a dictionary by its values in Python?",
    "Write a short story about a dragon who is afraid of fire.",
    "Tell me a story about a girl and her grandfather's watch.",
    "Write a story about a village without a clock.",
    "Summarize in two sentences: The bridge was built in 1902. It was closed last year because "
    "the steel had rusted. The repair takes two years and costs four million.",
    "Summarize in two sentences: Our club met on Friday. We elected a new chair, planned the "
    "summer party and decided to buy a new boat if the members give enough money.",
)
"""Prompts of the text that fits the head; prompts.toml has other ones."""


def answers(model: Any, encode: Callable[[str], Sequence[int]], end: int) -> list[list[int]]:
    """Sample answers of a model at temperature 1, several to each prompt, in one batch."""
    import torch

    torch.manual_seed(0)
    prompts = [encode(prompt) for prompt in PROMPTS for _ in range(COPIES)]
    longest = max(map(len, prompts))
    padded = [(*[end] * (longest - len(prompt)), *prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": LENGTH}
    made = model.generate(torch.tensor(padded), attention_mask=torch.tensor(mask), **options)
    rows: list[list[int]] = made[:, longest:].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


def early_layers(model: Any, texts: Sequence[Sequence[int]]) -> Any:
    """Return a causal model of the first layers, whose head imitates the whole model.

    The head is the model's own head after a matrix A, which minimises ‖X A − Y‖² + penalty: X are
    the normalised states after these layers, and Y the states that the model's own head reads.
    """
    import torch
    from torch.nn.functional import rms_norm

    wide = copy.deepcopy(model).float()
    config = copy.deepcopy(model.config)
    config.num_hidden_layers, config.tie_word_embeddings = LAYERS, False
    early = type(model)(config).eval()
    weights = wide.state_dict()
    early.load_state_dict({name: weights[name] for name in early.state_dict()})
    states, aims = [], []
    with torch.no_grad():
        for text in texts:
            found = wide(torch.tensor([text]), output_hidden_states=True).hidden_states
            # The last entry of the states is already normalised for the head.
            states.append(rms_norm(found[LAYERS][0], found[LAYERS].shape[-1:]))
            aims.append(found[-1][0])
        before, after = torch.cat(states).double(), torch.cat(aims).double()
        square = before.T @ before
        ridge = PENALTY * square.diagonal().median() * torch.eye(len(square), dtype=square.dtype)
        matrix = torch.linalg.solve(square + ridge, before.T @ after)
        early.model.norm.weight.fill_(1)
        early.lm_head.weight.copy_(wide.lm_head.weight.double() @ matrix.T)
    early.generation_config = copy.deepcopy(model.generation_config)
    return early.to(model.dtype)
