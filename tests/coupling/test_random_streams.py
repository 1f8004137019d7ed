"""Real random streams: drafts, coins and residuals drawn by one generator, against the target.

The tests use Monte Carlo, since exact distributions cannot show this error.  The negative control
draws drafts and coins from the same numbers; path exploration computes its distribution exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otm.coupling.build import PlanBuilder
from otm.coupling.naive_target_sampling import NaiveTargetSampling
from otm.coupling.plan import TransportPlan
from otm.coupling.target_only import TargetOnly
from otm.testing import BUDGET, Control, exact_distribution
from otm.testing.instances import instance


def select_with_shared_stream(plan: TransportPlan, numbers: Any) -> Any:
    """Token selected where the uniforms that draw the drafts are the first coins too."""
    drafts = plan.drafts.draw(numbers[..., : plan.drafts.uniforms_per_draw])
    coins = numbers.copy()[..., -plan.uniforms_per_selection :]
    shared = min(plan.drafts.uniforms_per_draw, max(plan.uniforms_per_selection - 1, 1))
    coins[..., :shared] = numbers[..., :shared]
    return plan.select(drafts, coins).token


def test_the_output_has_the_target_law(rule: PlanBuilder, request: pytest.FixtureRequest) -> None:
    # Sampling: draft, coin and residual sharing one stream must fail
    plan, exact = (rule(instance("two cuts", exact=exact)) for exact in (False, True))
    if isinstance(plan, NaiveTargetSampling | TargetOnly):
        pytest.skip("it never looks at the drafts, so that they may share its uniform")
    k, m = plan.drafts.uniforms_per_draw, plan.uniforms_per_selection

    def sample(rng: np.random.Generator, draws: int) -> Any:
        drafts = plan.drafts.draw(rng.random((draws, k)))
        return plan.sample(drafts, rng).token

    def sample_with_shared_stream(rng: np.random.Generator, draws: int) -> Any:
        return select_with_shared_stream(plan, rng.random((draws, k + m)))

    law = exact_distribution(lambda u: int(select_with_shared_stream(exact, u)), k + m)
    shared = np.array([float(law.get(token, 0)) for token in range(plan.problem.n)])
    BUDGET.check_distribution(
        request.node.nodeid,
        sample,
        plan.problem.target,
        delta=0.03,
        control=Control(sample_with_shared_stream, shared),
    )
