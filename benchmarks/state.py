"""Compare tokens per step over whole texts: block verification, and greedy block verification.

    python -m benchmarks.state [--quick] [--save]

The pairs are the shipped target with each of two draft models, and the constant distributions
(2/3, 1/3) and (1/3, 2/3).  Greedy block verification keeps its state between steps.  Both rules use
the same prompts and seeds.  Intervals are over prompts.

With --save the results go to benchmarks/results/state.json.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.shipped_pairs import prompts_of_text
from otm.decoding import speculative
from otm.gain import clustered_mean
from otm.models import LanguageModel, TableModel, load

RESULTS = Path(__file__).parent / "results" / "state.json"
RULES = ("block", "greedy block")


def measured(
    target: LanguageModel, draft: LanguageModel, prompts: Any, tokens: int, gamma: int
) -> dict[str, Any]:
    """Measure tokens per step of each text under both rules, and the difference."""
    per_text = {}
    for rule in RULES:
        options: dict[str, Any] = {"gamma": gamma, "max_tokens": tokens, "seed": 0}
        made = speculative(target, draft, prompts, rule=rule, **options)
        steps = [len(made.steps_of(b)) for b in range(len(prompts))]
        per_text[rule] = np.array([tokens / n for n in steps])
    places = np.arange(len(prompts))
    less = per_text["greedy block"] - per_text["block"]
    found = {rule: clustered_mean(values, places) for rule, values in per_text.items()}
    return {
        name: value._asdict()
        for name, value in (found | {"less": clustered_mean(less, places)}).items()
    }


def main() -> None:
    """Run the benchmark from the command line."""
    arguments = options_of(command(__doc__))
    prompts, tokens = (2, 3) if arguments.quick else (40, 128)
    constant = TableModel({(): [1 / 3, 2 / 3]}), TableModel({(): [2 / 3, 1 / 3]})
    pairs: dict[str, tuple[LanguageModel, LanguageModel, Any]] = {
        "(2/3, 1/3) for (1/3, 2/3)": (*constant, [[0]] * prompts),
        "large draft": (load("target"), load("large"), prompts_of_text(prompts)),
        "small draft": (load("target"), load("small"), prompts_of_text(prompts)),
    }
    results = []
    for name, (target, draft, given) in pairs.items():
        for gamma in (2, 4, 8):
            row = measured(target, draft, given, tokens, gamma)
            results.append({"pair": name, "gamma": gamma, **row})
            said = (
                f"{key} {value['mean']:.3f} ± {value['high'] - value['mean']:.3f}"
                for key, value in row.items()
            )
            print(f"{name}, γ = {gamma}:", *said, flush=True)
    if arguments.save:
        keep(
            {**machine("numpy", "torch"), "prompts": prompts, "tokens": tokens, "results": results},
            RESULTS,
        )


if __name__ == "__main__":
    main()
