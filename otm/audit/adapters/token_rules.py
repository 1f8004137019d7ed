"""Adapters of rules for one token, and of plans of `otm.coupling`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import Probs
from otm._core.checks import Drafts
from otm._core.probs.sampling import InverseCdf
from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.drafts import chain_probs, draw_chain, is_exact, locate_drafts, probs_of
from otm.audit.adapters.functions import chain, count_required
from otm.coupling.build import PlanBuilder
from otm.coupling.plan import TransportPlan
from otm.decoding.draft_tree import Randomness
from otm.decoding.reading import Path
from otm.problem import Problem


def token_rule(function: Callable[..., Any], **options: Any) -> Adapter:
    """Audit a rule f(target_probs, draft_probs, drafts, uniforms) for one token after k drafts.

    Parameters
    ----------
    function : callable
        Function of the target and draft probabilities [V], i.i.d. drafts [k] and uniforms [k + 1]
        that returns a token; its randomness may be another parameter, as for `chain`.
        Alternatively, a rule of `otm.coupling`, a function from a problem to a plan.
    **options
        As for `chain`; `uniforms` is a function of k.  A rule of `otm.coupling` allows only `name`.

    Returns
    -------
    Adapter
        Adapter for one token after k drafts.

    Raises
    ------
    InvalidParameterError
        If the function has other parameters, or they cannot be read.

    Examples
    --------
    >>> from otm.coupling import KSeq
    >>> token_rule(KSeq).name
    'KSeq'
    """
    if count_required(function) == 1:
        rule: PlanBuilder = function
        return SelectionRule(rule, **options)
    return TokenRule(function, **options)


class TokenRule(chain):
    """Adapter of a function that returns one token after k i.i.d. drafts."""

    max_tokens = 1
    beyond = 1

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance has drafts for one token; their number is arbitrary."""
        return instance.gamma == 1

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Draw the drafts of one token."""
        return tuple(draw_chain(instance, source)[0] for _ in range(instance.k))

    def _ask(self, source: Randomness, drafts: int, *arrays: Any, **more: Any) -> Any:
        return [super()._ask(source, drafts, *arrays, **more)]

    def _rows(self, instance: Instance, drafts: Any, exact: bool) -> tuple[Probs, Probs]:
        target, draft = chain_probs(instance, drafts[:1], exact)
        return target[0], draft[0]


class SelectionRule(Adapter):
    """A rule from problems to plans, with drafts from the draft distribution of the plan."""

    max_tokens = 1

    def __init__(self, rule: PlanBuilder, name: str | None = None) -> None:
        self.name = str(name or getattr(rule, "__name__", type(rule).__name__))
        self._rule = rule
        self._plan = lru_cache(maxsize=64)(self._build)

    def _build(self, instance: Instance, exact: bool) -> tuple[TransportPlan, Drafts, InverseCdf]:
        """Build the plan, the possible drafts, and their cumulative distribution."""
        draft, target = (
            probs_of(model, instance.prompt, exact) for model in (instance.draft, instance.target)
        )
        plan = self._rule(Problem(draft, target, instance.k))
        drafts, probabilities = zip(*plan.drafts.tuples(), strict=True)
        return plan, np.array(drafts), InverseCdf.from_weights(np.array(probabilities))

    def supports(self, instance: Instance) -> bool:
        """Return whether the instance has drafts for one token; their number is arbitrary."""
        return instance.gamma == 1

    def drafted(self, instance: Instance, source: Randomness) -> Path:
        """Draw the same drafts as `output`."""
        _, drafts, cdf = self._plan(instance, is_exact(source))
        return tuple(drafts[locate_drafts(cdf, source(1))[0]].tolist())

    def output(self, instance: Instance, source: Randomness) -> Path:
        """Draw drafts, then select a token."""
        drawn = self.drafted(instance, source)
        plan, _, _ = self._plan(instance, is_exact(source))
        return (int(plan.select(drawn, source(plan.uniforms_per_selection)).token),)

    def outputs(self, instance: Instance, uniforms: npt.NDArray[np.float64]) -> list[Path]:
        """Select tokens for all rows at once."""
        plan, drafts, cdf = self._plan(instance, False)
        rest = uniforms[:, 1 : 1 + plan.uniforms_per_selection]
        drawn = drafts[cdf.locate(uniforms[:, 0])]
        return [(token,) for token in plan.select(drawn, rest).token.tolist()]
