"""Decoding steps on the device of the models: drafts, scores and verification stay there.

Each step copies only integers to the host, once: the drafts, the output, and whether all scores
gave valid distributions.  The kernels of `otm.kernels` verify the whole batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.optional import require
from otm._core.tensors import on_device
from otm.decoding.device.drafts import DeviceDrafts, Drafted, ModelDrafts, as_drafts
from otm.decoding.device.faults import BAD_DRAFT, BAD_TARGET, check_faults
from otm.decoding.device.prefix_trees import PrefixDrafts
from otm.decoding.device.session import DeviceSession
from otm.decoding.device.tree_drafts import KINDS
from otm.decoding.device.trees import TreeKernelRounds
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.model import draws_prefix_trees
from otm.decoding.reading import Context, Path
from otm.decoding.rounds import Batch, Outcome, Rounds, RoundsTask
from otm.errors import InvalidDraftsError, UnknownMethodError
from otm.kernels.registry import uniforms_per_position
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.verify import verify_probs
from otm.rules import RULES, Rule, named, names


@dataclass(frozen=True)
class DeviceVerifier:
    """Verification of a whole batch by a kernel, on the device of the target model.

    The drafts of a `ModelDrafter` also stay on the device; only tokens come to the host, once per
    step.  A rule without a kernel raises an error; `spectr` and `AssistedDecoding` verify such
    rules on the host.  Probabilities are float32, or float64 if the scores are float64 or
    fractions.

    Trees of `BestFirstDrafter`, `DrawnTreeDrafter`, `StaticTreeDrafter` and `ModelDrafter` grow on
    the device if the draft model reads trees and has no logits processor.  Trees of other drafters
    are copied to the device.

    Parameters
    ----------
    rule : str, optional
        A rule with a kernel.

        - For one chain: "chain" or "block".
        - For several chains, and prefix trees of a `ModelDrafter`: "grid k-Seq", "grid optimal" or
          "grid walk and keep".
        - For trees whose drafts have the kind in parentheses (a class of `otm.drafts`):
          "target-only" (Top), "greedy" (Greedy), "recursive rejection without replacement"
          (WithoutReplacement), "walk and keep" (Top or Greedy).  The target must read trees, and no
          logits processor may be set.

    Raises
    ------
    UnknownMethodError
        If there is no such rule, or the rule has no kernel.

    Examples
    --------
    >>> from otm.decoding import ModelDrafter, stream
    >>> from otm.models import load
    >>> drafter, verifier = ModelDrafter(load("small"), 4), DeviceVerifier("grid optimal")
    >>> steps = stream(load("large"), [list(b"In the")], drafter, verifier, gamma=3, seed=0)
    >>> len(next(steps).drafts)
    4
    """

    rule: str = "chain"

    def __post_init__(self) -> None:
        if self.rule in tuple(KINDS):  # a mapping would need a hash
            return
        try:
            named(self.rule, "kernel")
        except UnknownMethodError as error:
            raise UnknownMethodError(f"{error}; for trees, {', '.join(KINDS)}") from None

    def rounds(self, task: RoundsTask) -> Rounds:
        """Return an object that runs the steps of one batch on the device of the models.

        Parameters
        ----------
        task : RoundsTask
            The models and settings of a batch.

        Returns
        -------
        Rounds
            The object whose steps `stream` calls.

        Raises
        ------
        UnknownMethodError
            If there is no such rule, or the rule has no kernel.
        InvalidParameterError
            If the rule is for trees, and the target reads no trees, there is a logits processor, or
            the drafts are of a kind that the rule does not verify.
        """
        if self.rule in KINDS:
            return TreeKernelRounds(task, self.rule)
        return KernelRounds(task, named(self.rule, "kernel"))


class DeviceRounds(Rounds):
    """Steps in which the device drafts, scores and verifies chains for a whole batch."""

    place = "device"

    def __init__(self, task: RoundsTask, drafts: DeviceDrafts | None) -> None:
        self._target = DeviceSession(task.target, task.sampling, task.processor)
        self._drafts = drafts
        self._log_probs = task.log_probs
        super().__init__(drafts, self._target)

    @abstractmethod
    def _decide(
        self, drafted: Drafted, tokens: Any, target: Any, uniforms: Sequence[Randomness]
    ) -> Verified[Any]:
        """Verify drafts [B, K, γ] with distributions [B, K, γ + 1, V], and return the outputs.

        `chain` of the result is a chain with all accepted drafts; it is optional if K = 1.
        """

    def step(self, batch: Batch) -> list[Outcome]:
        """Draft, score and verify on the device, then copy the outcome to the host."""
        torch = require("torch")
        self.follow(batch)
        with torch.no_grad():
            # The target reads the contexts first: a drafter can use its hidden states.
            self._target.follow(batch.contexts, batch.parents)
            self._target.read_before(batch.contexts)
            drafted = Drafted.nothing(len(batch.contexts))
            if self._drafts is not None:
                drafted = self._drafts.draft(batch)
            scores = self._read(batch, drafted)
            packed = self._verify(drafted, scores, batch.uniforms)
        # This copy is the only synchronization with the device in a step.
        numbers = packed.cpu().numpy()
        gamma = drafted.tokens.shape[2]
        return self._collect(batch.contexts, drafted.lengths, gamma, numbers)

    def _read(self, batch: Batch, drafted: Drafted) -> Any:
        """Return the target's scores [B, K, γ + 1, V] after the contexts and drafts [B, K, γ]."""
        torch = require("torch")
        tokens, contexts = drafted.tokens, batch.contexts
        size, chains, gamma = tokens.shape
        if chains > 1:
            self._target.repeat(chains)
        last = np.repeat([context[-1] for context in contexts], chains)[:, None]
        rows = torch.cat([on_device(last, tokens.device), tokens.flatten(0, 1)], 1)
        scores = self._target.append(rows.clamp(min=0), 1 + drafted.lengths.ravel())
        return scores.view(size, chains, gamma + 1, -1)

    def _verify(self, drafted: Drafted, scores: Any, uniforms: Sequence[Randomness]) -> Any:
        """Verify, and return drafts, output and faults in one integer tensor [B, Kγ + γ + 3].

        If the task asks for them, γ + 1 columns follow, with the bits of the output's probabilities
        in float64.
        """
        torch = require("torch")
        batch, _, gamma = drafted.tokens.shape
        device = scores.device
        tokens = drafted.tokens.to(device, non_blocking=True)
        target, good = self._target.probs_along(scores, tokens.clamp(min=0), drafted.lengths)
        verified = self._decide(drafted, tokens, target, uniforms)
        sequence = torch.arange(batch, device=device)
        chain = sequence * 0 if verified.chain is None else verified.chain
        after = torch.arange(gamma + 1, device=device) > verified.accepted[:, None]
        faults = BAD_TARGET * ~(good[sequence, chain] | after).all(1)
        if drafted.good is not None:
            faults = faults + BAD_DRAFT * ~drafted.good.to(device, non_blocking=True)
        numbers = [tokens.flatten(1), verified.tokens, verified.accepted[:, None], faults[:, None]]
        if self._log_probs:
            places = verified.tokens.clamp(min=0)[..., None]
            probs = target[sequence, chain].gather(2, places)[..., 0]
            numbers.append(probs.double().view(torch.int64))
        return torch.cat(numbers, 1)

    def _collect(
        self,
        contexts: Sequence[Context],
        lengths: npt.NDArray[np.int64],
        gamma: int,
        numbers: npt.NDArray[np.int64],
    ) -> list[Outcome]:
        """Split the integers of a step that `_verify` packed, and update the sessions' tokens."""
        batch, chains = lengths.shape
        numbers, bits = np.split(numbers, [chains * gamma + gamma + 3], axis=1)
        check_faults(numbers[:, -1])
        drafts: list[list[Path]] = [
            [tuple(path[:n].tolist()) for path, n in zip(paths, counts, strict=True)]
            for paths, counts in zip(
                numbers[:, : chains * gamma].reshape(batch, chains, gamma), lengths, strict=True
            )
        ]
        self._target.learn(
            [c + path for c, paths in zip(contexts, drafts, strict=True) for path in paths]
        )
        if self._drafts is not None:
            self._drafts.learn(contexts, drafts)
        outputs = numbers[:, chains * gamma : -2]
        probs = np.ascontiguousarray(bits).view(np.float64)
        return [
            Outcome(
                tuple(filter(None, paths)),
                tuple(output[: accepted + 1].tolist()),
                tuple(row[: accepted + 1].tolist()) if self._log_probs else None,
            )
            for paths, output, accepted, row in zip(
                drafts, outputs, numbers[:, -2], probs, strict=True
            )
        ]


class KernelRounds(DeviceRounds):
    """Steps whose drafts a kernel verifies."""

    def __init__(self, task: RoundsTask, rule: Rule) -> None:
        self._rule, self._backend = rule, task.backend
        drafts: DeviceDrafts | None
        if rule.several and draws_prefix_trees(task.drafter):
            drafts = PrefixDrafts(task.drafter)
        else:
            drafts = as_drafts(task.drafter, task.target, ModelDrafts, several=rule.several)
        super().__init__(task, drafts)

    def _decide(
        self, drafted: Drafted, tokens: Any, target: Any, uniforms: Sequence[Randomness]
    ) -> Verified[Any]:
        """Verify with the kernel of the rule."""
        batch, chains, gamma = tokens.shape
        several = self._rule.several and gamma > 0
        if chains > 1 and not several:
            raise InvalidDraftsError(
                f"{chains} drafts of a token, but the rule {self._rule.name!r} is for one chain; "
                f"use one of {', '.join(names('kernel', several=True))} for several chains"
            )
        device = tokens.device
        draft = _map_arrays(drafted.probs, lambda x: x.to(device, non_blocking=True))
        # Without drafts, every rule only draws the bonus token, as "chain" does.
        rule = self._rule if gamma else RULES["chain"]
        count = uniforms_per_position(rule, chains)
        coins = np.zeros((batch, gamma * count + 2))
        for coin, length, source in zip(coins, drafted.lengths.max(1), uniforms, strict=True):
            coin[: length * count], coin[-2:] = np.split(source(length * count + 2), [-2])
        options: dict[str, Any] = {}
        if drafted.counted is not None:
            options["counted"] = drafted.counted.to(device, non_blocking=True)
        arguments = (target, draft, tokens)
        if not several:
            arguments = (target[:, 0], _map_arrays(draft, lambda x: x[:, 0]), tokens[:, 0])
        return verify_probs(
            *arguments,
            on_device(coins, device),
            rule=rule,
            backend=self._backend,
            validate=False,
            **options,
        )


def _map_arrays(probs: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to draft distributions: a tensor, SparseDrafts, or None."""
    if isinstance(probs, SparseDrafts):
        return SparseDrafts(*map(function, probs))
    return None if probs is None else function(probs)
