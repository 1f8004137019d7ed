"""OTM: the mathematics and the practice of lossless speculative decoding.

`solve` returns the optimal acceptance probability for k drafts, an optimal transport plan and a
certificate.  `alpha` returns the probability alone.  `compare` compares published rules on a pair
of distributions.  `solve_block` finds the optimum for several drafts of several tokens.
`otm.coupling` has the selection rules, and `otm.drafts` has drafts that are not i.i.d.
"""

from typing import TYPE_CHECKING

from otm._core.interval import Interval
from otm._core.lazy import lazy
from otm._core.probs.sparse import SparseProbs
from otm.errors import OTMError
from otm.problem import Problem
from otm.solve import alpha, solve

if TYPE_CHECKING:
    from otm import audit as audit
    from otm import coupled as coupled
    from otm import coupling as coupling
    from otm import decoding as decoding
    from otm import drafts as drafts
    from otm import gain as gain
    from otm import integrations as integrations
    from otm import kernels as kernels
    from otm import models as models
    from otm import optimum as optimum
    from otm import rules as rules
    from otm import testing as testing
    from otm._core.version import __version__ as __version__
    from otm.block_optimum.certificate_builder import BlockCertificate
    from otm.block_optimum.solution import BlockSolution
    from otm.block_optimum.solve import solve_block
    from otm.certificate_builder import Certificate
    from otm.coupling.compare.comparison import ComparedRule, Comparison, compare
    from otm.solution import Solution
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "BlockCertificate",
    "BlockSolution",
    "Certificate",
    "ComparedRule",
    "Comparison",
    "Interval",
    "OTMError",
    "Problem",
    "Solution",
    "SparseProbs",
    "alpha",
    "compare",
    "solve",
    "solve_block",
]
