"""
First steps
===========

Solve one problem, check the proof, and select tokens with the optimal plan.

Needs OTM and matplotlib.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import otm

# %%
# A small draft model and a large target model give probabilities for the next word.  ``solve``
# finds the largest probability with which the output can be one of ``k`` words that the draft model
# proposes.

words = ["the", "a", "his", "every", "no"]
draft = [0.55, 0.25, 0.12, 0.05, 0.03]
target = [0.10, 0.15, 0.30, 0.25, 0.20]

solution = otm.solve(draft, target, k=3)
print(solution)

# %%
# ``check`` verifies the proof without trusting the solver.  It raises an error if the proof fails.

solution.certificate.check()
print("\nThe certificate holds.")

# %%
# More drafts raise the acceptance; each further draft adds less.

print("\nMore drafts, more acceptance:")
counts = [1, 2, 3, 4, 6, 8]
for k, alpha in zip(counts, otm.alpha(draft, target, counts), strict=True):
    print(f"  k = {k}  alpha = {alpha:.6f}  {'#' * round(40 * alpha)}")

# %%
# One selection: three drafts in, one word out.

rng = np.random.default_rng(seed=1)
drafts = rng.choice(len(words), size=3, p=draft)
token, index = solution.plan.select(drafts, rng.random(solution.plan.uniforms_per_selection))
verdict = f"draft {index + 1} accepted" if index >= 0 else "no draft accepted"
print(f"\nDrafted {[words[x] for x in drafts]}, output '{words[token]}': {verdict}.")

# %%
# Many selections in one call: the output frequencies match the target.

drafts = rng.choice(len(words), size=(200_000, 3), p=draft)
tokens, indices = solution.plan.sample(drafts, rng)
frequency = np.bincount(tokens, minlength=len(words)) / len(tokens)
print("\nOver 200,000 selections:")
for word, probability, share in zip(words, target, frequency, strict=True):
    print(f"  {word:<6} target {probability:.3f}  output {share:.3f}")
print(f"  accepted {np.mean(indices >= 0):.3f}, alpha = {solution.alpha:.3f}")

# %%
# The plot shows where the output comes from.  Most words are accepted drafts.  If no draft is
# accepted, the plan draws a word that the draft model proposes too rarely.

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
# The optimum satisfies every bound that the SpecTr paper proves, some of them with equality.

print("\nWhat the SpecTr paper proves about alpha:")
for bound in sorted(solution.bounds, key=lambda bound: bound.value):
    print(f"  {bound.kind} {bound.value:.4f}  {bound.formula}  ({bound.source})")
