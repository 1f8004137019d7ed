"""OTM: the mathematics and the practice of lossless speculative decoding.

`solve` finds the optimal acceptance probability for k drafts, an optimal transport plan and a
certificate; `alpha` the probability alone.  Selection rules are in `otm.coupling`.
"""

from typing import TYPE_CHECKING, Any

from otm.errors import OTMError
from otm.problem import MembershipProblem
from otm.solution import Solution
from otm.solve import alpha, solve

if TYPE_CHECKING:
    from otm.proof import Certificate

__all__ = [
    "Certificate",
    "MembershipProblem",
    "OTMError",
    "Solution",
    "alpha",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name == "Certificate":  # on use: `import otm` stays light
        from otm.proof import Certificate

        return Certificate
    raise AttributeError(f"module 'otm' has no attribute {name!r}")
