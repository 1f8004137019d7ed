"""What the decoding loops cost beside the models, and what they gain.

    python -m benchmarks.decoding [--quick] [--save]

Everything is one run on this machine, in the order in which it is printed:

- overhead: the share of the time that is spent outside of the two models, for a pair with random
  weights and a vocabulary of 50,257 tokens (top-k 1,000), and for the byte-level pair that comes
  with the package;
- efficiency: first-step acceptance and block efficiency of each rule on that pair, computed from
  recorded laws, with intervals over prompts and paired differences;
- speed: the measured speed-up over decoding without drafts, the cost model with its measured times,
  and Theorem 3.8 beside it;
- transformers: tokens per second against assisted generation of transformers, on the same pair of
  its models, with the same policy for γ, in turns; left out where it is not installed.

With --save the results go to benchmarks/results/decoding.json.
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from otm.decoding import (
    Generation,
    ModelDrafter,
    Standardization,
    autoregressive,
    spectr,
    speculative,
)
from otm.decoding.analysis import walltime_improvement
from otm.decoding.models import LanguageModel
from otm.decoding.models.gpt import GPT, GPTConfig, load
from otm.decoding.planning.efficiency import block_efficiency, first_step_acceptance
from otm.decoding.planning.latency import measure
from otm.decoding.planning.recording import contexts_of, record
from otm.decoding.policies import hugging_face_heuristic

RESULTS = Path(__file__).parent / "results" / "decoding.json"
GAMMA = 5
CHAINS = 8
TOP_K = 1000
ROUNDS = 5
RULES = ("k-Seq", "optimal", "recursive rejection", "traversal")

TEXT = Path(__file__).parents[1] / "otm" / "data" / "king_james_bible_excerpt.txt"


def random_pair() -> tuple[GPT, GPT]:
    """A target with random weights, and a draft that is its first layer.

    What the first layer adds is large, so that the embedding of the last token does not decide the
    next one; what the others add is small beside it, so that the two laws are alike.
    """
    sizes = {"width": 256, "heads": 4, "vocabulary": 50_257}
    target = GPT.random(GPTConfig(layers=16, **sizes), seed=0)
    for name, weight in target.weights.items():
        if name.endswith(("attention_output", "perceptron_output")):
            weight *= 30 if name.startswith("0.") else 1.5
        elif name == "norm":
            weight *= 12  # laws as peaked as those of a language model
    config = GPTConfig(layers=1, **sizes)
    return target, GPT(config, {name: target.weights[name] for name in config.shapes})


def prompts_of_text(count: int, length: int) -> list[list[int]]:
    """Pieces of the held-out end of the text that comes with the package, as bytes."""
    held_out = TEXT.read_bytes()[-40_000:]
    starts = np.linspace(0, len(held_out) - length, count).astype(int)
    return [list(held_out[start : start + length]) for start in starts]


def overhead(
    target: LanguageModel,
    draft: LanguageModel,
    prompt: list[int],
    tokens: int,
    sampling: Standardization,
) -> dict[str, Any]:
    """Milliseconds of a step in both models and outside of them, for K = 1 and K = 8."""
    options: dict[str, Any] = {
        "gamma": GAMMA,
        "max_tokens": tokens,
        "sampling": sampling,
        "seed": 0,
    }
    ways: dict[str, Callable[[], Generation]] = {
        "chain, K = 1": lambda: speculative(target, draft, [prompt], **options),
        "block, K = 1": lambda: speculative(
            target, draft, [prompt], verification="block", **options
        ),
    }
    for rule in RULES:
        ways[f"{rule}, K = {CHAINS}"] = lambda rule=rule: spectr(
            target, draft, [prompt], k=CHAINS, rule=rule, **options
        )  # type: ignore[misc]
    rows = {}
    for name, decode in ways.items():
        decode()
        generation = decode()
        seconds, steps = generation.seconds, len(generation.steps)
        rows[name] = {
            "block_efficiency": generation.block_efficiency,
            "draft_ms": 1e3 * seconds.draft / steps,
            "target_ms": 1e3 * seconds.target / steps,
            "other_ms": 1e3 * seconds.other / steps,
            "share": seconds.other / seconds.total,
        }
        print(
            f"  {name:28s}",
            *(f"{key} {value:7.3f}" for key, value in rows[name].items()),
            flush=True,
        )
    return rows


def efficiency(prompts: int, every: int) -> dict[str, Any]:
    """Rules compared on the shipped pairs, without decoding by them."""
    target = load("target")
    contexts = contexts_of(
        autoregressive(target, prompts_of_text(prompts, 64), max_tokens=64, seed=0), every=every
    )
    results = {}
    for name in ("large", "medium", "small"):
        recordings = record(target, ModelDrafter(load(name), CHAINS), contexts, GAMMA, seed=0)
        first = first_step_acceptance(recordings, RULES[:3])
        tokens = block_efficiency(recordings, RULES, ks=(1, 2, 4, CHAINS), gammas=(GAMMA,))
        print(f"draft model: {name}\n{first}\n{tokens}")
        base = ("k-Seq", CHAINS, GAMMA)
        differences = {}
        for rule in RULES[1:]:
            difference = tokens.difference((rule, CHAINS, GAMMA), base)
            differences[rule] = [difference.mean, difference.half_width]
            print(f"{rule} less k-Seq, K = {CHAINS}: {difference}")
        results[name] = {
            "first_step": {f"{s.rule}, K = {s.k}": list(first[s]) for s in first},
            "tokens": {f"{s.rule}, K = {s.k}": list(tokens[s]) for s in tokens},
            "less_k_seq": differences,
        }
    return results


def speed(tokens: int, rounds: int) -> list[dict[str, Any]]:
    """Measured speed-up over decoding without drafts, beside what the cost model says."""
    target, sampling = load("target"), Standardization()
    prompts = prompts_of_text(4, 64)
    rows = []
    for name in ("large", "small"):
        draft = load(name)
        for gamma, k in ((3, 1), (GAMMA, 1), (GAMMA, CHAINS)):
            seconds: dict[str, list[float]] = {"alone": [], "drafts": []}
            made: list[Generation] = []
            for seed in range(rounds):
                for prompt in prompts:
                    options: dict[str, Any] = {
                        "max_tokens": tokens,
                        "sampling": sampling,
                        "seed": seed,
                    }
                    begun = time.perf_counter()
                    autoregressive(target, [prompt], **options)
                    middle = time.perf_counter()
                    if k == 1:
                        made.append(speculative(target, draft, [prompt], gamma=gamma, **options))
                    else:
                        made.append(spectr(target, draft, [prompt], k=k, gamma=gamma, **options))
                    seconds["alone"].append(middle - begun)
                    seconds["drafts"].append(time.perf_counter() - middle)
            steps = sum(len(generation.steps) for generation in made)
            found = sum(generation.tokens for generation in made) / steps
            other = sum(generation.seconds.other for generation in made) / steps
            latency = measure(
                target, draft, 64 + tokens // 2, [gamma], [k], repeats=30, overhead=other
            )
            judged = sum(generation.acceptance_rate for generation in made) / len(made)
            row = {
                "draft": name,
                "gamma": gamma,
                "k": k,
                "block_efficiency": found,
                "measured": sum(seconds["alone"]) / sum(seconds["drafts"]),
                "cost_model": latency.speedup(found, gamma, k),
                "c": latency.draft[0] / latency.alone,
                "theorem_3_8": walltime_improvement(judged, gamma, latency.draft[0] / latency.alone)
                if k == 1
                else None,
            }
            rows.append(row)
            print("  ", row, flush=True)
    return rows


def against_transformers(tokens: int, rounds: int) -> dict[str, Any]:
    """Tokens per second of `generate` with an assistant, and of this package's loop, in turns."""
    import torch
    import transformers

    from otm.decoding.huggingface import AssistedDecoding

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=5, n_embd=512, n_head=8, bos_token_id=0, eos_token_id=None
    )
    target = transformers.GPT2LMHeadModel(config).eval()
    draft = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=1, n_embd=512, n_head=8, bos_token_id=0, eos_token_id=None)
    ).eval()
    with torch.no_grad():
        target.transformer.wte.weight *= 10  # laws as peaked as those of a language model
        for block in target.transformer.h[1:]:
            block.attn.c_proj.weight *= 0.3
            block.mlp.c_proj.weight *= 0.3
    weights = target.state_dict()
    draft.load_state_dict({name: weights[name] for name in draft.state_dict()})
    draft.generation_config.num_assistant_tokens = GAMMA
    draft.generation_config.num_assistant_tokens_schedule = "heuristic"
    draft.generation_config.assistant_confidence_threshold = 0
    ids = torch.randint(0, 50_257, (1, 32))
    results = {}
    for sampled in (False, True):
        common: dict[str, Any] = {
            "do_sample": sampled,
            "max_new_tokens": tokens,
            "pad_token_id": 0,
            "attention_mask": torch.ones_like(ids),
        }
        decoding = AssistedDecoding(draft, k=1, gamma=hugging_face_heuristic(GAMMA))
        ways: dict[str, Callable[[], Any]] = {
            "transformers, alone": lambda: target.generate(ids, **common),
            "transformers, assisted": lambda: target.generate(ids, assistant_model=draft, **common),
            "otm": lambda: target.generate(ids, custom_generate=decoding, **common),
        }
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds + 1):
            for name, generate in ways.items():
                draft.generation_config.num_assistant_tokens = GAMMA
                torch.manual_seed(turn)
                begun = time.perf_counter()
                made = generate()
                passed = time.perf_counter() - begun
                if turn:
                    speeds[name].append((made.shape[1] - ids.shape[1]) / passed)
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        ratio = medians["otm"] / medians["transformers, assisted"]
        results["sampled" if sampled else "greedy"] = {**medians, "ratio": ratio}
        print("  ", "sampled" if sampled else "greedy", medians, f"ratio {ratio:.2f}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    quick = arguments.quick
    results: dict[str, Any] = {"machine": machine("numpy", "torch", "transformers")}
    print("overhead, random weights, V = 50,257")
    target, draft = random_pair()
    prompt = np.random.default_rng(0).integers(0, 50_257, 64).tolist()
    results["overhead_random"] = overhead(
        target, draft, prompt, 20 if quick else 200, Standardization(top_k=TOP_K)
    )
    print("overhead, shipped pair")
    results["overhead_shipped"] = overhead(
        load("target"),
        load("small"),
        prompts_of_text(1, 64)[0],
        20 if quick else 300,
        Standardization(),
    )
    print("efficiency")
    results["efficiency"] = efficiency(4 if quick else 40, 16 if quick else 4)
    print("speed")
    results["speed"] = speed(16 if quick else 200, 1 if quick else 3)
    if importlib.util.find_spec("transformers"):
        print("transformers")
        results["transformers"] = against_transformers(16 if quick else 128, 1 if quick else ROUNDS)
    if arguments.save:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
