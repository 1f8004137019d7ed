"""Instruments for testing selection rules and decoding loops, also those of other projects.

- `exact`: exact distributions in fractions, by enumeration, or by exploring every path of the code
  that decides with the symbolic uniforms of `symbolic`;
- `sequences`: exact distributions of the output of decoding loops, and of the target;
- `instances`: small named problems;
- `monte_carlo`: Monte Carlo checks under one budget of false alarms, with the limits of
  `statistics`;
- `otm.testing.strategies`: Hypothesis strategies for distributions, problems, uniforms, and pairs
  of models for blocks of drafts.  It is imported by its full name, and alone needs the extra
  `otm[testing]`.

Not here: audits of other people's verifiers (`otm.audit`).
"""

from otm.testing.exact import (
    Path,
    assert_lossless,
    exact_acceptance,
    exact_distribution,
    exact_distribution_of_select,
    exact_output_distribution,
    paths,
)
from otm.testing.instances import INSTANCES, instance
from otm.testing.monte_carlo import BUDGET, Budget, Control, Verdict
from otm.testing.sequences import (
    continued_distribution,
    output_distribution_of,
    sequence_distribution,
)
from otm.testing.symbolic import SymbolicUniform

__all__ = [
    "BUDGET",
    "INSTANCES",
    "Budget",
    "Control",
    "Path",
    "SymbolicUniform",
    "Verdict",
    "assert_lossless",
    "continued_distribution",
    "exact_acceptance",
    "exact_distribution",
    "exact_distribution_of_select",
    "exact_output_distribution",
    "instance",
    "output_distribution_of",
    "paths",
    "sequence_distribution",
]
