"""Optimal plans for i.i.d. drafts by slots and swaps (docs/theory/optimal-plan.md).

`plan` has the rule, `swaps` what bins exchange, `slots` the table that is stored, `reference` the
same plan by definition; `agreeing` is the rule of walk and keep, for a random number of drafts.

Not here: its value and its cap (`otm.optimum`), and bins in kernels (`otm.kernels.optimal`).
"""

from otm.coupling.optimal.plan import OptimalPlan as OptimalPlan
