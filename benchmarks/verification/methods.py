"""Three methods to verify one chain of drafts from logits, and the models to measure them on.

"baseline" takes the steps of assisted generation in transformers, each a tensor of its own.
"exact" has the same output distribution, by Triton's kernels on a GPU and by their plain version in
torch elsewhere.  "sigmoid" is the variant of Wagner et al. (2024), section 3.2.2, which has another
distribution.  Its plain version exists to be checked against: its time is not that of the fastest
code for a CPU.
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
    """A model of the paper, as far as it matters for verification.

    Attributes
    ----------
    name : str
        The family.
    vocabulary : int
        Number of tokens.
    length : int
        Most tokens of a text in the paper: 256 for speech, 100 for summaries.
    scale : float
        The sigmoid's scales are ± this: 10^3 for speech, 10^4 for summaries.
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
    """Verify one chain as assisted generation in transformers does.

    Softmax of all rows, the ratios, and of one row the residual, normalised.  As there, the host
    waits for the number of accepted drafts.
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
    """Return the variant with sigmoids: by Triton on a GPU, in torch elsewhere."""

    def verify(inputs: Inputs) -> tuple[Tensor, Tensor]:
        batch, gamma = inputs.tokens.shape
        uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64, device=device)
        arguments = (inputs.target, inputs.draft, inputs.tokens, uniforms)
        return verify_sigmoid(*arguments, (-scale, scale), validate=False)[:2]

    return Entry(verify)


def window(pool: Inputs, start: int, gamma: int) -> Inputs:
    """Take a chain of γ drafts from a long one; nothing is copied."""
    return Inputs(
        pool.target[:, start : start + gamma + 1],
        pool.draft[:, start : start + gamma],
        pool.tokens[:, start : start + gamma],
        logits=True,
    )


def bytes_needed(method: str, chain: Inputs, accepted: Tensor) -> int:
    """Bytes that a method cannot do without.

    With softmax all rows once and one pair again; with sigmoids only the rows that the last token
    is drawn from, the target's and after a rejection the draft's.
    """
    if method != SIGMOID:
        return chain.bytes_to_read(accepted)
    rejected = int((accepted < chain.tokens.shape[1]).sum())
    return (1 + rejected) * chain.target.shape[2] * chain.target.element_size()
