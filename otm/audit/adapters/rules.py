"""Selection rules of `otm.coupling`, and others of their protocol, as verifiers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.checks import Drafts
from otm._core.sampling import InverseCdf
from otm.audit.adapter import Adapter, Instance
from otm.coupling.build import PlanBuilder
from otm.coupling.plan import TransportPlan
from otm.decoding.drafting import Randomness
from otm.decoding.reading import Path
from otm.problem import Problem


class SelectionRule(Adapter):
    """A rule from problems to plans, with drafts from the distribution that its plan asks for."""

    max_tokens = 1

    def __init__(self, rule: PlanBuilder, name: str | None = None) -> None:
        self.name = str(name or getattr(rule, "__name__", type(rule).__name__))
        self._plan = lru_cache(maxsize=64)(lambda instance, exact: _Drafted(rule, instance, exact))

    def supports(self, instance: Instance) -> bool:
        """Any number of drafts for one token."""
        return instance.gamma == 1

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Tell which drafts `output` draws from a source."""
        uniforms = source(1)
        plan = self._plan(instance, uniforms.dtype == object)
        return tuple(plan.draw(uniforms)[0].tolist())

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draft, then select."""
        uniforms = source(1)
        drafted = self._plan(instance, uniforms.dtype == object)
        drafts = drafted.draw(uniforms)[0]
        token, _ = drafted.plan.select(drafts, source(drafted.plan.uniforms_per_selection))
        return (int(token),)

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> list[Path]:
        """All rows at once."""
        drafted = self._plan(instance, False)
        drafts = drafted.draw(uniforms[:, 0])
        rest = uniforms[:, 1 : 1 + drafted.plan.uniforms_per_selection]
        return [(token,) for token in drafted.plan.select(drafts, rest).token.tolist()]


class _Drafted:
    """A plan, and its drafts with their joint law."""

    plan: TransportPlan

    def __init__(self, rule: Any, instance: Instance, exact: bool) -> None:
        laws = (model.probs(instance.prompt) for model in (instance.draft, instance.target))
        draft, target = (law if exact else law.astype(np.float64) for law in laws)
        self.plan = rule(Problem(draft, target, instance.k))
        drafts, probabilities = zip(*self.plan.drafts.tuples(), strict=True)
        self._tuples: Drafts = np.array(drafts)
        self._cdf = InverseCdf.from_weights(np.array(probabilities))

    def draw(self, uniforms: npt.NDArray[Any]) -> Drafts:
        """Drafts [B, k] from uniforms [B]."""
        return self._tuples[self._cdf.locate(uniforms)]
