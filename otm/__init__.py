"""OTM: the mathematics and the practice of lossless speculative decoding.

`solve` finds the optimal acceptance probability for k drafts, an optimal transport plan and a
certificate; `alpha` the probability alone.  Selection rules are in `otm.coupling`.
"""

from otm.errors import OTMError
from otm.problem import MembershipProblem
from otm.proof import Certificate
from otm.solution import Solution
from otm.solve import alpha, solve

__all__ = [
    "Certificate",
    "MembershipProblem",
    "OTMError",
    "Solution",
    "alpha",
    "solve",
]
