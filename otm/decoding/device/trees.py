"""Decoding steps that draft, score and verify trees on the device of the models.

The target reads a tree at once, and a kernel of `otm.kernels.verify_tree_probs` verifies it.  Each
step copies only integers to the host, once: the trees, the output, and whether all scores gave
valid distributions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.decoding.device.faults import BAD_DRAFT, BAD_TARGET, check_faults
from otm.decoding.device.session import DeviceSession
from otm.decoding.device.tree_drafts import KINDS, DraftedTrees, as_tree_drafts, no_trees
from otm.decoding.reading import Path
from otm.decoding.rounds import Batch, Outcome, Rounds, RoundsTask
from otm.errors import InvalidParameterError
from otm.kernels.tree.verify import WALK, WALK_UNIFORMS, verify_tree_probs


class TreeKernelRounds(Rounds):
    """Steps in which the device scores and verifies trees for a whole batch."""

    place = "device"

    def __init__(self, task: RoundsTask, rule: str, *, grows: bool = True) -> None:
        if task.processor is not None or not task.target.reads_trees:
            what = "without logits processors" if task.processor is not None else "that reads trees"
            raise InvalidParameterError(
                f"the rule {rule!r} on a device needs a target {what}; verify on the host, by "
                "`spectr` or a verifier of `otm.decoding`"
            )
        self._rule, self._kernel, self._backend = rule, KINDS[rule][0], task.backend
        self._log_probs = task.log_probs
        self._target = DeviceSession(task.target, task.sampling)
        self._drafts = as_tree_drafts(task.drafter, task.target.vocabulary, rule, grows=grows)
        super().__init__(self._drafts, self._target)

    def step(self, batch: Batch) -> list[Outcome]:
        """Draft, score and verify on the device, then copy the outcome to the host."""
        torch = require("torch")
        self.follow(batch)
        with torch.no_grad():
            # The target reads the contexts first: a drafter can use its hidden states.
            self._target.follow(batch.contexts, batch.parents)
            self._target.read_before(batch.contexts)
            drafted = no_trees(len(batch.contexts))
            if self._drafts is not None:
                drafted = self._drafts.draft(batch)
            packed = self._verify(drafted, batch)
        # This copy is the only synchronization with the device in a step.
        return self._collect(packed.cpu().numpy(), drafted.tokens.shape[1], batch)

    def _verify(self, drafted: DraftedTrees, batch: Batch) -> Any:
        """Return tokens, parents, output, last draft and faults [B, 2N + L + 1 + 2] as integers.

        If the task asks for them, N + 1 columns follow, with the bits of the probabilities of the N
        drafts and of the last output token in float64.
        """
        torch, device = require("torch"), self._target.model.device
        to = partial(_to, device=device)
        tokens, parents, sampled = map(to, (drafted.tokens, drafted.parents, drafted.sampled))
        scores = self._target.read_tree(tokens, parents)
        target, good = self._target.tree_probs(scores, keep=False)
        levels, draft = max(batch.depths) + 1, to(drafted.probs)
        columns = WALK_UNIFORMS if self._kernel == WALK else 1 + drafted.drawn
        coins = np.stack([u(levels * columns).reshape(levels, columns) for u in batch.uniforms])
        outcome = verify_tree_probs(
            target,
            draft,
            tokens,
            parents,
            on_device(coins.astype(np.float64), device),
            sampled=None if draft is None else sampled,
            rule=self._kernel,
            backend=self._backend,
            validate=False,
        )
        used = torch.nn.functional.pad(tokens >= 0, (1, 0), value=True)
        faults = BAD_TARGET * ~(good | ~used).all(1)
        if drafted.good is not None:
            faults = faults + BAD_DRAFT * ~to(drafted.good)
        numbers = [tokens, parents, outcome.tokens, outcome.node[:, None], faults[:, None]]
        if self._log_probs:
            last = (outcome.tokens >= 0).sum(1, keepdim=True) - 1
            ends = torch.cat([tokens.clamp(min=0), outcome.tokens.gather(1, last)], 1)
            rows = 1 + torch.cat([parents, outcome.node[:, None]], 1)
            probs = target[torch.arange(len(rows), device=device)[:, None], rows, ends]
            numbers.append(probs.double().view(torch.int64))
        return torch.cat(numbers, 1)

    def _collect(self, numbers: npt.NDArray[np.int64], nodes: int, batch: Batch) -> list[Outcome]:
        """Split the integers of a step, and update the session's tokens."""
        numbers, bits = np.split(
            numbers, [numbers.shape[1] - self._log_probs * (nodes + 1)], axis=1
        )
        probs = np.ascontiguousarray(bits).view(np.float64)
        check_faults(numbers[:, -1])
        trees = zip(numbers[:, :nodes], numbers[:, nodes : 2 * nodes], strict=True)
        outcomes, paths, kept = [], [], []
        outputs = numbers[:, 2 * nodes : -2]
        for (tokens, parents), output, node, row in zip(
            trees, outputs, numbers[:, -2], probs, strict=True
        ):
            path = [int(node)] if node >= 0 else []
            while path and parents[path[0]] >= 0:
                path.insert(0, int(parents[path[0]]))
            texts: list[Path] = []
            for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
                texts.append((*(texts[parent] if parent >= 0 else ()), token))
            inner = set(parents[tokens >= 0].tolist())
            used = [i for i in np.flatnonzero(tokens >= 0).tolist() if i not in inner]
            outcomes.append(
                Outcome(
                    tuple(texts[i] for i in used),
                    tuple(output[output >= 0].tolist()),
                    tuple(row[[*path, nodes]].tolist()) if self._log_probs else None,
                )
            )
            paths.append(path)
            kept.append(tuple(tokens[path].tolist()))
        self._target.keep_paths(paths, kept)
        return outcomes


def _to(tensor: Any, device: Any) -> Any:
    return None if tensor is None else tensor.to(device, non_blocking=True)
