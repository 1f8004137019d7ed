"""
Compare selection rules
=======================

Acceptance, exactness and time of four rules, at the vocabulary size of a language model.

Needs OTM and matplotlib.
"""

from __future__ import annotations

import time

import matplotlib.pyplot as plt
import numpy as np

from otm import Problem
from otm.coupling import KSeq, MaximalCoupling, OptimalPlan, RecursiveRejection, TransportPlan

VOCABULARY = 50_000
DRAFTS = 8
SELECTIONS = 20_000

# %%
# The target probabilities are Zipfian.  The draft model has the same logits with added noise.

rng = np.random.default_rng(seed=0)
logits = -1.1 * np.log(np.arange(1, VOCABULARY + 1)) + rng.normal(0, 1, VOCABULARY)
target = np.exp(logits) / np.exp(logits).sum()
noisy = np.exp(logits + rng.normal(0, 1.5, VOCABULARY))
draft = noisy / noisy.sum()

# %%
# One rule takes a single draft; three rules take eight drafts.

several = Problem(draft, target, DRAFTS)
rules: dict[str, TransportPlan] = {
    "maximal coupling": MaximalCoupling(Problem(draft, target, 1)),
    "recursive rejection": RecursiveRejection(several),
    "k-Seq": KSeq(several),
    "OTM-k": OptimalPlan(several),
}

# %%
# ``acceptance`` and ``distance`` are exact up to rounding, ``observed`` is sampled.  The distance
# is half the L1 distance between output distribution and target.  It shows only rounding errors,
# since all four rules are lossless.

print(f"{VOCABULARY:,} tokens, {SELECTIONS:,} selections per rule")
print("rule                 drafts  acceptance  observed  distance  tables  selection")
for name, plan in rules.items():
    k = plan.problem.k
    drafts = rng.choice(VOCABULARY, size=(SELECTIONS, k), p=draft)
    start = time.perf_counter()
    # This first selection builds the rule's tables.
    distance = np.abs(plan.output_distribution() - target).sum() / 2
    built = time.perf_counter()
    selection = plan.sample(drafts, rng)
    used = time.perf_counter()
    observed = np.mean(selection.index >= 0)
    milliseconds = 1e3 * (built - start)
    microseconds = 1e6 * (used - built) / SELECTIONS
    print(
        f"{name:<20} {k:>6}  {plan.acceptance:>10.4f}  {observed:>8.3f}  {distance:>8.0e}  "
        f"{milliseconds:>3.0f} ms  {microseconds:>6.1f} µs"
    )

# %%
# With one draft all rules accept equally often.  With several drafts they differ.

counts = [1, 2, 4, 8, 16, 32]
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for name, rule, style in (
    ("OTM-k", OptimalPlan, "o-"),
    ("k-Seq", KSeq, "s--"),
    ("recursive rejection", RecursiveRejection, "^:"),
):
    problems = [Problem(draft, target, k) for k in counts]
    axes.plot(counts, [float(rule(problem).acceptance) for problem in problems], style, label=name)
axes.set_xscale("log", base=2)
axes.set_xticks(counts, [str(k) for k in counts])
axes.set_xlabel("number of drafts $k$")
axes.set_ylabel("acceptance probability")
axes.grid(color="#DDDDDD")
axes.legend(frameon=False)
plt.show()
