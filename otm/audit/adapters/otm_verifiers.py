"""The decoding loops and kernels of OTM as verifiers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.numbers import check_name
from otm._core.sparse import SparseProbs
from otm.audit.adapter import Adapter, Instance
from otm.audit.adapters.batched import Batched
from otm.audit.adapters.honest import models_for
from otm.coupling.build import PlanBuilder
from otm.decoding import ModelDrafter, speculative, stream
from otm.decoding.drafting import Branching, Randomness
from otm.decoding.reading import Path
from otm.decoding.verification import plan_of_tree, tree_verifier
from otm.kernels import verify_probs
from otm.kernels.registry import uniforms_per_position
from otm.rules import named

__all__ = ["kernel", "spectr_step", "speculative_loop"]

ONE_BY_ONE = 64
"""Most rows of one launch in Triton's interpreter, which takes them one after another."""


class _Loop(Adapter):
    """A way to decode an instance with uniforms from a source."""

    def __init__(
        self, name: str, decode: Callable[[Instance, Randomness, Any, Any], Path], chains: bool
    ) -> None:
        self.name = name
        self._decode = decode
        self._chains = chains

    def supports(self, instance: Instance) -> bool:
        """One chain, or any number of chains."""
        return self._chains or instance.k == 1

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Decode."""
        models = models_for(instance, source(0).dtype == object)
        return self._decode(instance, source, *models)


def speculative_loop(rule: str = "chain") -> Adapter:
    """Audit `otm.decoding.speculative`, from the prompt to γ + 1 tokens.

    Parameters
    ----------
    rule : {"chain", "block"}, optional
        As there.

    Returns
    -------
    Adapter
        For one chain.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.

    Examples
    --------
    >>> speculative_loop("block").name
    'speculative, block'
    """
    named(rule, "verifier", several=False)

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

    return _Loop(f"speculative, {rule}", decode, chains=False)


def spectr_step(
    rule: str | PlanBuilder, *, prefix_tree: bool = False, name: str | None = None
) -> Adapter:
    """Audit one step of `otm.decoding.spectr`, with k chains or a tree of k drafts at each node.

    Parameters
    ----------
    rule : str or callable
        As there: one of `otm.decoding.tree_rules()`, or one's own, which is tried on two equal laws
        and two drafts first.
    prefix_tree : bool, optional
        Whether to draft a prefix tree.
    name : str, optional
        What reports call the rule.

    Returns
    -------
    Adapter
        For k chains or one tree.

    Raises
    ------
    UnknownMethodError
        If there is no such rule.
    InvalidParameterError
        If the rule is neither a name nor a function, returns no plan, or is for drafts that are not
        independent.

    Examples
    --------
    >>> spectr_step("traversal", prefix_tree=True).name
    'spectr, traversal, prefix tree'
    """
    verifier = tree_verifier(rule)
    if callable(rule):  # in a run the refusal would be taken for a mistake of the verifier
        law = SparseProbs([0, 1], [0.5, 0.5])
        plan_of_tree(rule, law, law, 2)

    def decode(instance: Instance, source: Randomness, target: Any, draft: Any) -> Path:
        gamma = instance.gamma
        branching: Branching = (instance.k,) * gamma if prefix_tree else instance.k
        drafter = ModelDrafter(draft, branching)
        prompts, limit = [instance.prompt], gamma + 1
        steps = stream(
            target, prompts, drafter, verifier, gamma=gamma, max_tokens=limit, uniforms=[source]
        )
        return next(steps).output

    called = name or (rule if isinstance(rule, str) else getattr(rule, "__name__", "rule"))
    ending = ", prefix tree" if prefix_tree else ""
    return _Loop(f"spectr, {called}{ending}", decode, chains=True)


def kernel(rule: str = "chain", backend: str = "numpy") -> Adapter:
    """Audit `otm.kernels.verify_probs`.

    Parameters
    ----------
    rule : {"chain", "block", "grid k-Seq", "levels"}, optional
        As there; the first two are for one chain, the others for k chains.
    backend : {"numpy", "torch", "triton"}, optional
        "numpy" is the definition, which is exact; "triton" runs on a GPU, or anywhere if the
        environment variable TRITON_INTERPRET=1 was set before Triton was imported.

    Returns
    -------
    Adapter
        For one chain or k; a batch of runs is one batch there.

    Raises
    ------
    UnknownMethodError
        If there is no such rule or backend.
    MissingDependencyError
        In a run, if torch or Triton is not installed.

    Examples
    --------
    >>> kernel("block", "torch").name
    'block kernel, torch'
    """
    listed = named(rule, "kernel")
    check_name("backend", backend, listed.backends)

    def count(gamma: int, k: int) -> int:
        return gamma * uniforms_per_position(rule, k) + 2

    run = partial(verify_probs, rule=rule, backend=backend)
    return Batched(
        partial(_rows, run, backend),
        f"{rule} kernel, {backend}",
        uniforms=count,
        several=listed.several,
        exact=backend == "numpy",
    )


def _rows(
    run: Callable[..., Any],
    backend: str,
    *arrays: npt.NDArray[Any],
) -> npt.NDArray[np.int64]:
    """Tokens [B, γ + 1] of a batch."""
    if backend == "numpy":
        return _as_stated(run(*arrays))
    import torch

    if backend == "torch":
        return _as_stated(run(*map(torch.from_numpy, arrays)))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = [
        _as_stated(
            run(*(torch.from_numpy(array[i : i + ONE_BY_ONE]).to(device) for array in arrays))
        )
        for i in range(0, len(arrays[0]), ONE_BY_ONE)
    ]
    return np.concatenate(found)


def _as_stated(result: Any) -> npt.NDArray[np.int64]:
    """Cut tokens off where the number of accepted drafts says so, rather than at the padding."""
    tokens, accepted = (
        np.asarray(part.cpu() if hasattr(part, "cpu") else part) for part in result[:2]
    )
    beyond = np.arange(tokens.shape[1]) > accepted[:, None]
    cut: npt.NDArray[np.int64] = np.where(beyond, -1, tokens)
    return cut
