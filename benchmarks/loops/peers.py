"""Tokens per second of assisted generation in transformers and of OTM's loops, in turns."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.loops.as_gpt_neox import as_gpt_neox
from benchmarks.loops.models import VOCABULARY
from figures.shipped_pairs import prompts_of_text
from otm.decoding import SamplingParameters, speculative
from otm.decoding.policies import huggingface_heuristic
from otm.models import load

__all__ = ["against_transformers"]

GAMMA = 5


def against_transformers(tokens: int, rounds: int, layers: int) -> list[dict[str, Any]]:
    """Measure two pairs, greedy and sampled, with transformers' heuristic for γ."""
    import torch

    pairs = {"shipped": shipped(), "random": random(layers)}
    rows = []
    for name, (target, draft, prompt, own) in pairs.items():
        ids = torch.tensor([prompt])
        for sampled in (False, True):
            ways = contestants(target, draft, ids, sampled=sampled, tokens=tokens)
            if own is not None:
                sampling = SamplingParameters() if sampled else SamplingParameters(temperature=0)
                ways["otm, own models"] = partial(
                    speculative,
                    *own,
                    [prompt],
                    gamma=huggingface_heuristic(GAMMA),
                    sampling=sampling,
                    max_tokens=tokens,
                )
            speeds = in_turns(ways, tokens, rounds)
            row = {"pair": name, "sampled": sampled, **speeds}
            rows.append(row)
            print("  ", {k: round(v, 1) if isinstance(v, float) else v for k, v in row.items()})
    return rows


def shipped() -> tuple[Any, Any, list[int], tuple[Any, Any]]:
    """Return the byte-level pair as transformers models, and unchanged."""
    target, draft = load("target"), load("small")
    (prompt,) = prompts_of_text(1, 64)
    return as_gpt_neox(target), as_gpt_neox(draft), prompt, (target, draft)


def random(layers: int) -> tuple[Any, Any, list[int], None]:
    """Make a GPT-2 with random weights, and its first layer as the draft."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"n_embd": 256, "n_head": 4, "vocab_size": VOCABULARY}
    ends = {"bos_token_id": 0, "eos_token_id": None}
    target = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, **sizes, **ends))
    draft = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, **sizes, **ends))
    with torch.no_grad():
        for i, block in enumerate(target.transformer.h):
            for output in (block.attn.c_proj, block.mlp.c_proj):
                output.weight *= 30.0 if i == 0 else 1.5
        target.transformer.ln_f.weight *= (
            12.0  # makes distributions as peaked as those of a language model
        )
    weights = target.state_dict()
    draft.load_state_dict({name: weights[name] for name in draft.state_dict()})
    prompt = torch.randint(VOCABULARY, (32,)).tolist()
    return target.eval(), draft.eval(), prompt, None


def contestants(
    target: Any, draft: Any, ids: Any, *, sampled: bool, tokens: int
) -> dict[str, Callable[..., Any]]:
    """Return three methods: `generate` alone, with an assistant, and with OTM's loop."""
    import torch

    from otm.integrations.huggingface import AssistedDecoding

    options = {
        "do_sample": sampled,
        "top_k": 0 if target.config.vocab_size < VOCABULARY else 50,
        "max_new_tokens": tokens,
        "pad_token_id": 0,
        "attention_mask": torch.ones_like(ids),
    }
    ours = AssistedDecoding(draft, k=1, gamma=huggingface_heuristic(GAMMA))

    def assisted() -> Any:
        draft.generation_config.num_assistant_tokens = GAMMA
        draft.generation_config.num_assistant_tokens_schedule = "heuristic"
        draft.generation_config.assistant_confidence_threshold = 0
        return target.generate(ids, assistant_model=draft, **options)

    return {
        "transformers, alone": partial(target.generate, ids, **options),
        "transformers, assisted": assisted,
        "otm, in generate": partial(target.generate, ids, custom_generate=ours, **options),
    }


def in_turns(
    ways: dict[str, Callable[..., Any]], tokens: int, rounds: int
) -> dict[str, float | None]:
    """Return the median tokens per second of each method, without the first round."""
    import torch

    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, decode in ways.items():
            torch.manual_seed(turn)
            begun = time.perf_counter()
            decode()
            speeds[name].append(tokens / (time.perf_counter() - begun))
    medians: dict[str, float | None] = {
        name: statistics.median(found[1:]) for name, found in speeds.items()
    }
    for name in ("otm, in generate", "otm, own models"):
        if name in speeds:
            ratios = zip(speeds[name][1:], speeds["transformers, assisted"][1:], strict=True)
            medians[f"{name}, ratio"] = statistics.median(a / b for a, b in ratios)
    return medians
