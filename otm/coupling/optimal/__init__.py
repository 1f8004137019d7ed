"""The optimal plan for i.i.d. drafts: slots and swaps (docs/theory/optimal-plan.md).

`plan` has the rule, `slots` the table that it stores, `reference` the same plan by definition.

Not here: its value and its cap (`otm.optimum`), and bins in kernels (`otm.kernels.optimal`).
"""

from otm.coupling.optimal.plan import OptimalPlan as OptimalPlan
