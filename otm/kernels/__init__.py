"""Verification of drafts on tensors: tensors and uniforms in, decisions out.

`verify_probs` and `verify_logits` verify chains of drafts by a rule, `verify_tree_probs` and
`verify_tree_logits` trees of drafts. Each rule has a folder, with a file for each backend, and so
have the recursion and what rules share: `numpy` is the definition, exact on arrays of fractions;
`torch` and `triton` decide bit for bit as it does.

- `chain`, `block`: one chain of drafts;
- `k_seq`, `optimal`: rules that select among several drafts of a position, and `multi_draft`:
  SpecTr's recursion over them along several chains;
- `walk_and_keep`: several chains as a whole;
- `tree`: trees of drafts, certain ones or sampled without replacement;
- `common`: what they share.

Formulas of one node are written once, in `numpy`, for arrays and tensors (`common.arrays`); a file
of `torch` has what differs, the walk through a whole batch.

`registry` chooses the backend that fits the arrays, `checks` raises for arguments that they cannot
take, `self_check` compares Triton with torch on a GPU.  `verify_chains` and
`mass` are for authors of kernels: docs/add-a-kernel.md adds one with them.

Nothing waits for the device, sums are sums of whole numbers, so decisions depend neither on the
order of work nor on the rest of the batch, and all can be captured in a CUDA graph.  With unchecked
input no token lies outside the vocabulary: NaN and rows that do not sum to one give some token.

Not here: rules for one token as transport plans (`otm.coupling`), decoding loops (`otm.decoding`).
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy
from otm.kernels.common.distributions.numpy import mass
from otm.kernels.multi_draft.verify import verify_chains
from otm.kernels.results import Verified, VerifiedTree
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.tree.verify import verify_tree_logits, verify_tree_probs
from otm.kernels.verify import verify_logits, verify_probs
from otm.kernels.workspace import Workspace

if TYPE_CHECKING:
    from otm.kernels.chain.sigmoid import sigmoid_distance, verify_sigmoid
    from otm.kernels.self_check.run import SelfCheck, self_checks
else:
    __getattr__, __dir__ = lazy(__name__)

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
