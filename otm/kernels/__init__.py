"""Verification of drafts on tensors: tensors and uniforms in, decisions out.

`verify_probs` and `verify_logits` verify the drafts of whole batches by a rule, on a backend.  The
folders `numpy`, `torch` and `triton` have each rule in a file of the same name, and all three make
the same decisions, bit for bit:

- `chain`, `block`: one chain of drafts;
- `grid_k_seq`, `grid_optimal`: two rules that select among several drafts of a position, and
  `multi_draft`: SpecTr's recursion over them along K chains;
- `grid_walk_and_keep`: K chains as a whole;
- `tree`: trees of drafts, certain ones or sampled without replacement, by `verify_tree_probs` and
  `verify_tree_logits`;
- `distributions`: from logits to probabilities, and to whole numbers that are added;
- `clocks`: the first of the clocks that drafts and output share, for `otm.coupled.decode_coupled`;
- `rows`: packed rows, and draft rows that list their tokens.

Formulas of one node are written once, in `numpy`, for arrays and tensors (`numpy.arrays`); a file
of `torch` has what differs, the walk through a whole batch.

`registry` lists them and chooses a backend, `checks` raises for arguments that they cannot take,
`self_check` compares Triton with torch on a GPU.  `verify_chains` and `mass` are for authors of
kernels: docs/add-a-kernel.md adds one with them.
"""

from typing import TYPE_CHECKING, Any

from otm.kernels.common.distributions.numpy import mass
from otm.kernels.multi_draft.verify import verify_chains
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.tree.verify import verify_tree_logits, verify_tree_probs
from otm.kernels.verified import Verified, VerifiedTree
from otm.kernels.verify import verify_logits, verify_probs
from otm.kernels.workspace import Workspace

if TYPE_CHECKING:
    from otm.kernels.self_check.run import SelfCheck, self_checks
    from otm.kernels.chain.sigmoid import sigmoid_distance, verify_sigmoid

__all__ = [
    "SelfCheck",
    "SparseDrafts",
    "Verified",
    "VerifiedTree",
    "Workspace",
    "mass",
    "self_checks",
    "sigmoid_distance",
    "verify_chains",
    "verify_logits",
    "verify_probs",
    "verify_sigmoid",
    "verify_tree_logits",
    "verify_tree_probs",
]


def __getattr__(name: str) -> Any:  # on use: it loads torch
    if name in {"SelfCheck", "self_checks"}:
        from otm.kernels.self_check import run as self_check

        return getattr(self_check, name)
    if name in {"sigmoid_distance", "verify_sigmoid"}:
        from otm.kernels.chain import sigmoid

        return getattr(sigmoid, name)
    raise AttributeError(f"module 'otm.kernels' has no attribute {name!r}")
