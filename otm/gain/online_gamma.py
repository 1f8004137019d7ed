"""Policies that choose the fastest number of drafts γ, for known or measured α and c.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otm._core.display.text import shown
from otm._core.numbers import as_positive
from otm.decoding.policies import GammaPolicy, as_policy
from otm.decoding.trace import Step
from otm.errors import InvalidParameterError
from otm.gain.formulas import best_gamma
from otm.gain.parameters import as_costs, in_unit_interval

FIRST_COST = 0.05
"""Value of c that is assumed before any measurement: an upper bound in [leviathan2023]_."""


def best_gamma_policy(alpha: float, cost: float, *, max_gamma: int | None = None) -> GammaPolicy:
    """Return a policy that always drafts the best γ for known α and c.

    Parameters
    ----------
    alpha : float
        Acceptance rate α, in [0, 1].
    cost : float
        Time c of a draft model call divided by the time of a target call, at least 0.
    max_gamma : int, optional
        Largest number of drafts in a step.

    Returns
    -------
    GammaPolicy
        A policy that always returns `otm.gain.best_gamma` ([leviathan2023]_, Theorem 3.8).

    Raises
    ------
    InvalidParameterError
        If a number is outside its range, or every further draft pays and `max_gamma` is omitted.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> best_gamma_policy(0.75, 0.02)([])
    9
    """
    return as_policy(best_gamma(alpha, cost, max_gamma=max_gamma))


@dataclass(frozen=True)
class OnlineGamma:
    """A policy that estimates α and c from past steps, and drafts the best γ for the estimates.

    The best γ follows from [leviathan2023]_, Theorem 3.8; the estimates are our own design.

    The estimate of α is the share of accepted drafts among verified drafts. Each step has f times
    the weight of the step after it. The prior counts are added to the numbers of accepted and
    rejected drafts. While γ is 0, the prior counts regain weight, so old steps cannot keep γ at 0
    forever. The estimate of c is the median of the draft model's time for one level of drafts
    divided by the target's time.

    Parameters
    ----------
    cost : float, optional
        The known c, at least 0; by default measured from the times of the steps. With measured
        times, γ varies between runs, so the tokens of a seed vary too, but their distribution stays
        the same.
    max_gamma : int, optional
        Largest number of drafts in a step, at least 1.
    prior_counts : (float, float), optional
        Prior numbers of accepted and rejected drafts, at least 0 and not both 0.
    decay : float, optional
        The factor f, in [0, 1].

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.

    Notes
    -----
    If several drafts are verified at each level, α is the share of levels that accept a draft.
    Times are measured for the whole batch. If the sequences of a batch draft different numbers of
    tokens, the estimate of c is too large for the sequences with fewer drafts.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from otm.decoding import speculative
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.95, 0.05]})
    >>> policy = OnlineGamma(cost=0.05)
    >>> steps = speculative(target, draft, [[0]], gamma=policy, max_tokens=300, seed=0).steps
    >>> policy([]), policy(steps), best_gamma_policy(0.55, 0.05)([])  # α = 0.55
    (7, 4, 4)
    """

    cost: float | None = None
    max_gamma: int = 16
    prior_counts: tuple[float, float] = (3.0, 1.0)
    decay: float = 0.98

    def __post_init__(self) -> None:
        as_positive(self.max_gamma, "max_gamma")
        if self.cost is not None:
            as_costs(self.cost, "cost")
        in_unit_interval(self.decay, "decay")
        prior_counts = as_costs(self.prior_counts, "prior_counts")
        if prior_counts.shape != (2,) or not prior_counts.sum() > 0:
            raise InvalidParameterError(
                f"prior_counts = {shown(self.prior_counts)}; it must be two numbers of at least 0, "
                "one of them above 0"
            )

    def __call__(self, steps: Sequence[Step]) -> int:
        """Return γ for the next step."""
        cost = _measured_cost(steps) if self.cost is None else self.cost
        return int(best_gamma(self.acceptance_rate(steps), cost, max_gamma=self.max_gamma))

    def acceptance_rate(self, steps: Sequence[Step]) -> float:
        """Return the estimate of α.

        Parameters
        ----------
        steps : sequence of Step
            The steps of one sequence so far.

        Returns
        -------
        float
            The estimate, a probability.
        """
        accepted = rejected = 0.0
        for step in steps:
            accepted = self.decay * accepted + step.accepted
            rejected = self.decay * rejected + step.rejected
        accepted, rejected = accepted + self.prior_counts[0], rejected + self.prior_counts[1]
        return accepted / (accepted + rejected)


def _measured_cost(steps: Sequence[Step]) -> float:
    """Return the median cost of a draft token over past steps; `FIRST_COST` before any draft."""
    costs = [
        step.seconds.draft / (step.drafted * step.seconds.target)
        for step in steps
        if step.drafted and step.seconds.target > 0
    ]
    return float(np.median(costs)) if costs else FIRST_COST
