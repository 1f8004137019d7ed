"""
First steps
===========

Solve one problem, prove the answer, and select with the plan: the output is the target's.

Needs OTM and matplotlib.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import otm

# %%
# Say what a small draft model and a large target model give the next word.  ``solve`` finds the
# largest probability with which the output can be one of ``k`` words that the draft model proposes.

words = ["the", "a", "his", "every", "no"]
draft = [0.55, 0.25, 0.12, 0.05, 0.03]
target = [0.10, 0.15, 0.30, 0.25, 0.20]

solution = otm.solve(draft, target, k=3)
print(solution)

# %%
# The proof needs no trust in the solver: ``check`` raises unless it holds.

solution.certificate.check()
print("\nThe certificate holds.")

# %%
# More drafts are accepted more often, each by less than the one before.

print("\nMore drafts, more acceptance:")
counts = [1, 2, 3, 4, 6, 8]
for k, alpha in zip(counts, otm.alpha(draft, target, counts), strict=True):
    print(f"  k = {k}  alpha = {alpha:.6f}  {'#' * round(40 * alpha)}")

# %%
# One selection: three drafts in, one word of the target law out.

rng = np.random.default_rng(seed=1)
drafts = rng.choice(len(words), size=3, p=draft)
token, index = solution.plan.select(drafts, rng.random(solution.plan.uniforms_per_selection))
verdict = f"draft {index + 1} accepted" if index >= 0 else "no draft accepted"
print(f"\nDrafted {[words[x] for x in drafts]}, output '{words[token]}': {verdict}.")

# %%
# Many selections in one call: the output follows the target law, whatever was drafted.

drafts = rng.choice(len(words), size=(200_000, 3), p=draft)
tokens, indices = solution.plan.sample(drafts, rng)
frequency = np.bincount(tokens, minlength=len(words)) / len(tokens)
print("\nOver 200,000 selections:")
for word, wanted, seen in zip(words, target, frequency, strict=True):
    print(f"  {word:<6} target {wanted:.3f}  output {seen:.3f}")
print(f"  accepted {np.mean(indices >= 0):.3f}, alpha = {solution.alpha:.3f}")

# %%
# Where an output comes from: the drafts give most of it, and what the draft model proposes too
# seldom is filled up to the target when none of them is accepted.

accepted = np.bincount(tokens[indices >= 0], minlength=len(words)) / len(tokens)
places = np.arange(len(words))
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
axes.bar(places - 0.21, draft, 0.38, color="#BBBBBB", label="draft model")
axes.bar(places + 0.21, accepted, 0.38, color="#0072B2", label="output, an accepted draft")
axes.bar(
    places + 0.21,
    frequency - accepted,
    0.38,
    bottom=accepted,
    color="#D55E00",
    label="output, no draft accepted",
)
axes.hlines(target, places - 0.02, places + 0.44, color="black", label="target model")
axes.set_xticks(places, words)
axes.set_ylabel("probability")
axes.set_title(f"{len(tokens):,} selections, three drafts each", fontsize="medium")
axes.legend(frameon=False)
plt.show()

# %%
# The solution meets every bound that the SpecTr paper proves, some with equality.

print("\nWhat the SpecTr paper proves about alpha:")
for bound in sorted(solution.bounds, key=lambda bound: bound.value):
    print(f"  {bound.kind} {bound.value:.4f}  {bound.formula}  ({bound.source})")
