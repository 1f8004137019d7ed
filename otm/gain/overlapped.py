"""Formulas for the gain if the draft model drafts while the target verifies.

The assumptions are those of `otm.gain.formulas`: each draft is accepted with the same probability
α, independently of the others, and a call of the draft model costs c calls of the target.  The two
models run on different devices.  The proofs are in docs/theory/prepared.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otm.gain.parameters import (
    as_costs,
    as_draft_numbers,
    as_one_type,
    geometric_sum,
    in_unit_interval,
    result,
)


def mean_hit_rate(alpha: Any, gamma: Any, after_rejection: Any, after_acceptance: Any) -> Any:
    """Return the share of steps whose outcome was prepared.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    gamma : int or int array
        Number of drafts γ in a block, at least 0.
    after_rejection : float, Fraction or array
        Probability that the replacement of a rejected draft was prepared, for example the hits of
        `otm.optimum.most_hits` divided by the probability of a rejection.
    after_acceptance : float, Fraction or array
        Probability that the token after a block of accepted drafts was prepared.

    Returns
    -------
    float, Fraction or array
        The rate (1 − α^γ) h_rejection + α^γ h_acceptance.

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, or the arguments do not broadcast.

    Examples
    --------
    >>> mean_hit_rate(0.5, gamma=2, after_rejection=0.5, after_acceptance=0.75)
    0.5625
    """
    a, g, rejected, accepted = as_one_type(
        in_unit_interval(alpha),
        as_draft_numbers(gamma),
        in_unit_interval(after_rejection, "after_rejection"),
        in_unit_interval(after_acceptance, "after_acceptance"),
    )
    complete = a**g
    return result((1 - complete) * rejected + complete * accepted)


def overlapped_improvement(
    alpha: Any,
    gamma: Any,
    cost: Any,
    hit_rate: Any,
    *,
    preparation: Any = None,
    backup: Any = None,
) -> Any:
    """Return the speed relative to decoding without drafts, with prepared continuations.

    While the target verifies a block, the draft model prepares blocks that continue some outcomes
    ([kumar2026]_).  If the outcome was prepared, the next call of the target can start at once.
    Otherwise it waits for new drafts.  The speed is ::

        (1 + α + … + α^γ) / (max(1, preparation) + (1 − hit_rate) backup).

    Parameters
    ----------
    alpha, gamma, cost
        As for `walltime_improvement`.
    hit_rate : float, Fraction or array
        Share of steps whose outcome was prepared, as from `mean_hit_rate`.
    preparation : float, Fraction or array, optional
        Time for preparing all continuations, in calls of the target; γ c if omitted, as if one call
        extended all continuations by one token in the time of a single row.
    backup : float, Fraction or array, optional
        Time for drafting after an outcome that was not prepared; γ c if omitted.

    Returns
    -------
    float, Fraction or array
        The speed.  With `hit_rate` 0 and preparation of at most 1, it is the speed of
        `walltime_improvement`.

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, or the arguments do not broadcast.

    Notes
    -----
    The backup drafts must be accepted as often as the prepared ones.

    References
    ----------
    .. [kumar2026] Kumar, Dao and May, "Speculative Speculative Decoding", 2026.

    Examples
    --------
    >>> from otm.gain import walltime_improvement
    >>> speeds = [overlapped_improvement(0.75, 4, cost=0.125, hit_rate=h) for h in (0, 0.5, 1)]
    >>> [round(speed, 2) for speed in speeds], round(walltime_improvement(0.75, 4, 0.125), 2)
    ([2.03, 2.44, 3.05], 2.03)
    """
    times = [
        as_costs(0 if value is None else value, name)
        for name, value in (("preparation", preparation), ("backup", backup))
    ]
    a, g, c, h, prepare, again = as_one_type(
        in_unit_interval(alpha),
        as_draft_numbers(gamma),
        as_costs(cost),
        in_unit_interval(hit_rate, "h"),
        *times,
    )
    prepare = g * c if preparation is None else prepare
    again = g * c if backup is None else again
    time = np.maximum(1 + 0 * prepare, prepare) + (1 - h) * again
    return result(geometric_sum(a, g + 1) / time)


def parallel_improvement(alpha: Any, gamma: Any, cost: Any) -> Any:
    """Return the speed relative to decoding without drafts, if one chain is drafted without pause.

    This is PEARL ([liu2025pearl]_): while the target verifies γ drafts, the draft model drafts the
    γ tokens after them, as if all were accepted.  After a rejection the target verifies the first
    draft of the next block while the other drafts are made.  Each phase takes max(1, γ c) calls of
    the target.

    Parameters
    ----------
    alpha, cost
        As for `walltime_improvement`.
    gamma : int or int array
        Number of drafts γ of a phase, at least 1.

    Returns
    -------
    float, Fraction or array
        The speed.

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, or the arguments do not broadcast.

    References
    ----------
    .. [liu2025pearl] Liu et al., "PEARL: Parallel Speculative Decoding with Adaptive Draft Length",
       ICLR 2025.

    Examples
    --------
    >>> from fractions import Fraction
    >>> parallel_improvement(Fraction(1, 2), 2, Fraction(1, 2))
    Fraction(12, 11)
    """
    a, g, c = as_one_type(in_unit_interval(alpha), as_draft_numbers(gamma, least=1), as_costs(cost))
    # phases per rejection, times 1 − α: one, one more if a draft is left to verify, and one for
    # each complete block
    phases = (1 - a) * (1 + np.where(g > 1, a, 0 * a)) + a**g / geometric_sum(a, g)
    time = np.maximum(1 + 0 * c, g * c)
    return result(1 / (phases * time))
