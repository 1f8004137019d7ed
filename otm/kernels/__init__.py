"""Verification of drafts on arrays and tensors: probabilities and uniforms in, decisions out.

`verify_probs` and `verify_logits` verify chains of drafts by a rule.  `verify_tree_probs` and
`verify_tree_logits` verify trees of drafts.  Each rule has a folder with one file for each backend.
The file `numpy` is the reference and is exact on arrays of fractions; `torch` and `triton` make the
same decisions, bit for bit.

- `chain`, `block`: rules for one chain of drafts;
- `k_seq`, `optimal`: rules that select among several drafts of one position;
- `multi_draft`: SpecTr's recursion, which applies a rule for one position along several chains;
- `walk_and_keep`: a rule that considers several whole chains;
- `tree`: trees of deterministic drafts, or of drafts sampled without replacement;
- `common`: code that several rules share.

A formula for one node is written once, in `numpy`, for arrays and tensors (`common.arrays`).  The
file `torch` adds the loop that verifies a whole batch.

`registry` chooses the backend that fits the arrays.  `checks` raises for invalid arguments.
`self_check` compares Triton with torch on a GPU.  `verify_chains` and `mass` are for authors of
kernels: docs/add-a-kernel.md shows how to use them.

No kernel waits for the device, so every call can be captured in a CUDA graph.  Kernels add only
integers, so decisions depend neither on the order of work nor on the other sequences of the batch.
With unchecked input every returned token still lies in the vocabulary, even if a row has NaN or
does not sum to one.

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
