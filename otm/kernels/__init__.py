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

`registry` lists them and chooses a backend, `checks` raises for arguments that they cannot take,
`self_check` compares Triton with torch on a GPU.  docs/add-a-kernel.md says how to add one.
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.tree.verify import verify_tree_logits, verify_tree_probs
from otm.kernels.verified import Verified, VerifiedTree
from otm.kernels.verify import verify_logits, verify_probs
from otm.kernels.workspace import Workspace

if TYPE_CHECKING:
    from otm.kernels.self_check.run import SelfCheck, self_checks
    from otm.kernels.chain.sigmoid import sigmoid_distance, verify_sigmoid
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "SelfCheck",
    "SparseDrafts",
    "Verified",
    "VerifiedTree",
    "Workspace",
    "self_checks",
    "sigmoid_distance",
    "verify_logits",
    "verify_probs",
    "verify_sigmoid",
    "verify_tree_logits",
    "verify_tree_probs",
]
