"""Optimal plans for i.i.d. drafts, by slots and swaps (docs/theory/optimal-plan.md).

`plan` has the rule, `swaps` has the mass that bins exchange, and `slots` has the stored table.
`reference` has a plain version of the same plan.  `agreeing` has the rule of walk and keep, for a
random number of drafts.

`otm.optimum` has the optimal value and the cap; `otm.kernels.optimal` has the bins of the kernels.
"""

from otm.coupling.optimal.plan import OptimalPlan as OptimalPlan
