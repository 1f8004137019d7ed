"""Measure several chains of drafts: their cost compared with one chain, and their acceptance.

The distributions are those of the other tiers, equal for all chains of a sequence.  The comparison
uses the first chain alone.  There are no other projects, because no other verifier of K independent
chains on a GPU is known.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.chain import clocks, gate
from benchmarks.chain.contestants import KERNELS
from benchmarks.chain.inputs import make_inputs
from benchmarks.chain.measure import Effort, in_short
from otm.kernels import Workspace, verify_logits, verify_probs
from otm.kernels.common.runtime import compiles
from otm.kernels.registry import uniforms_per_position
from otm.testing.statistics import g_limit, g_statistic

PROBABILITIES = "probabilities of K chains -> tokens"
LOGITS = "logits of K chains -> tokens"
TIERS = (PROBABILITIES, LOGITS)
ONE_CHAIN = "one chain"

PART = 4_096
"""Number of sequences per call of the check, limited because the tables of bins need memory."""

Verify = Callable[..., tuple[Tensor, ...]]
"""A function of rows [B, K, …], drafts [B, K, γ], uniforms and, for logits, temperatures.

It returns tokens and accepted counts first."""


@dataclass(frozen=True)
class Contestant:
    """A verifier, its rule for several drafts at one position, and the type of its rows."""

    verify: Verify
    rule: str
    logits: bool

    def __call__(self, target: Tensor, draft: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        """Draw uniforms, and verify."""
        batch, count, gamma = tokens.shape
        size = gamma * uniforms_per_position(self.rule, count) + 2
        uniforms = torch.rand(batch, size, dtype=torch.float64, device=tokens.device)
        options = {"temperature": ones(batch, tokens.device)} if self.logits else {}
        return self.verify(target, draft, tokens, uniforms, **options, validate=False)


@cache
def ones(batch: int, device: torch.device) -> Tensor:
    """Return temperatures of 1, made once, like in a server."""
    return torch.ones(batch, device=device)


def contestants(tier: str, device: torch.device) -> dict[str, Contestant]:
    """Return a tier's contestants for a device, the one for a single chain first."""
    on_gpu = clocks.on_gpu(device) and compiles()
    logits = tier == LOGITS
    verify = verify_logits if logits else verify_probs
    one = partial(first_chain, verify, backend=KERNELS if on_gpu else "torch")
    found = {ONE_CHAIN: Contestant(one, "grid k-Seq", logits)}
    for name in ("k-Seq", "optimal", "walk and keep"):
        rule = f"grid {name}"
        plain = partial(verify, rule=rule, backend="torch")
        found[f"{name}, torch"] = Contestant(plain, rule, logits)
        if on_gpu:
            kernels = partial(verify, rule=rule, backend=KERNELS, workspace=Workspace())
            found[f"{name}, triton"] = Contestant(kernels, rule, logits)
    return found


def first_chain(verify: Verify, *arguments: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """Return a verifier of the first chain only."""
    target, draft, tokens, uniforms = arguments
    few = uniforms[:, : tokens.shape[2] + 2]
    return verify(target[:, 0], draft[:, 0], tokens[:, 0], few, **options)


def pass_gate(
    tier: str, present: dict[str, Contestant], draws: int, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Check that each output, continued by the target, has the target's joint distribution."""
    count, (gamma, size) = 3, gate.DRAFT.shape
    rng = torch.Generator(device).manual_seed(11)
    draft = torch.tensor(gate.DRAFT, dtype=torch.float32, device=device)
    target = torch.tensor(gate.TARGET, dtype=torch.float32, device=device)
    tokens = torch.multinomial(draft, draws * count, replacement=True, generator=rng)
    tokens = tokens.reshape(gamma, draws, count).permute(1, 2, 0).contiguous()
    rest = torch.multinomial(target, draws, replacement=True, generator=rng).T
    right = np.einsum("i,j,k->ijk", *gate.TARGET).reshape(-1)
    limit = g_limit(int(np.count_nonzero(right)), gate.LEVEL)
    for name, verify in present.items():
        outputs = []
        for part in tokens.split(PART):
            rows = (
                (x.log() if verify.logits else x).expand(len(part), count, -1, -1)
                for x in (target, draft)
            )
            outputs.append(verify(*rows, part)[0])
        found = torch.cat(outputs)
        found = torch.where(found < 0, rest, found).cpu().numpy()
        codes = found @ size ** np.arange(gamma, -1, -1)
        counts = np.bincount(codes, minlength=right.size)
        statistic = g_statistic(counts, right)
        outcome = {"passed": statistic <= limit, "statistic": statistic, "limit": limit}
        yield {"tier": tier, "contestant": name, **outcome, "draws": draws}


def make(
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    logits: bool,
    seed: int = 7,
) -> list[Tensor]:
    """Draw probabilities or logits, and chains from them, for the shape (B, K, γ, V)."""
    batch, count, gamma, size = shape
    of_one = {"logits": logits, "device": device, "seed": seed}
    inputs = make_inputs((batch, gamma, size), dtype, "typical", **of_one)
    rng = torch.Generator(device).manual_seed(seed + 1)
    rows = inputs.draft.float().reshape(-1, size)
    rows = rows.softmax(-1) if logits else rows
    tokens = torch.multinomial(rows, count, replacement=True, generator=rng)
    tokens = tokens.reshape(batch, gamma, count).transpose(1, 2).contiguous()
    return [inputs.target, inputs.draft, tokens]


def measure(
    device: torch.device,
    effort: Effort,
    shape: tuple[int, int, int, int],
    present: dict[str, Contestant],
    *,
    tier: str,
    dtype: torch.dtype,
) -> list[dict[str, Any]]:
    """Return one row for each contestant."""
    batch, count, gamma, size = shape
    first = make(shape, dtype, device, logits=tier == LOGITS)
    bytes_of_one = sum(x.numel() * x.element_size() for x in first)
    copies = max(1, min(effort.copies, effort.memory // bytes_of_one, 64))
    sets = [[x.clone() for x in first] for _ in range(copies)]
    ready = [
        (*(x[:, None].expand(-1, count, -1, -1) for x in laws), tokens) for *laws, tokens in sets
    ]
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[str, Any] = {}
    for name, verify in present.items():
        row = rows[name] = {"tier": tier, "contestant": name}
        row |= {"B": batch, "K": count, "gamma": gamma, "V": size, "copies": copies}
        row["dtype"] = str(dtype).removeprefix("torch.")
        try:
            accepted = [verify(*each)[1].double().mean() for each in ready[:16]]
            row["accepted"] = float(sum(accepted)) / len(accepted)
            calls[name] = [partial(verify, *each) for each in ready]
        except Exception as error:  # the others are measured in any case
            row["failed"] = in_short(error)
    for name, seconds in clocks.wall_times(calls, device, effort.rounds).items():
        try:
            kernel = clocks.graph_time(calls[name], device, effort.replays)
        except Exception as error:  # it waits for the device
            kernel, rows[name]["no graph"] = None, in_short(error)
        rows[name] |= {"kernel s": kernel, "wall s": seconds}
    one = rows[ONE_CHAIN]
    for row in rows.values():
        if "failed" not in row and "failed" not in one:
            which = "kernel s" if row["kernel s"] and one["kernel s"] else "wall s"
            row["times one chain"] = row[which] / one[which]
    return list(rows.values())


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows of one measurement."""
    print("\n{tier}: B = {B}, K = {K}, γ = {gamma}, V = {V:,}, {dtype}".format(**rows[0]))
    print(f"  {'':<22}{'kernel µs':>11}{'wall µs':>11}{'of one chain':>14}{'accepted':>10}")
    for row in rows:
        if "failed" in row:
            print(f"  {row['contestant']:<22}failed: {row['failed']}")
            continue
        kernel = f"{row['kernel s'] * 1e6:.1f}" if row["kernel s"] else "-"
        print(
            f"  {row['contestant']:<22}{kernel:>11}{row['wall s'] * 1e6:>11.1f}"
            f"{row.get('times one chain', float('nan')):>13.1f}×{row['accepted']:>10.2f}"
        )
