"""Three methods to verify one chain of drafts from logits, and the models for measuring them.

"baseline" takes the steps of assisted generation in transformers, each with a new tensor.  "exact"
has the same output distribution; it runs Triton's kernels on a GPU, and otherwise their plain torch
version.  "sigmoid" is the variant of Wagner et al. (2024), section 3.2.2, which has another
distribution.  Its plain version serves as a reference for checks: its time is not that of the
fastest CPU code.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.chain.contestants import Entry, of_triton, reference
from benchmarks.chain.inputs import Inputs
from otm.kernels import verify_sigmoid
from otm.kernels.common.distributions.torch import join_output

BASELINE, EXACT, SIGMOID = METHODS = ("baseline", "exact", "sigmoid")


class Model(NamedTuple):
    """The properties of a model of the paper that matter for verification.

    Attributes
    ----------
    name : str
        Name of the model family.
    vocabulary : int
        Number of tokens.
    length : int
        Maximum number of tokens of a text in the paper: 256 for speech, 100 for summaries.
    scale : float
        The sigmoid's scales are ± `scale`: 10^3 for speech, 10^4 for summaries.
    """

    name: str
    vocabulary: int
    length: int
    scale: float


MODELS = (
    Model("Whisper", 51_864, 256, 1e3),
    Model("Llama2", 32_000, 100, 1e4),
    Model("Qwen", 151_936, 100, 1e4),
    Model("Gemma", 256_000, 100, 1e4),
)


def entries(device: torch.device, scale: float) -> dict[str, Entry]:
    """Return the three methods on a device."""
    exact = (of_triton("chain") if device.type == "cuda" else reference)(device)
    return {BASELINE: Entry(step_by_step), EXACT: exact, SIGMOID: by_sigmoids(device, scale)}


def step_by_step(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Verify one chain like assisted generation in transformers.

    The steps are a softmax of all rows, the ratios, and the normalised residual of one row.  As in
    transformers, the host waits for the number of accepted drafts.
    """
    gamma = inputs.tokens.shape[1]
    target, draft = inputs.target.softmax(-1), inputs.draft.softmax(-1)
    column = inputs.tokens[..., None]
    ratio = target[:, :gamma].gather(2, column) / draft.gather(2, column)
    passed = torch.rand_like(ratio) < ratio
    accepted = passed[..., 0].cumprod(1).sum(1)
    count = int(accepted)
    law = target[:, count]
    if count < gamma:
        left = (law - draft[:, count]).clamp(min=0)
        law = left / left.sum()
    token = torch.multinomial(law, 1)[:, 0]
    return join_output(inputs.tokens, accepted, token), accepted


def by_sigmoids(device: torch.device, scale: float) -> Entry:
    """Return the sigmoid variant, in Triton on a GPU and otherwise in torch."""

    def verify(inputs: Inputs) -> tuple[Tensor, Tensor]:
        batch, gamma = inputs.tokens.shape
        uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64, device=device)
        arguments = (inputs.target, inputs.draft, inputs.tokens, uniforms)
        return verify_sigmoid(*arguments, (-scale, scale), validate=False)[:2]

    return Entry(verify)


def window(pool: Inputs, start: int, gamma: int) -> Inputs:
    """Return a view of γ drafts of a long chain, without a copy."""
    return Inputs(
        pool.target[:, start : start + gamma + 1],
        pool.draft[:, start : start + gamma],
        pool.tokens[:, start : start + gamma],
        logits=True,
    )


def bytes_needed(method: str, chain: Inputs, accepted: Tensor) -> int:
    """Count the bytes that a method must read.

    A softmax method reads all rows once, and one pair of rows again.  The sigmoid method reads only
    the rows of the last token: the target row and, after a rejection, the draft row.
    """
    if method != SIGMOID:
        return chain.bytes_to_read(accepted)
    rejected = int((accepted < chain.tokens.shape[1]).sum())
    return (1 + rejected) * chain.target.shape[2] * chain.target.element_size()
