"""Rounds on the device of the models: drafts, scores and verification stay there.

Only whole numbers come to the host, once a round: the drafts, the output, and whether all scores
gave distributions.  The kernels of `otm.kernels` verify, for the whole batch.
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
from otm.decoding.device.session import DeviceSession
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Context, Path
from otm.decoding.rounds import Batch, Outcome, Rounds, RoundsTask
from otm.errors import InvalidDistributionError, InvalidDraftsError
from otm.kernels.registry import uniforms_per_position
from otm.kernels.results import Verified
from otm.kernels.sparse_drafts import SparseDrafts
from otm.kernels.verify import verify_probs
from otm.rules import RULES, Rule, named, names

BAD_DRAFT, BAD_TARGET = 1, 2
"""Faults of a sequence: scores of the draft or of the target model gave no distribution."""


@dataclass(frozen=True)
class DeviceVerifier:
    """Verification of a whole batch by a kernel, on the device of the target model.

    The drafts of a `ModelDrafter` stay on the device as well: once a step, tokens come to the host,
    and nothing else.  It raises for prefix trees and for rules without a kernel; `spectr` and
    `AssistedDecoding` verify these on the host.  Probabilities are in float32, unless the scores
    are in float64; fractions become float64.

    Parameters
    ----------
    rule : str, optional
        A rule with a kernel: "chain" and "block" for one chain, "grid k-Seq", "grid optimal" and
        "grid walk and keep" for several.

    Raises
    ------
    UnknownMethodError
        If no such rule has a kernel.

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
        named(self.rule, "kernel")

    def rounds(self, task: RoundsTask) -> Rounds:
        """Make rounds that stay on the device of the models.

        Parameters
        ----------
        task : RoundsTask
            The models and the settings of a batch.

        Returns
        -------
        Rounds
            The rounds that `stream` calls.

        Raises
        ------
        UnknownMethodError
            If no such rule has a kernel.
        """
        return KernelRounds(task, named(self.rule, "kernel"))


class DeviceRounds(Rounds):
    """Chains of drafts of a whole batch, read and verified on the device."""

    def __init__(self, task: RoundsTask, drafts: DeviceDrafts | None) -> None:
        self._target = DeviceSession(task.target, task.sampling, task.processor)
        self._drafts = drafts
        super().__init__(drafts, self._target)

    @abstractmethod
    def _decide(
        self, drafted: Drafted, tokens: Any, target: Any, uniforms: Sequence[Randomness]
    ) -> Verified[Any]:
        """Verify drafts [B, K, γ] by distributions [B, K, γ + 1, V]: the output of each sequence.

        Of one chain its number may be left out; else it is one that has all accepted drafts.
        """

    def step(self, batch: Batch) -> list[Outcome]:
        """Draft, read and verify on the device, then bring the outcome to the host."""
        torch = require("torch")
        self.follow(batch)
        with torch.no_grad():
            drafted = Drafted.nothing(len(batch.contexts))
            if self._drafts is not None:
                drafted = self._drafts.draft(batch)
            scores = self._read(batch, drafted)
            numbers = self._verify(drafted, scores, batch.uniforms)
        found = numbers.cpu().numpy()  # the one wait for the device
        return self._collect(batch.contexts, drafted.lengths, found)

    def _read(self, batch: Batch, drafted: Drafted) -> Any:
        """Let the target read the last tokens and the drafts [B, K, γ]: [B, K, γ + 1, V]."""
        torch = require("torch")
        tokens, contexts = drafted.tokens, batch.contexts
        size, chains, gamma = tokens.shape
        self._target.follow(contexts, batch.parents)
        self._target.read_before(contexts)
        if chains > 1:
            self._target.repeat(chains)
        last = np.repeat([context[-1] for context in contexts], chains)[:, None]
        rows = torch.cat([on_device(last, tokens.device), tokens.flatten(0, 1)], 1)
        scores = self._target.append(rows.clamp(min=0), 1 + drafted.lengths.ravel())
        return scores.view(size, chains, gamma + 1, -1)

    def _verify(self, drafted: Drafted, scores: Any, uniforms: Sequence[Randomness]) -> Any:
        """Verify; returns drafts, output and faults as one tensor of whole numbers."""
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
        numbers = (tokens.flatten(1), verified.tokens, verified.accepted[:, None], faults[:, None])
        return torch.cat(numbers, 1)

    def _collect(
        self,
        contexts: Sequence[Context],
        lengths: npt.NDArray[np.int64],
        found: npt.NDArray[np.int64],
    ) -> list[Outcome]:
        """Take the numbers of a round [B, Kγ + γ + 3] apart, and tell the rows what they read."""
        batch, chains = lengths.shape
        gamma = (found.shape[1] - 3) // (chains + 1)
        self._check(found[:, -1])
        drafts: list[list[Path]] = [
            [tuple(path[:n].tolist()) for path, n in zip(paths, counts, strict=True)]
            for paths, counts in zip(
                found[:, : chains * gamma].reshape(batch, chains, gamma), lengths, strict=True
            )
        ]
        self._target.learn(
            [c + path for c, paths in zip(contexts, drafts, strict=True) for path in paths]
        )
        if self._drafts is not None:
            self._drafts.learn(contexts, drafts)
        outputs = found[:, chains * gamma : -2]
        return [
            Outcome(tuple(filter(None, paths)), tuple(output[: accepted + 1].tolist()))
            for paths, output, accepted in zip(drafts, outputs, found[:, -2], strict=True)
        ]

    def _check(self, faults: npt.NDArray[np.int64]) -> None:
        """Raise if scores gave no distribution, before anything of the round is kept."""
        wrong = np.flatnonzero(faults)
        if wrong.size:
            b = int(wrong[0])
            model = "draft model" if faults[b] & BAD_DRAFT else "target model"
            raise InvalidDistributionError(
                f"sequence {b} of the batch: of the {model} the logits have NaN, +∞, or nothing "
                "but −∞, or the probabilities are below 0 or do not sum to one; there must be a "
                "finite logit, and beside it only finite ones and −∞"
            )


class KernelRounds(DeviceRounds):
    """Rounds that a kernel verifies."""

    def __init__(self, task: RoundsTask, rule: Rule) -> None:
        self._rule, self._backend = rule, task.backend
        drafts = as_drafts(task.drafter, task.target, ModelDrafts, several=rule.several)
        super().__init__(task, drafts)

    def _decide(
        self, drafted: Drafted, tokens: Any, target: Any, uniforms: Sequence[Randomness]
    ) -> Verified[Any]:
        """Verify by the rule."""
        batch, chains, gamma = tokens.shape
        several = self._rule.several and gamma > 0
        if chains > 1 and not several:
            raise InvalidDraftsError(
                f"{chains} drafts of a token; rule {self._rule.name!r} is for one chain; for "
                f"several there are {', '.join(names('kernel', several=True))}"
            )
        device = tokens.device
        draft = _moved(drafted.probs, lambda x: x.to(device, non_blocking=True))
        # without drafts every rule draws the bonus token alone, and "chain" needs no chains
        rule = self._rule if gamma else RULES["chain"]
        count = uniforms_per_position(rule, chains)
        coins = np.zeros((batch, gamma * count + 2))
        for coin, length, source in zip(coins, drafted.lengths.max(1), uniforms, strict=True):
            coin[: length * count], coin[-2:] = np.split(source(length * count + 2), [-2])
        arguments = (target, draft, tokens)
        if not several:
            arguments = (target[:, 0], _moved(draft, lambda x: x[:, 0]), tokens[:, 0])
        return verify_probs(
            *arguments,
            on_device(coins, device),
            rule=rule,
            backend=self._backend,
            validate=False,
        )


def _moved(probs: Any, move: Callable[[Any], Any]) -> Any:
    """Apply a function to distributions of drafts: a tensor, lists of tokens, or None."""
    if isinstance(probs, SparseDrafts):
        return SparseDrafts(*map(move, probs))
    return None if probs is None else move(probs)
