"""Tools for testing selection rules and decoding loops, of this project or another one.

- `exact` computes exact distributions in fractions: it enumerates drafts, or follows every path
  through a function of the symbolic uniforms of `symbolic`.
- `sequences` computes exact distributions of the outputs of decoding loops and of target models.
- `instances` has small named problems.
- `monte_carlo` has Monte Carlo checks that share a budget of false alarms; `statistics` has their
  test statistics and limits.
- `otm.testing.strategies` has Hypothesis strategies for distributions, problems, uniforms and pairs
  of models.  Import `otm.testing.strategies` by its full name; only this module needs the extra
  `otm[testing]`.

Audits of third-party verifiers are in `otm.audit`.
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
