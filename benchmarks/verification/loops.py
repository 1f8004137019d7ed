"""Whole decoding loops with each verification method and the forward passes of both models."""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.chain.clocks import wait
from benchmarks.chain.contestants import Entry
from benchmarks.chain.inputs import Inputs
from benchmarks.loops.models import VOCABULARY, random_pair
from benchmarks.verification.methods import entries
from benchmarks.verification.texts import FIRST_GAMMA, next_gamma
from figures.shipped_pairs import prompts_of_text
from otm.models import GPT, load

__all__ = ["loops"]

SCALE = 1e4
PROMPT = 64


def loops(
    device: torch.device, layers: int, tokens: int, shipped: int, random: int
) -> list[dict[str, Any]]:
    """Decode with the shipped pair and the random pair by each method, in turns."""
    target, draft = random_pair(layers)
    rng = np.random.default_rng(0)
    pairs: dict[str, tuple[GPT, GPT, list[list[int]]]] = {
        "shipped bytes": (load("target"), load("small"), prompts_of_text(shipped + 1, PROMPT)),
        f"random weights, {layers} layers": (
            target,
            draft,
            rng.integers(0, VOCABULARY, (random + 1, PROMPT)).tolist(),
        ),
    }
    methods = entries(device, SCALE)
    rows = []
    for name, (large, small, prompts) in pairs.items():
        models = large.to(device=device), small.to(device=device)
        made: dict[str, list[Loop]] = {method: [] for method in methods}
        for seed, prompt in enumerate(prompts):
            for method, entry in methods.items():
                torch.manual_seed(seed)
                loop = Loop(entry, device)
                loop.run(*models, prompt, tokens)
                if seed:  # skip the first text, which compiles and allocates
                    made[method].append(loop)
        rows += [
            {
                "pair": name,
                "V": large.vocabulary,
                "method": method,
                "tokens": tokens,
                "scale": SCALE,
                "steps": sum(loop.steps for loop in found),
                "draft s": sum(loop.draft for loop in found),
                "target s": sum(loop.target for loop in found),
                "verification s": sum(loop.verification for loop in found),
                "text s": [loop.total for loop in found],
            }
            for method, found in made.items()
        ]
    return rows


@dataclass
class Loop:
    """One text: its number of steps, and the seconds of its parts."""

    entry: Entry
    device: torch.device
    steps: int = 0
    draft: float = 0.0
    target: float = 0.0
    verification: float = 0.0
    total: float = 0.0
    text: list[int] = field(default_factory=list)

    def run(self, target: GPT, draft: GPT, prompt: list[int], tokens: int) -> None:
        """Continue a prompt by `tokens` tokens, with γ by the heuristic of transformers."""
        begun = self._now()
        self.text = list(prompt)
        judge, drafter = target.start(1), draft.start(1)
        for session in (judge, drafter):
            session.read(np.array([prompt[:-1]]))
        read = len(prompt) - 1  # number of tokens that the draft model has read
        wanted, end = FIRST_GAMMA, len(prompt) + tokens
        while len(self.text) < end:
            start = self._now()
            gamma = min(wanted, end - len(self.text) - 1)
            given, rows, drafts = self.text[read:], [], list[torch.Tensor]()
            for _ in range(gamma):
                row = drafter.append(np.array([given]))[:, -1:].float()
                drafts.append(torch.multinomial(row[0].softmax(-1), 1))
                rows.append(row)
                given = [int(drafts[-1])]
            drafted = self._now()
            tokens_read = [self.text[-1], *(int(token) for token in drafts)]
            logits = judge.append(np.array([tokens_read])).float()
            read_by_target = self._now()
            if gamma:
                chain = Inputs(logits, torch.cat(rows, 1), torch.cat(drafts, 1), logits=True)
                output, counts = self.entry.verify(self.entry.prepare(chain))
                accepted = int(counts)
                new = output[0, : accepted + 1].tolist()
            else:
                accepted, new = 0, torch.multinomial(logits[0].softmax(-1), 1)[0].tolist()
            verified = self._now()
            known = len(self.text) + gamma - 1 if gamma else read
            self.text += new
            judge.keep(np.array([0]), np.array([len(self.text) - 1]))
            read = min(len(self.text) - 1, known)
            drafter.keep(np.array([0]), np.array([read]))
            wanted = next_gamma(wanted, accepted, gamma)
            self.steps += 1
            self.draft += drafted - start
            self.target += read_by_target - drafted
            self.verification += verified - read_by_target
        self.total = self._now() - begun

    def _now(self) -> float:
        wait(self.device)
        return time.perf_counter()
