"""OTM: the mathematics and the practice of lossless speculative decoding.

`solve` finds the optimal acceptance probability for k drafts, an optimal transport plan and a
certificate; `alpha` the probability alone; `compare` the rules of the literature on a pair of
distributions; `solve_block` the optimum for several drafts of several tokens.  Selection rules are
in `otm.coupling`, other ways to draw drafts in `otm.drafts`.
"""

from typing import TYPE_CHECKING, Any

from otm._core.interval import Interval
from otm._core.sparse import SparseProbs
from otm.errors import OTMError
from otm.problem import Problem
from otm.solution import Solution
from otm.solve import alpha, solve

if TYPE_CHECKING:
    from otm.block.proof import BlockCertificate
    from otm.block.solution import BlockSolution
    from otm.block.solve import solve_block
    from otm.coupling.compare.comparison import ComparedRule, Comparison, compare
    from otm.proof import Certificate

    __version__: str

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


def __getattr__(name: str) -> Any:  # on use: `import otm` needs three of the rules
    if name == "Certificate":
        from otm.proof import Certificate

        return Certificate
    if name in {"BlockCertificate", "BlockSolution", "solve_block"}:
        from otm.block import proof, solution, solve

        modules = {"BlockCertificate": proof, "BlockSolution": solution, "solve_block": solve}
        return getattr(modules[name], name)
    if name in {"ComparedRule", "Comparison", "compare"}:
        from otm.coupling.compare import comparison

        return getattr(comparison, name)
    if name != "__version__":
        raise AttributeError(f"module 'otm' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("otm")
    except PackageNotFoundError:
        raise AttributeError("otm has a version once it is installed: pip install .") from None
