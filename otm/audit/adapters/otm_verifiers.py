"""Adapters of OTM's decoding loops and kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.numbers import check_name
from otm._core.optional import require
from otm._core.probs.sparse import SparseProbs
from otm._core.tensors import on_device, to_host
from otm.audit.adapters.base import Adapter, Instance, Source
from otm.audit.adapters.drafts import Batched, InFloats, models_for
from otm.coupling.build import PlanBuilder, PlanOfRule
from otm.coupling.plan import TransportPlan
from otm.decoding import DeviceVerifier, ModelDrafter, speculative, stream
from otm.decoding.draft_tree import Randomness
from otm.decoding.drafters.base import Branching
from otm.decoding.reading import Path
from otm.decoding.verifiers.by_rule import chain_rule, host_verifier, tree_rule
from otm.decoding.verifiers.recursion import build_tree_plan, spectr_verifier
from otm.kernels import verify_probs
from otm.kernels.registry import uniforms_per_position
from otm.models.base import PaddedTokens, Session
from otm.problem import Problem
from otm.rules import named

__all__ = ["kernel", "spectr_step", "speculative_loop"]

ONE_BY_ONE = 64
"""Largest number of rows in one launch in Triton's interpreter, which runs them one by one."""


@dataclass(frozen=True, eq=False)
class _Loop(Adapter):
    """Adapter of a function that decodes an instance with a source, a target and a draft model."""

    name: str
    decode: Callable[[Instance, Randomness, Any, Any], Path]
    several: bool
    whole: bool = False

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode the instance."""
        return self.decode(instance, source, *models_for(instance, source))


def speculative_loop(rule: str = "chain") -> Adapter:
    """Audit `otm.decoding.speculative` on γ + 1 tokens after the prompt.

    Parameters
    ----------
    rule : {"chain", "block"}, optional
        As for `otm.decoding.speculative`.

    Returns
    -------
    Adapter
        Adapter for one chain.

    Raises
    ------
    UnknownMethodError
        If the rule is unknown.

    Examples
    --------
    >>> speculative_loop("block").name
    'speculative, block'
    """
    chain_rule(rule)

    def decode(instance: Instance, source: Randomness, target: Any, draft: Any) -> Path:
        return speculative(
            target,
            draft,
            [instance.prompt],
            gamma=instance.gamma,
            rule=rule,
            max_tokens=instance.gamma + 1,
            uniforms=[source],
        ).sequences[0]

    return _Loop(f"speculative, {rule}", decode, several=False, whole=True)


def spectr_step(
    rule: str | PlanBuilder, *, prefix_tree: bool = False, name: str | None = None
) -> Adapter:
    """Audit one step of `otm.decoding.spectr`, with k chains or a tree of k drafts at each node.

    Parameters
    ----------
    rule : str or callable
        As for `otm.decoding.spectr`: a name from `otm.decoding.tree_rules()`, or your own rule.
        Your own rule is first called once on two equal distributions and two drafts.
    prefix_tree : bool, optional
        Whether to draft a prefix tree instead of chains.
    name : str, optional
        Name of the rule in reports.

    Returns
    -------
    Adapter
        Adapter for k chains or one tree.

    Raises
    ------
    UnknownMethodError
        If the rule is unknown.
    InvalidParameterError
        If the rule is neither a name nor a function, returns no plan, or requires drafts that are
        not independent.

    Examples
    --------
    >>> spectr_step("traversal", prefix_tree=True).name
    'spectr, traversal, prefix tree'
    """
    listed = tree_rule(rule)
    verifier = host_verifier(listed)
    if isinstance(rule, str) and not listed.verifier:
        verifier = spectr_verifier(_each_plan_once(PlanOfRule(listed)))
    if callable(rule):
        # Call it once here: an error during the audit would count as a mistake of the verifier.
        probs = SparseProbs([0, 1], [0.5, 0.5])
        build_tree_plan(rule, probs, probs, 2)

    def decode(instance: Instance, source: Randomness, target: Any, draft: Any) -> Path:
        gamma = instance.gamma
        branching: Branching = (instance.k,) * gamma if prefix_tree else instance.k
        drafter = ModelDrafter(draft, branching, draft_kind=listed.drafts)
        prompts, limit = [instance.prompt], gamma + 1
        steps = stream(
            target, prompts, drafter, verifier, gamma=gamma, max_tokens=limit, uniforms=[source]
        )
        return next(steps).output

    called = name or (rule if isinstance(rule, str) else getattr(rule, "__name__", "rule"))
    ending = ", prefix tree" if prefix_tree else ""
    return _Loop(f"spectr, {called}{ending}", decode, several=True)


def _each_plan_once(rule: PlanBuilder) -> PlanBuilder:
    """Cache the plans of an OTM rule, because a loop builds the same few plans on every path."""
    plans: dict[tuple[Any, ...], TransportPlan] = {}

    def build(problem: Problem) -> TransportPlan:
        arrays = (problem.tokens, problem.draft, problem.target)
        key = (problem.k, *(tuple(array.tolist()) for array in arrays))
        if key not in plans:
            plans[key] = rule(problem)
        return plans[key]

    return build


class _OnDevice(InFloats):
    """A model from a table, with its probabilities on a GPU if there is one."""

    def start(self, rows: int) -> Session:
        """Start a session with this number of empty rows."""
        return _Moved(super().start(rows))


@dataclass(frozen=True)
class _Moved(Session):
    """A session whose results are moved to a device."""

    session: Session

    def append(self, tokens: PaddedTokens) -> Any:
        torch = require("torch")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return on_device(self.session.append(tokens), device)

    def keep(self, rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        self.session.keep(rows, lengths)


class DeviceStep(Adapter):
    """One step of `stream` with a `DeviceVerifier`: drafts, rows and decisions stay on the device.

    The adapter runs a batch of runs as a batch of sequences.
    """

    exact = False

    def __init__(self, verifier: DeviceVerifier) -> None:
        self.name = f"DeviceVerifier, {verifier.rule}"
        self.several = named(verifier.rule, "kernel").several
        self._verifier = verifier

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Take one step with one sequence."""
        return self._step(instance, [source])[0]

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Take one step with a sequence for each row."""
        return self._step(instance, [Source(row) for row in uniforms])

    def _step(self, instance: Instance, sources: Sequence[Randomness]) -> list[Path]:
        target, draft = map(_OnDevice, (instance.target, instance.draft))
        steps = stream(
            target,
            [instance.prompt] * len(sources),
            ModelDrafter(draft, instance.k),
            self._verifier,
            gamma=instance.gamma,
            max_tokens=instance.gamma + 1,
            uniforms=sources,
        )
        return [step.output for step in islice(steps, len(sources))]


def kernel(rule: str = "chain", backend: str = "numpy") -> Adapter:
    """Audit `otm.kernels.verify_probs`.

    Parameters
    ----------
    rule : {"chain", "block", "grid k-Seq", "grid optimal", "grid walk and keep"}, optional
        As for `verify_probs`; "chain" and "block" verify one chain, the other rules k chains.
    backend : {"numpy", "torch", "triton"}, optional
        "numpy" is the exact reference.  "triton" runs on a GPU, or on a CPU if the environment
        variable TRITON_INTERPRET=1 was set before Triton was imported.

    Returns
    -------
    Adapter
        Adapter for one chain or k chains; it runs a batch of runs as one batch.

    Raises
    ------
    UnknownMethodError
        If the rule or backend is unknown.
    MissingDependencyError
        If torch or Triton is needed in a run and not installed.

    Examples
    --------
    >>> kernel("block", "torch").name
    'block kernel, torch'
    """
    listed = named(rule, "kernel")
    check_name("backend", backend, listed.backends)

    def verify(*arrays: Any) -> list[Any]:
        rows = ONE_BY_ONE if backend == "triton" else len(arrays[0])
        pairs: list[Any] = []
        for i in range(0, len(arrays[0]), rows):
            part = [array[i : i + rows] for array in arrays]
            if backend != "numpy":
                torch = require("torch")
                on_gpu = backend == "triton" and torch.cuda.is_available()
                part = [torch.from_numpy(a).to("cuda" if on_gpu else "cpu") for a in part]
            tokens, accepted, *_ = verify_probs(*part, rule=rule, backend=backend)
            pairs += zip(to_host(tokens), to_host(accepted), strict=True)
        return pairs

    return Batched(
        verify,
        f"{rule} kernel, {backend}",
        uniforms=lambda gamma, k: gamma * uniforms_per_position(rule, k) + 2,
        several=listed.several,
        exact=backend == "numpy",
    )
