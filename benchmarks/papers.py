"""Measure the times in the papers' tables, for the models of this package.

    python -m benchmarks.papers [--quick] [--save | --output FILE]

All measurements run in one process on the CPU with one torch thread:

- SpecTr's Table 1: block efficiency, and speed over decoding without drafts;
- SpecTr's Tables 2 and 3: times of target and draft model for several tokens in several rows;
- Leviathan et al.'s Tables 2 and 4: the speed of one chain of drafts by draft model, temperature
  and γ, with acceptance rate α, cost c of a draft, and cost of verification.

There are two pairs.  "shipped" is the byte-level target of this package with its draft models.
This target is so small that a draft costs about half of its time.  "deepened" has 8 times the
layers, and the added layers do not change the output.  So the distributions are the same, and a
draft is about as cheap, compared with the target, as in the papers.

With --save the results go to benchmarks/results/papers.json.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.loops.latencies import relative_latencies
from benchmarks.loops.models import deepened
from benchmarks.loops.turns import Way, in_turns, ratio
from benchmarks.machine import machine
from figures.shipped_pairs import DRAFTS, prompts_of_text, shipped_probs
from otm._core.means import clustered_mean
from otm.decoding import Generation, SamplingParameters, autoregressive, spectr, speculative
from otm.gain import measure_latency
from otm.models import GPT, load

RESULTS = Path(__file__).parent / "results" / "papers.json"

PROMPT = 64
"""Length of a prompt in bytes."""
DEEPER = 8
"""Ratio of the deepened target's layers to the shipped target's layers."""
LENGTHS = (4, 8)
CHAINS = 8
DRAFT = "small"
"""Draft model for SpecTr's Tables 1 and 3: the cheapest one."""
GAMMAS = (3, 5, 7)
TEMPERATURES = (0, 1)


def run(*, quick: bool) -> dict[str, Any]:
    """Run all measurements, print them, and return the record."""
    import torch

    torch.set_num_threads(1)
    results = machine("numpy", "torch")
    target = load("target")
    turns, tokens, runs, deeper = (2, 2, 2, 2) if quick else (24, 128, 100, DEEPER)
    rates = acceptance_rates(turns, tokens)
    for name, model in {"shipped": target, "deepened": deepened(target, deeper)}.items():
        print(f"{name}: speed on the axes of SpecTr's Table 1")
        found: dict[str, Any] = {"layers": model.config.layers, "parameters": model.config.size}
        found["tokens"], found["turns"] = tokens, turns
        found["speed"] = speed(model, turns, tokens)
        print(f"{name}: latency on the axes of SpecTr's Tables 2 and 3")
        models = {"target": model, DRAFT: load(DRAFT)}
        found["latency"] = relative_latencies(models, PROMPT + tokens // 2, runs)
        print(f"{name}: speed on the axes of Leviathan et al.'s Table 2")
        found["chains"] = chains(model, rates, turns, tokens)
        results[name] = found
    return results


def speed(target: GPT, turns: int, tokens: int) -> list[dict[str, Any]]:
    """Compare decoding without drafts, with one chain and with eight."""
    draft = load(DRAFT)
    ways: dict[tuple[str, Any, Any], Way] = {
        ("baseline", "", ""): decoder(partial(autoregressive, target), tokens)
    }
    for gamma in LENGTHS:
        one = partial(speculative, target, draft, gamma=gamma)
        several = partial(spectr, target, draft, gamma=gamma, k=CHAINS)
        ways["speculative", 1, gamma] = decoder(one, tokens)
        ways["SpecTr", CHAINS, gamma] = decoder(several, tokens)
    runs = in_turns(ways, prompts_of_text(turns, PROMPT))
    alone = [run.seconds / run.tokens for run in runs["baseline", "", ""]]
    rows = []
    for (algorithm, k, gamma), made in runs.items():
        row = {
            "draft": DRAFT,
            "algorithm": algorithm,
            "K": k,
            "L": gamma,
            "block_efficiency": ratio([run.tokens for run in made], [run.steps for run in made]),
            "speed": ratio(alone, [run.seconds / run.tokens for run in made]),
        }
        rows.append(row)
        print("   ", algorithm, k, gamma, shown(row["block_efficiency"]), shown(row["speed"]))
    return rows


def chains(
    target: GPT, rates: dict[tuple[str, int], dict[str, float]], turns: int, tokens: int
) -> list[dict[str, Any]]:
    """Measure one chain by draft model, temperature and γ, with the inputs of the cost model."""
    rows = []
    drafts = {name: load(name) for name in DRAFTS}
    times = {
        name: measure_latency(target, draft, PROMPT + tokens // 2, GAMMAS, [1], repeats=2 * turns)
        for name, draft in drafts.items()
    }
    for temperature in TEMPERATURES:
        options = {"sampling": SamplingParameters(temperature=temperature)}
        ways: dict[tuple[str, int], Way] = {
            (name, gamma): decoder(
                partial(speculative, target, draft, gamma=gamma), tokens, options
            )
            for name, draft in drafts.items()
            for gamma in GAMMAS
        }
        ways["", 0] = decoder(partial(autoregressive, target), tokens, options)
        runs = in_turns(ways, prompts_of_text(turns, PROMPT))
        alone = [run.seconds / run.tokens for run in runs.pop(("", 0))]
        for (name, gamma), made in runs.items():
            row = {
                "draft": name,
                "temperature": temperature,
                "gamma": gamma,
                "alpha": rates[name, temperature],
                "c": times[name].draft[0] / times[name].autoregressive_time,
                "judging": times[name].target[1 + GAMMAS.index(gamma)][0]
                / times[name].autoregressive_time,
                "speed": ratio(alone, [run.seconds / run.tokens for run in made]),
            }
            rows.append(row)
            print(
                f"    {name}, T = {temperature}, γ = {gamma}: α {shown(row['alpha'])}, c "
                f"{row['c']:.3f}, verification {row['judging']:.2f}, speed {shown(row['speed'])}"
            )
    return rows


def acceptance_rates(prompts: int, tokens: int) -> dict[tuple[str, int], dict[str, float]]:
    """Return the mean of 1 − TV(p, q) along texts of the target, by draft model and temperature.

    The numbers of prompts and tokens are those of the timed runs: at temperature 0, longer texts
    repeat themselves, which raises α.  The 95 % intervals are over prompts.
    """
    rates = {}
    for temperature in TEMPERATURES:
        probs, of_prompt = shipped_probs(
            (*DRAFTS, "target"), prompts=prompts, tokens=tokens, temperature=temperature
        )
        for name in DRAFTS:
            overlap = np.minimum(probs[name], probs["target"]).sum(-1)
            rates[name, temperature] = clustered_mean(overlap, of_prompt)._asdict()
    return rates


def decoder(decode: partial[Generation], tokens: int, options: dict[str, Any] | None = None) -> Way:
    """Return a decoding function of a prompt and a seed."""

    def way(prompt: Sequence[int], seed: int) -> Generation:
        return decode(prompts=[prompt], max_tokens=tokens, seed=seed, **(options or {}))

    return way


def shown(estimate: dict[str, float]) -> str:
    reach = estimate["high"] - estimate["mean"]
    known = f" ± {reach:.2f}" if math.isfinite(reach) else " (of one run: no interval)"
    return f"{estimate['mean']:.2f}{known}"


def main() -> None:
    """Run the benchmark from the command line."""
    parser = command("Measure the times in the papers' tables.")
    parser.add_argument("--output", type=Path, help="write to another file")
    arguments = options_of(parser)
    results = run(quick=arguments.quick)
    file = arguments.output or (RESULTS if arguments.save else None)
    if file is not None:
        keep(results, file)


if __name__ == "__main__":
    main()
