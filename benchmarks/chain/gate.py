"""Check of output distributions: a verifier is timed only if it follows the target.

The check uses two drafts over four tokens, with distributions that rank the tokens in opposite
order.  The joint distribution of the output and its length is known in closed form.  The statistic
G tests the draws; its limit is valid for any number of draws.  With the same number of draws, the
check must reject a verifier with one mistake.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.chain.contestants import Entry, reference
from benchmarks.chain.inputs import Inputs
from otm.testing.statistics import g_limit, g_statistic

LEVEL = 1e-8
"""Probability that a check rejects a correct contestant."""

SIZE, GAMMA = 4, 2
DRAFT = np.array([[8, 4, 2, 2], [2, 2, 4, 8]]) / 16
TARGET = np.array([[0, 2, 4, 10], [9, 4, 2, 1], [1, 2, 3, 10]]) / 16


class Verdict(NamedTuple):
    """Result of a check.

    Attributes
    ----------
    passed : bool
        Whether the statistic is within the limit.
    draws : int
        Number of verified blocks.
    statistic, limit : float
        G of the draws, and the limit that a correct G exceeds with probability at most `LEVEL`.
    """

    passed: bool
    draws: int
    statistic: float
    limit: float


def joint_law(bonus: np.ndarray) -> np.ndarray:
    """Return the output distribution by token code, for a distribution of the bonus token."""
    accepted = np.minimum(DRAFT, TARGET[:GAMMA])
    residual = TARGET[:GAMMA] - accepted
    law = np.zeros((SIZE + 1) ** (GAMMA + 1))
    for x in range(SIZE):
        law[code([x])] += residual[0, x]
        for y in range(SIZE):
            law[code([x, y])] += accepted[0, x] * residual[1, y]
            for z in range(SIZE):
                law[code([x, y, z])] += accepted[0, x] * accepted[1, y] * bonus[z]
    return law


def joint_law_of_block() -> np.ndarray:
    """Return the output distribution of block verification, which accepts longer prefixes."""
    law = np.zeros((SIZE + 1) ** (GAMMA + 1))
    for x in range(SIZE):
        weight = min(TARGET[0, x] / DRAFT[0, x], 1)
        excess = np.maximum(weight * TARGET[1] - DRAFT[1], 0)
        middle = excess.sum() / (excess.sum() + 1 - weight) if excess.any() else 0.0
        for y in range(SIZE):
            drawn = DRAFT[0, x] * DRAFT[1, y]
            whole = min(weight * TARGET[1, y] / DRAFT[1, y], 1)
            first = np.maximum(TARGET[0] - DRAFT[0], 0)
            for z in range(SIZE):
                law[code([x, y, z])] += drawn * whole * TARGET[2, z]
                if middle:
                    part = drawn * (1 - whole) * middle
                    law[code([x, z])] += part * excess[z] / excess.sum()
                law[code([z])] += drawn * (1 - whole) * (1 - middle) * first[z] / first.sum()
    return law


def code(tokens: list[int]) -> int:
    return sum((token + 1) * (SIZE + 1) ** i for i, token in enumerate(tokens))


RIGHT, WRONG = joint_law(TARGET[GAMMA]), joint_law(TARGET[GAMMA - 1])
LAWS = {"chain": RIGHT, "block": joint_law_of_block()}
SLIP = float(abs(RIGHT - WRONG).sum() / 2)
"""TV distance of the output distribution of `slip` from the correct one."""


def slip(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Verify with one mistake: the bonus token comes from the previous row."""
    tokens, accepted = reference(inputs.tokens.device).verify(inputs)
    drawn = torch.multinomial(inputs.target[:, GAMMA - 1], 1)[:, 0]
    tokens[:, GAMMA] = torch.where(accepted == GAMMA, drawn, tokens[:, GAMMA])
    return tokens, accepted


def check(
    entry: Entry,
    *,
    logits: bool,
    one_by_one: bool,
    draws: int,
    device: torch.device,
    rule: str = "chain",
) -> Verdict:
    """Check the output distribution of a contestant."""
    right = LAWS[rule]
    rng = torch.Generator(device).manual_seed(11)
    law = torch.tensor(DRAFT, dtype=torch.float32, device=device)
    tokens = torch.multinomial(law, draws, replacement=True, generator=rng).T.contiguous()
    target = torch.tensor(TARGET, dtype=torch.float32, device=device)
    if logits:
        target, law = target.log(), law.log()
    outputs = []
    batch = 1 if one_by_one else draws
    laws = [x.expand(batch, -1, -1).contiguous() for x in (target, law)]
    for drafts in tokens.split(batch):
        outputs.append(entry.verify(entry.prepare(Inputs(*laws, drafts, logits)))[0])
    found = torch.cat(outputs).long().cpu().numpy() + 1
    limit = g_limit(int(np.count_nonzero(right)), LEVEL)
    if found.min() < 0 or found.max() > SIZE:
        return Verdict(False, draws, np.inf, limit)
    codes = found @ (SIZE + 1) ** np.arange(GAMMA + 1)
    counts = np.bincount(codes, minlength=(SIZE + 1) ** (GAMMA + 1))
    statistic = g_statistic(counts, right)
    return Verdict(statistic <= limit, draws, statistic, limit)
