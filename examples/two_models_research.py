"""
A researcher's day: two models, every rule
==========================================

From two Hugging Face models to a picture of rule × k, and to a bound for all memoryless rules.

Needs OTM with its extras huggingface and figures.
"""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from otm.coupling import KSeq, TransportPlan
from otm.decoding import ModelDrafter, spectr
from otm.gain import (
    block_efficiency,
    contexts_from,
    efficiency_bound,
    first_step_acceptance,
    from_models,
    record,
)
from otm.models import encode, load, save_huggingface
from otm.problem import Problem

# %%
# You need two folders that ``from_pretrained`` can read, and a text.  This example uses the models
# of OTM; use your own instead.  Paragraphs of the text are the prompts, and intervals are clustered
# by prompt.

torch.set_num_threads(1)  # faster for such small models
folder = Path(tempfile.mkdtemp())
for name in ("target", "small"):
    save_huggingface(load(name), folder / name)
unseen = (files("otm.models") / "data" / "king_james_bible_excerpt.txt").read_text()[-24_000:]
paragraphs = [unseen[start : start + 32] for start in range(0, 24_000, 3_000)]
(folder / "text.txt").write_text("\n\n".join(" ".join(each.split()) for each in paragraphs))

# %%
# **Rule × k.**  At every position, the report computes the distributions of both models, and from
# them the exact acceptance probability of every rule.  Your own rule is a function from a problem
# to a plan.


def half_k_seq(problem: Problem) -> TransportPlan:
    """Build k-Seq for half of the drafts."""
    return KSeq(problem.with_k(-(-problem.k // 2)))


rules = ["optimal", "k-Seq", "recursive rejection"]
positions = from_models(folder / "small", folder / "target", folder / "text.txt")
means = first_step_acceptance(positions, rules, ks=[1, 2, 4, 8])
own = first_step_acceptance(positions, {"every second draft": half_k_seq}, ks=[1, 2, 4, 8])
table = means | own
print(table)

# %%

axes = table.plot()
plt.show()

# %%
# All rules use the same positions, so a difference has a smaller error than the means.

gain = table.difference(("optimal", 8, 1), ("k-Seq", 8, 1))
print(f"optimal − k-Seq at k = 8: {gain}")
table.to_csv(folder / "acceptance.csv")

# %%
# **Whole steps.**  For drafts of several tokens, tokens per step are computed from recorded drafts,
# as means over the verifier's coins.  ``efficiency_bound`` is an upper bound for all memoryless
# lossless verifiers with such drafts.

target, draft = load("target"), load("small")
sample = spectr(
    target, draft, [encode(each) for each in paragraphs], k=4, gamma=4, max_tokens=9, seed=0
)
contexts = contexts_from(sample)
recordings = record(target, ModelDrafter(draft, 4), contexts, depth=4, seed=0)
ks, gammas = [1, 2, 4], [4]
steps = block_efficiency(recordings, ["k-Seq", "optimal", "walk and keep"], ks, gammas)
steps = steps | efficiency_bound(recordings, ks, gammas)
print(steps)

# %%

axes = steps.plot()
plt.show()

# %%
# **The decision.**  What share of the bound does the rule reach?

best, bound = steps["walk and keep", 4, 4], steps["bound", 4, 4]
print(f"walk and keep: {best} tokens per step; bound for memoryless lossless verifiers: {bound}")
