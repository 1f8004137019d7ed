"""Policies that choose the number of drafts γ by what it gains, for known or measured α and c.

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
"""The c that is assumed before anything was timed: what [leviathan2023]_ give as a bound."""


def best_gamma_policy(alpha: float, cost: float, *, max_gamma: int | None = None) -> GammaPolicy:
    """Draft the number γ that is best for known α and c ([leviathan2023]_, Theorem 3.8).

    Parameters
    ----------
    alpha : float
        Acceptance rate α, in [0, 1].
    cost : float
        Time c of a call of the draft model over that of the target, at least 0.
    max_gamma : int, optional
        Most drafts of a step.

    Returns
    -------
    GammaPolicy
        Always `otm.gain.best_gamma`.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range, or every further draft pays and `max_gamma` is not given.

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
    """Estimate α and c from the steps so far, and draft the γ that is best for them.

    Best by [leviathan2023]_, Theorem 3.8; the estimates are our own design.

    The estimate of α is the share of accepted drafts among those that were verified, where a step
    counts f times as much as the one after it.  Imagined drafts are added; where none is drafted,
    they take over again, so that a γ of 0 does not last because of what was seen long ago.  The
    estimate of c is the median of the draft model's time for one level of drafts over the target's.

    Parameters
    ----------
    cost : float, optional
        The known c, at least 0; measured from the times of the steps if left out.  Then γ, and with
        it the tokens that a seed gives, differ from run to run; their distribution does not.
    max_gamma : int, optional
        Most drafts of a step, at least 1.
    prior_counts : (float, float), optional
        Numbers of accepted and of rejected drafts to begin with, at least 0 and together above 0.
    decay : float, optional
        The factor f, in [0, 1].

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.

    Notes
    -----
    Where several drafts are verified at each level, α is the share of levels that accept one of
    them.  Times are those of the whole batch: where its sequences draft different numbers, c comes
    out too large for those that draft fewer.

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
        """Estimate α.

        Parameters
        ----------
        steps : sequence of Step
            The steps of one sequence so far.

        Returns
        -------
        float
            A probability.
        """
        accepted = rejected = 0.0
        for step in steps:
            accepted = self.decay * accepted + step.accepted
            rejected = self.decay * rejected + step.rejected
        accepted, rejected = accepted + self.prior_counts[0], rejected + self.prior_counts[1]
        return accepted / (accepted + rejected)


def _measured_cost(steps: Sequence[Step]) -> float:
    costs = [
        step.seconds.draft / (step.drafted * step.seconds.target)
        for step in steps
        if step.drafted and step.seconds.target > 0
    ]
    return float(np.median(costs)) if costs else FIRST_COST
