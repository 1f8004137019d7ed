"""
Explicit plans
==============

The optimal plans of SpecTr's appendix B.1, checked exactly in fractions.

Needs OTM and matplotlib.
"""

from __future__ import annotations

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm import Problem
from otm.coupling import AcceptanceRule, TablePlan

# %%
# A rule is a function from the drafts to the acceptance probability of each draft.  The first rule
# is for distributions on two tokens.  The second rule is for two uniform distributions, where the
# support of the target is a subset of the support of the draft model.


def bernoulli_rule(p: Fraction, q: Fraction, k: int) -> AcceptanceRule:
    """Return the plan for Ber(p) and Ber(q), which rejects only if all drafts are equal."""
    ones, zeros = p**k, (1 - p) ** k  # probabilities of all drafts 1 and of all drafts 0
    ones_kept, zeros_kept = min(ones, q), min(zeros, 1 - q)

    def rule(drafts: tuple[int, ...]) -> dict[int, Fraction]:
        if drafts[0] == 1:  # drafts are in ascending order, so all are 1
            return {1: ones_kept / ones}
        if drafts[-1] == 0:
            return {0: zeros_kept / zeros}
        # Mixed drafts give the remaining 1s, because rejected all-0 drafts also give 1s.
        share = (q - ones_kept - (zeros - zeros_kept)) / (1 - ones - zeros)
        return {0: 1 - share, 1: share}

    return rule


def uniform_rule(support: int) -> AcceptanceRule:
    """Return the plan for U(d) and U(support), which accepts a random draft in the support."""

    def rule(drafts: tuple[int, ...]) -> dict[int, Fraction]:
        inside = {x for x in drafts if x < support}
        return {x: Fraction(1, len(inside)) for x in inside}

    return rule


# %%
# ``TablePlan`` applies a rule to all multisets of drafts and computes the exact output
# distribution.  ``otm.solve`` finds the optimum without the rule.


def show(problem: Problem, rule: AcceptanceRule, formula: Fraction) -> Fraction:
    plan = TablePlan.from_rule(problem, rule)
    alpha = otm.solve(problem.draft, problem.target, problem.k).alpha
    print(
        f"  k = {problem.k}  acceptance {plan.acceptance!s:<11}"
        f" = formula: {plan.acceptance == formula}, = optimum: {plan.acceptance == alpha},"
        f" output = q: {(plan.output_distribution() == problem.target).all()}"
    )
    return Fraction(plan.acceptance)


# %%
# Two tokens: a draft is 1 with probability p, and the output must be 1 with probability q.

p = Fraction(1, 4)
counts = (1, 2, 4, 8)
accepted: dict[tuple[int, Fraction], Fraction] = {}
for q in (Fraction(1, 10), Fraction(1, 4), Fraction(3, 4), Fraction(1)):
    print(f"p = Ber({p}), q = Ber({q})")
    for k in counts:
        problem = Problem([1 - p, p], [1 - q, q], k)
        equation_10 = min(q, 1 - (1 - p) ** k) + min(1 - q, 1 - p**k)
        accepted[k, q] = show(problem, bernoulli_rule(p, q, k), equation_10)

# %%
# The lines show the optimum for every q, and the points show the plans above, which attain it.

grid = np.linspace(0, 1, 201)
optima = np.array([otm.alpha([1 - p, p], [1 - q, q], list(counts)) for q in grid])
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for k, optimum, marker in zip(counts, optima.T, "os^D", strict=True):
    (line,) = axes.plot(grid, optimum, label=f"$k$ = {k}")
    points = {float(q): float(alpha) for (drafts, q), alpha in accepted.items() if drafts == k}
    axes.plot(list(points), list(points.values()), marker, color=line.get_color())
axes.axvline(float(p), color="#888888", linewidth=0.8, linestyle=":")
axes.annotate("q = p", (float(p), 0.3), xytext=(4, 0), textcoords="offset points", color="#666666")
axes.set_xlabel("$q$, for $p$ = 1/4")
axes.set_ylabel("acceptance probability")
axes.grid(color="#DDDDDD")
axes.legend(frameon=False, loc="lower left")
plt.show()

# %%
# Uniform distributions: drafts from d tokens, the output from the first d/r of them.

d = 12
for r in (2, 3, 6):
    print(f"p = U({d}), q = U({d // r})")
    for k in (1, 2, 3):
        target = [Fraction(r, d)] * (d // r) + [Fraction(0)] * (d - d // r)
        problem = Problem([Fraction(1, d)] * d, target, k)
        show(problem, uniform_rule(d // r), 1 - (1 - Fraction(1, r)) ** k)
