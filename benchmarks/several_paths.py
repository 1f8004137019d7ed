"""Compare rules for several paths of drafts with the exact optimum, on random pairs of models.

    python -m benchmarks.several_paths [--quick] [--save]

The pairs are those of the figure "block_optimum": two tokens, a Dirichlet(1) distribution after
each path, and a draft model that equals the target for λ = 0 and is unrelated to it for λ = 1.
The means are computed over all drafts.  "SpecTr-GBV's number" is what that paper states as the
optimum, and "depths" is the bound of Theorem 13.2.  All are divided by the optimum of
`otm.solve_block`.  With --save the results go to benchmarks/results/several_paths.json.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import otm
from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.beyond.block_optimum import Laws, all_drafts, between, random_laws
from otm._core.probs.sparse import SparseProbs
from otm.block_optimum.claim import spectr_gbv_claim
from otm.coupling import OptimalPlan
from otm.gain.tokens_given_drafts import OF_WHOLE_PATHS, TreeMeans, tokens_by_rule

RESULTS = Path(__file__).parent / "results" / "several_paths.json"
SIZES = ((2, 2), (3, 2), (2, 3))
"""Pairs of the number of paths K and the number of tokens L of a path."""

STRANGENESS = (0.25, 0.5, 1.0)
SEED = 0
RULES: Mapping[str, TreeMeans] = {
    "recursion, optimal plan": partial(tokens_by_rule, OptimalPlan),
    **{
        name: OF_WHOLE_PATHS[name]
        for name in ("traversal", "greedy multi-path", "walk and keep", "branch and keep")
    },
}
CLAIM, DEPTHS = "SpecTr-GBV's number", "depths"


def shares(target: Laws, draft: Laws, k: int, length: int) -> dict[str, float]:
    """Return the mean number of accepted drafts of each rule, divided by the optimum."""
    rows = {path: SparseProbs.from_dense(row) for path, row in target.items()}
    even = SparseProbs.from_dense(np.full(2, 0.5))

    def law(path: tuple[int, ...]) -> SparseProbs:
        return rows.get(path, even)

    found = dict.fromkeys(RULES, 0.0)
    for probability, root in all_drafts(draft, k, length):
        for name, means in RULES.items():
            found[name] += probability * (float(means(root, law, length)[length]) - 1)
    of_draft, of_target = draft.__getitem__, target.__getitem__
    best = otm.solve_block(of_draft, of_target, k, length)
    found[CLAIM] = float(spectr_gbv_claim(listed(draft), listed(target), k, length))
    found[DEPTHS] = float(best.bound)
    return {name: mean / float(best.accepted) for name, mean in found.items()}


def listed(laws: Laws) -> Callable[[tuple[int, ...]], list[float]]:
    """Return a function from a path to the list of probabilities after it."""
    return lambda path: laws[path].tolist()


def run(instances: int) -> list[dict[str, Any]]:
    """Compare the rules for each size and strangeness, and return a row for each rule."""
    rng = np.random.default_rng(SEED)
    pairs = [tuple(random_laws(rng, 3) for _ in range(2)) for _ in range(instances)]
    rows = []
    for k, length in SIZES:
        for strange in STRANGENESS:
            found = [
                shares(target, between(target, other, strange), k, length)
                for target, other in pairs
            ]
            for name in found[0]:
                values = np.array([share[name] for share in found])
                against = values - [share["walk and keep"] for share in found]
                row = {"K": k, "L": length, "strangeness": strange, "rule": name}
                row |= {"mean": values.mean(), "least": values.min(), "most": values.max()}
                row |= {"below walk and keep": int((against < -1e-9).sum())}
                rows.append({**row, "pairs": instances})
                print(f"{k} {length} {strange} {name:<24} {values.mean():.4f}", flush=True)
    return rows


def main() -> None:
    """Run from the command line."""
    arguments = options_of(command(__doc__))
    rows = run(2 if arguments.quick else 20)
    if arguments.save:
        keep({**machine("numpy", "scipy"), "rows": rows}, RESULTS)


if __name__ == "__main__":
    main()
