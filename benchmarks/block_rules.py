"""Compare tokens per step of each rule for several drafts with the bound for memoryless rules.

    python -m benchmarks.block_rules [--quick] [--save]

The contexts are those where steps of a decoding loop of the shipped pairs begin.  All rules,
numbers of drafts and lengths use the same drafts.  The mean given these drafts is computed; the
intervals are over prompts, and differences are paired.  "bound" is `otm.gain.efficiency_bound`.
With --save the results go to benchmarks/results/block_rules.json.
"""

from pathlib import Path
from typing import Any

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.shipped_pairs import prompts_of_text
from otm.decoding import ModelDrafter, spectr
from otm.gain import block_efficiency, contexts_from, efficiency_bound, record
from otm.models import load

RESULTS = Path(__file__).parent / "results" / "block_rules.json"
RULES = ("k-Seq", "optimal", "traversal", "greedy multi-path", "walk and keep", "branch and keep")
OTHERS = {
    "walk and keep": ("optimal", "traversal", "bound"),
    "branch and keep": ("optimal", "walk and keep", "bound"),
    "greedy multi-path": ("walk and keep",),
}
"""Rules, and the rules and the bound with which each of them is compared."""

KS, GAMMAS = (2, 4, 8), (5, 8)
PROMPT_LENGTH = 64
DRAFTS = ("large", "medium", "small")


def run(drafts: tuple[str, ...], prompts: int, tokens: int, every: int) -> dict[str, Any]:
    """Compare the rules for each draft model, and return the results by model."""
    target, given, results = load("target"), prompts_of_text(prompts, PROMPT_LENGTH), {}
    for name in drafts:
        draft = load(name)
        options: dict[str, Any] = {"k": 4, "gamma": GAMMAS[0], "rule": "k-Seq"}
        loop = spectr(target, draft, given, max_tokens=tokens, seed=0, **options)
        contexts = contexts_from(loop, every=every)
        drafter = ModelDrafter(draft, max(KS))
        recordings = record(target, drafter, contexts, max(GAMMAS), seed=1)
        means = block_efficiency(recordings, RULES, KS, GAMMAS)
        means |= efficiency_bound(recordings, KS, GAMMAS)
        print(f"draft model: {name}\n{means}", flush=True)
        rows = []
        for setup in means:
            row = {**setup._asdict(), **means[setup]._asdict()}
            less = means.difference(setup, ("optimal", setup.k, setup.gamma))
            rows.append(row | {"less_optimal": less._asdict()})
            for other in OTHERS.get(setup.rule, ()):
                found = means.difference(setup, (other, setup.k, setup.gamma))
                rows[-1]["less_" + other] = found._asdict()
                print(f"  {setup}: minus {other} {found}", flush=True)
        results[name] = {"contexts": len(recordings), "rows": rows}
    return results


def main() -> None:
    """Run from the command line."""
    arguments = options_of(command(__doc__))
    results = run(*((("small",), 2, 4, 1) if arguments.quick else (DRAFTS, 40, 64, 2)))
    if arguments.save:
        keep({**machine("numpy", "torch"), "drafts": results}, RESULTS)


if __name__ == "__main__":
    main()
