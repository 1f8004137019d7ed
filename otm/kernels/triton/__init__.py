"""The rules as Triton kernels: the decisions of `otm.kernels.torch`, bit for bit, in few launches.

A module can be imported without Triton; to launch its kernels then raises `MissingDependencyError`.
Nothing waits for the device, nothing depends on the order in which programs run or on the rest of
the batch, and all can be captured in a CUDA graph.  From logits the softmax is that of
`otm.kernels.common.softmax`, in float32, taken on the way.

`one_chain` and `multi_draft` have the kernels and launch them; `chain`, `block`, `grid_k_seq` and
`grid_optimal` name what each rule takes of them, and the files ending in `_steps` are its steps
inside them.  `distributions` makes probabilities of the entries of a row, `draw` tokens of masses;
`runtime` is what all need of Triton.
"""

from otm.kernels import common as torch  # noqa: F401  # says so if torch is missing
