"""Compare tokens per step for 32 draft tokens: all ways to draft and verify, on the same contexts.

    python -m benchmarks.trees [--quick] [--save]

The ways are one chain, several chains, prefix trees, and trees as engines draft them, on the
shipped pairs.  The contexts are those where the steps of a loop of four chains begin.  The mean
over the verifier's coins is computed.  Coupled decoding is an exception, because its drafts depend
on the coins: it runs one step after each context.  Intervals are over prompts.  Fixed shapes come
from the dynamic program, with hit rates measured at contexts of other prompts.

With --save the results go to benchmarks/results/trees.json.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.shipped_pairs import prompts_of_text
from otm._core.means import PairedMeans, Setup
from otm.coupled import decode_coupled
from otm.decoding import (
    BestFirstDrafter,
    Drafter,
    DrawnTreeDrafter,
    DynamicTreeDrafter,
    ModelDrafter,
    SamplingParameters,
    StaticTreeDrafter,
    spectr,
)
from otm.gain import (
    best_drawn_tree,
    best_tree,
    block_efficiency,
    contexts_from,
    drawn_hits,
    first_step_acceptance,
    rank_hits,
    record,
)
from otm.gain.recording import Recording
from otm.models import LanguageModel, load

RESULTS = Path(__file__).parent / "results" / "trees.json"
NODES, DEPTH, PLACES = 32, 8, 8
BEST = "best-first, target-only"
DRAWN = "best-first with a drawn child a node, walk and keep"
WITHOUT = "recursive rejection without replacement"
PREFIX = (2, 2, *(1,) * 6)

Contexts = Sequence[Sequence[tuple[int, ...]]]
Way = tuple[str, Drafter, str, int]
"""Name of a way, its drafter, its rule, and its maximum path length."""


def ways(
    target: LanguageModel, draft: LanguageModel, sampling: SamplingParameters, held: Contexts
) -> list[Way]:
    """Return each way to draft at most 32 tokens; held-out contexts determine fixed shapes."""
    recorded = record(target, ModelDrafter(draft, 1, sampling), held, 1, sampling=sampling, seed=1)
    top = best_tree(rank_hits(recorded, PLACES), NODES, DEPTH).shape
    sampled = best_tree(hits_of_rejection(recorded), NODES, DEPTH).shape
    one = ModelDrafter(draft, 1, sampling)
    found: list[Way] = [
        ("one chain of 8, up to the first rejected", one, "k-Seq", DEPTH),
        ("one chain of 8, block", one, "traversal", DEPTH),
    ]
    found += [
        (f"{k} chains, {rule}", ModelDrafter(draft, k, sampling), rule, NODES // k)
        for k in (4, 8)
        for rule in ("recursive rejection", "k-Seq", "optimal", "traversal", "walk and keep")
    ]
    trees = {"prefix tree": PREFIX, "branching delayed by two": (1, 1, 5, *(1,) * 5)}
    found += [
        (f"{name}, walk and keep", ModelDrafter(draft, branching, sampling), "walk and keep", DEPTH)
        for name, branching in trees.items()
    ]
    drawn = DrawnTreeDrafter(draft, NODES, sampling=sampling)
    found.append((DRAWN, drawn, "walk and keep", DEPTH))
    static = StaticTreeDrafter(draft, sampled, "WithoutReplacement", sampling)
    mixed = best_drawn_tree(rank_hits(recorded, PLACES), drawn_hits(recorded, PLACES), NODES, DEPTH)
    planned = StaticTreeDrafter(draft, mixed.shape, "Greedy", sampling)
    return [
        *found,
        ("planned shape with drawn children, walk and keep", planned, "walk and keep", DEPTH),
        ("planned shape, without replacement", static, WITHOUT, DEPTH),
        ("dynamic tree, without replacement", DynamicTreeDrafter(draft, NODES, None, sampling),
         WITHOUT, DEPTH),
        ("planned shape, target-only", StaticTreeDrafter(draft, top, "Top", sampling),
         "target-only", DEPTH),
        (BEST, BestFirstDrafter(draft, NODES, None, sampling), "target-only", DEPTH),
        ("best-first of width 4, target-only", BestFirstDrafter(draft, NODES, 4, sampling),
         "target-only", DEPTH),
        ("best-first by the target itself", BestFirstDrafter(target, NODES, None, sampling),
         "target-only", DEPTH),
    ]  # fmt: skip


def hits_of_rejection(recordings: Sequence[Recording]) -> Any:
    """Measure how often recursive rejection accepts the i-th draft after i − 1 rejections."""
    places = list(range(1, PLACES + 1))
    means = first_step_acceptance(recordings, "recursive rejection", places)
    return np.diff([0.0, *(means["recursive rejection", k, 1].mean for k in places)])


def coupled_tokens(
    target: LanguageModel,
    draft: LanguageModel,
    k: int,
    sampling: SamplingParameters,
    asked: Contexts,
) -> Any:
    """Count the tokens of one coupled step after each context, each with a different seed."""
    counts = []
    for number, context in enumerate(context for group in asked for context in group):
        given: dict[str, Any] = {"k": k, "gamma": DEPTH, "max_tokens": DEPTH + 1, "seed": number}
        found = decode_coupled(target, draft, [context], sampling=sampling, **given)
        counts.append(len(found.steps[0].output))
    return np.array(counts, dtype=np.float64)


def measured(
    draft: LanguageModel, temperature: float, prompts: int, tokens: int
) -> list[dict[str, Any]]:
    """Measure tokens per step of each way, and the paired difference to best-first trees."""
    target, sampling = load("target"), SamplingParameters(temperature=temperature)
    given = prompts_of_text(2 * prompts, 64)
    options: dict[str, Any] = {"k": 4, "gamma": DEPTH, "max_tokens": tokens, "seed": 0}
    loop = spectr(target, draft, given, rule="optimal", sampling=sampling, **options)
    contexts = contexts_from(loop)
    held, asked = contexts[prompts:], contexts[:prompts]
    chosen = ways(target, draft, sampling, held)
    values, nodes, of_prompts = tokens_of(target, chosen, asked, sampling)
    for k in (1, 4):
        name = f"{k} chains, coupled" if k > 1 else f"one chain of {DEPTH}, coupled"
        values[Setup(name, NODES, DEPTH)] = coupled_tokens(target, draft, k, sampling, asked)
        nodes[name] = k * DEPTH
    return compared(PairedMeans("tokens of a step", values, of_prompts), nodes, f"T {temperature}")


def tokens_of(
    target: LanguageModel,
    ways: Sequence[Way],
    asked: Contexts,
    sampling: SamplingParameters,
) -> tuple[dict[Setup, Any], dict[str, int], Any]:
    """Return the tokens of a step of each way at each context, its most nodes, and the prompts.

    One prompt at a time keeps few distributions in memory.
    """
    values: dict[Setup, Any] = {}
    nodes: dict[str, int] = {}
    prompts = np.repeat(np.arange(len(asked)), [len(group) for group in asked])
    for name, drafter, rule, depth in ways:
        of_way = []
        for seed, group in enumerate(filter(None, asked)):
            options: Any = {"sampling": sampling, "seed": seed}
            recordings = record(target, drafter, [group], depth, **options)
            (tokens,) = block_efficiency(recordings, [rule]).values.values()
            of_way.append(tokens)
            drafted = [sum(1 for _ in each.tree.nodes()) - 1 for each in recordings]
            nodes[name] = max(nodes.get(name, 0), *drafted)
        values[Setup(name, NODES, DEPTH)] = np.concatenate(of_way)
    return values, nodes, prompts


def compared(means: PairedMeans, nodes: dict[str, int], setting: str) -> list[dict[str, Any]]:
    """Return the mean of each way, and its paired difference to best-first trees."""
    rows = []
    for setup in means:
        less = means.difference(setup, Setup(BEST, NODES, DEPTH))
        rows.append(
            {
                "way": setup.rule,
                "nodes": nodes[setup.rule],
                **means[setup]._asdict(),
                "less_best_first": less._asdict(),
            }
        )
        print(f"{setting}, {setup.rule}: {means[setup]}; minus best-first {less}", flush=True)
    return rows


def main() -> None:
    """Run the benchmark from the command line."""
    arguments = options_of(command(__doc__))
    quick = arguments.quick
    prompts, tokens = (2, 3) if quick else (40, 64)
    results = {
        f"{name}, T {temperature}": measured(load(name), temperature, prompts, tokens)
        for name in (("small",) if quick else ("large", "small"))
        for temperature in ((1,) if quick else (1, 0.5))
    }
    if arguments.save:
        record_of = {"prompts": prompts, "nodes": NODES, "depth": DEPTH, "tokens": results}
        keep({**machine("numpy", "torch"), **record_of}, RESULTS)


if __name__ == "__main__":
    main()
