"""Verification of drafts on tensors: tensors and uniforms in, decisions out.

`verify` and, for several chains of drafts, `verify_drafts` choose a backend.  Each rule is there
three times, and all three make the same decisions, bit for bit; from logits Triton takes the
softmax in float32, the others in float64.

- `definition`, `block_definition`: chain and block verification as the papers write them, on NumPy
  arrays, exact on fractions;
- `reference`, `block_reference`: the same, batched, in torch on any device;
- `chain_triton`, `block_triton`: the same as Triton kernels, built from `laws_triton` and
  `draw_triton`;
- `k_seq_definition`, `levels_definition`: two rules for several drafts at one node, k-Seq and a
  nearly optimal one; `multi_draft_definition`: SpecTr's recursion over them; each of the three with
  `..._reference` in torch and `..._triton`, of which the last launches the kernels of
  `multi_draft_kernels_triton`.

Beside them:

- `workspace`: work memory that calls of the Triton kernels can share;
- `softmax`: the float32 softmax of the kernels, whose every bit is the same on every device;
- `sigmoid`: the inexact variant of Wagner et al. (2024), and its distance from the target;
- `baseline`: the usual step-by-step version in torch, to measure against;
- `checks`: what all of them refuse; `triton_`: Triton, where it is installed.
"""

from otm.kernels.dispatch import verify, verify_drafts
from otm.kernels.workspace import Workspace

__all__ = ["Workspace", "verify", "verify_drafts"]
