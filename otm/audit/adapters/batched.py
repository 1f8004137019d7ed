"""Adapters from verifiers of batches of chains, as kernels are: many runs in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.audit.adapter import Adapter, Instance, source_of
from otm.audit.adapters.honest import chain_laws, draw_chain
from otm.audit.adapters.results import as_tokens
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path

BatchVerifier = Callable[
    [npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[Any]], Any
]
"""From target laws [B, γ + 1, V], draft laws [B, γ, V], drafts [B, γ] and uniforms [B, m] to tokens
[B, γ + 1], padded by −1 at the end.  With K chains the first three have an axis K after B."""


class Batched(Adapter):
    """Sampled drafts around a verifier of batches; `uniforms(γ, K)` is the number m for one run."""

    def __init__(
        self,
        verify: BatchVerifier,
        name: str,
        *,
        uniforms: Callable[[int, int], int],
        several: bool = False,
        exact: bool = False,
        repeatable: bool = True,
    ) -> None:
        self.verify = verify
        self.name = name
        self.uniforms = uniforms
        self.several = several
        self.exact = exact
        self.repeatable = repeatable

    def supports(self, instance: Instance) -> bool:
        """Any number of chains if it is for several, and otherwise one."""
        return self.several or instance.k == 1

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then verify."""
        return self._run(instance, [source])[0]

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> Sequence[Path]:
        """Draft for each run, then verify all of them together."""
        return self._run(instance, [source_of(row) for row in uniforms])

    def _run(self, instance: Instance, sources: Sequence[Randomness]) -> list[Path]:
        drafts = [[draw_chain(instance, source) for _ in range(instance.k)] for source in sources]
        exact = sources[0](0).dtype == object
        laws = [[chain_laws(instance, chain, exact) for chain in chains] for chains in drafts]
        target, draft = (
            np.array([[both[part] for both in chains] for chains in laws]) for part in (0, 1)
        )
        tokens = np.array(drafts, dtype=np.int64)
        count = self.uniforms(instance.gamma, instance.k)
        uniforms = np.array([source(count) for source in sources])
        if not self.several:
            target, draft, tokens = target[:, 0], draft[:, 0], tokens[:, 0]
        return [as_tokens(row) for row in self.verify(target, draft, tokens, uniforms)]


def seed_of(uniforms: npt.NDArray[np.float64]) -> int:
    """Turn the first of some uniforms into a seed for generators of others."""
    return int(uniforms.flat[0] * 2**53)
