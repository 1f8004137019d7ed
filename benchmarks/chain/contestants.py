"""Table of the contestants.  Other projects are used if they are installed, never copied.

A contestant draws its own random numbers inside the measured call, as in normal use.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmarks.chain import clocks
from benchmarks.chain.inputs import Inputs
from figures.wagner import baseline
from otm.kernels import verify_logits, verify_probs, verify_sigmoid
from otm.kernels.common.runtime import compiles

PROBABILITIES = "probabilities -> tokens"
LOGITS = "logits -> tokens"
ONE_SEQUENCE = "logits -> tokens, one sequence"

Verify = Callable[[Any], tuple[Tensor, Tensor]]
"""Maps the result of `prepare` to tokens [B, γ + 1], padded with −1, and accepted counts [B]."""


class Entry(NamedTuple):
    """An installed contestant.

    Attributes
    ----------
    verify : callable
        The measured call.
    prepare : callable
        Converts `Inputs` to the contestant's form, outside the measured call.
    """

    verify: Verify
    prepare: Callable[[Inputs], Any] = lambda inputs: inputs


KERNELS = "triton"
"""Backend of the contestants that are kernels."""

Loader = Callable[[torch.device], Entry]
"""Imports a contestant for a device, or raises if it is absent."""


class Contestant(NamedTuple):
    """A row of the table of contestants.

    Attributes
    ----------
    name : str
        Name in reports.
    tiers : tuple of str
        Tiers in which it can be measured.
    load : callable
        Imports it for a device, or raises if it is absent.
    plain_torch : bool
        Whether it consists of torch's operations, so that their traffic can be counted.
    rule : str
        "chain" or "block" names the joint distribution of output and length.  "inexact" means that
        the output does not claim to have the target's distribution.
    """

    name: str
    tiers: tuple[str, ...]
    load: Loader
    plain_torch: bool
    rule: str = "chain"


def of_torch(verify: Callable[..., Any], from_logits: Callable[..., Any]) -> Loader:
    """Return a loader of plain torch verifiers, for probabilities and for logits."""

    def run(inputs: Inputs) -> tuple[Tensor, Tensor]:
        batch, gamma = inputs.tokens.shape
        uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64, device=inputs.tokens.device)
        function = from_logits if inputs.logits else verify
        return function(inputs.target, inputs.draft, inputs.tokens, uniforms)[:2]

    return lambda device: Entry(run)


reference = of_torch(
    partial(verify_probs, backend="torch", validate=False),
    partial(verify_logits, backend="torch", validate=False),
)
"""Loader of chain verification in torch."""


def of_triton(rule: str) -> Loader:
    """Return a loader of Triton kernels for a one-chain rule, or for "sigmoid" from logits only."""

    def load(device: torch.device) -> Entry:
        _need_cuda(device)
        if not compiles():
            raise RuntimeError(
                "Triton is not installed, or its interpreter is on (TRITON_INTERPRET=1)"
            )
        temperatures: dict[int, Tensor] = {}  # a tensor by batch size, made once, like in a server

        def run(inputs: Inputs) -> tuple[Tensor, Tensor]:
            batch, gamma = inputs.tokens.shape
            uniforms = torch.rand(batch, gamma + 2, dtype=torch.float64, device=device)
            arguments = (inputs.target, inputs.draft, inputs.tokens, uniforms)
            options: dict[str, Any] = {"backend": KERNELS, "validate": False}
            if rule == "sigmoid":
                return verify_sigmoid(*arguments, **options)[:2]
            if not inputs.logits:
                return verify_probs(*arguments, rule=rule, **options)[:2]
            return verify_logits(*arguments, temperature=temperatures[batch], rule=rule, **options)[
                :2
            ]

        def prepare(inputs: Inputs) -> Inputs:
            batch = len(inputs.tokens)
            temperatures.setdefault(batch, torch.ones(batch, device=device))
            return inputs

        return Entry(run, prepare)

    return load


def of_transformers(device: torch.device) -> Entry:
    """Load Hugging Face's assisted generation, which verifies one sequence at a time."""
    from transformers.generation.utils import _speculative_sampling

    older = "is_done_candidate" in inspect.signature(_speculative_sampling).parameters

    def verify(inputs: Inputs) -> tuple[Tensor, Tensor]:
        gamma = inputs.tokens.shape[1]
        rest = (False,) if older else ()
        tokens, accepted = _speculative_sampling(
            inputs.tokens, inputs.draft, gamma, inputs.target, *rest
        )
        return pad(tokens, (0, gamma + 1 - tokens.shape[1]), value=-1), accepted.reshape(1)

    return Entry(verify)


def of_flashinfer(device: torch.device) -> Entry:
    """Load FlashInfer's kernel; its first use compiles it, which takes minutes."""
    from flashinfer.sampling import chain_speculative_sampling

    _need_cuda(device)

    def verify(inputs: Inputs) -> tuple[Tensor, Tensor]:
        tokens = chain_speculative_sampling(inputs.draft, inputs.tokens, inputs.target)[0]
        return tokens, (tokens >= 0).sum(1) - 1

    return Entry(verify, lambda inputs: replace(inputs, tokens=inputs.tokens.int()))


def of_vllm(device: torch.device) -> Entry:
    """Load the rejection sampler of vLLM V1; draft softmax and bonus row are precomputed."""
    from vllm.v1.sample.rejection_sampler import rejection_sample

    _need_cuda(device)
    takes_logits = "target_logits" in inspect.signature(rejection_sample).parameters

    def prepare(inputs: Inputs) -> SimpleNamespace:
        batch, gamma = inputs.tokens.shape
        size = inputs.target.shape[2]
        target = inputs.target.float()
        ends = torch.arange(gamma, (batch + 1) * gamma, gamma, dtype=torch.int32, device=device)
        return SimpleNamespace(
            shape=(batch, gamma),
            tokens=inputs.tokens.int().reshape(-1),
            ends=ends[:batch],
            target=target[:, :gamma].reshape(-1, size).contiguous(),
            bonus=target[:, gamma].contiguous(),
            draft=inputs.draft.float().softmax(-1).reshape(-1, size).contiguous(),
            metadata=SimpleNamespace(
                all_greedy=False,
                all_random=True,
                temperature=torch.ones(batch, device=device),
                generators={},
                top_k=None,
                top_p=None,
            ),
        )

    def verify(given: SimpleNamespace) -> tuple[Tensor, Tensor]:
        batch, gamma = given.shape
        probs = given.bonus.softmax(-1)
        bonus = (probs / torch.empty_like(probs).exponential_()).argmax(-1, keepdim=True).int()
        tokens = rejection_sample(
            given.tokens,
            [gamma] * batch,
            gamma,
            given.ends,
            given.draft,
            given.target.clone() if takes_logits else given.target.softmax(-1),
            bonus,
            given.metadata,
        )
        return tokens, (tokens >= 0).sum(1) - 1

    return Entry(verify, prepare)


def _need_cuda(device: torch.device) -> None:
    if not clocks.on_gpu(device):
        raise RuntimeError("runs on CUDA only")


CONTESTANTS = (
    Contestant("otm reference", (PROBABILITIES, LOGITS, ONE_SEQUENCE), reference, plain_torch=True),
    Contestant(
        "otm baseline",
        (PROBABILITIES, LOGITS, ONE_SEQUENCE),
        of_torch(baseline.verify, baseline.verify_from_logits),
        plain_torch=True,
    ),
    Contestant(
        "otm triton",
        (PROBABILITIES, LOGITS, ONE_SEQUENCE),
        of_triton("chain"),
        plain_torch=False,
    ),
    Contestant(
        "otm block",
        (PROBABILITIES, LOGITS),
        of_triton("block"),
        plain_torch=False,
        rule="block",
    ),
    Contestant(
        "otm sigmoid",
        (LOGITS,),
        of_triton("sigmoid"),
        plain_torch=False,
        rule="inexact",
    ),
    Contestant("flashinfer", (PROBABILITIES,), of_flashinfer, plain_torch=False),
    Contestant("vllm v1", (LOGITS, ONE_SEQUENCE), of_vllm, plain_torch=False),
    Contestant("transformers", (ONE_SEQUENCE,), of_transformers, plain_torch=True),
)
"""All contestants, in the order of the report."""
