"""How many drafts γ a block should have, and whether any pays.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023, Corollary 3.9 and section 3.5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import is_exact
from otm.decoding.analysis.factors import geometric_sum
from otm.decoding.parameters import (
    LARGEST_GAMMA,
    as_costs,
    as_draft_numbers,
    as_kind,
    in_unit_interval,
    of_one_kind,
    result,
)
from otm.errors import InvalidParameterError


def single_draft_improvement(alpha: Any, cost: Any) -> Any:
    """Improvement (1 + α) / (1 + c) with a single draft ([leviathan2023]_, Corollary 3.9).

    If α > c, it is above 1, and the best γ improves by at least as much.  Otherwise it is at most
    1, and no γ improves: the mean of α, …, α^γ falls with γ, and must be above c.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    cost : float, Fraction or array
        Time c of a run of the draft model over that of the target, at least 0.

    Returns
    -------
    float, Fraction or array
        Above 1 just where some γ improves.

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, or the arguments do not broadcast.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from fractions import Fraction
    >>> single_draft_improvement(Fraction(3, 4), Fraction(1, 50))
    Fraction(175, 102)
    """
    a, c = of_one_kind(in_unit_interval(alpha, "α"), as_costs(cost, "c"))
    return result((1 + a) / (1 + c))


def oracle_speedup(alpha: Any, cost: Any = 0) -> Any:
    """Speed if γ were known to be the number of drafts that will pass ([leviathan2023]_, 3.5).

    For c = 0 it is the paper's 1/(1 − α), the mean number of tokens from a block and the bound on
    Theorem 3.8 for all γ.  With a cost, the α/(1 − α) drafts of a block on average take their time,
    and it is 1/(1 − α + α c).  No draft is wasted, but all of them are judged still.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    cost : float, Fraction or array, optional
        Time c of a run of the draft model over that of the target, at least 0.

    Returns
    -------
    float, Fraction or array
        Infinite, a float, for α = 1 and c = 0.

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, or the arguments do not broadcast.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> from fractions import Fraction
    >>> oracle_speedup(Fraction(4, 5)), oracle_speedup(1)
    (Fraction(5, 1), inf)
    """
    a, c = of_one_kind(in_unit_interval(alpha, "α"), as_costs(cost, "c"))
    time = 1 - a + a * c
    with np.errstate(over="ignore"):  # to infinity
        return result(np.where(time == 0, math.inf, 1 / np.where(time == 0, 1, time)))


def best_gamma(alpha: Any, cost: Any, *, max_gamma: int | None = None) -> Any:
    """Find the number of drafts γ that improves walltime most ([leviathan2023]_, section 3.5).

    The `walltime_improvement` rises up to one γ and never again: draft γ adds to it just if ::

        α^γ (1 + (γ − 1) c) > c (1 + α + … + α^(γ−1)),

    and the difference of the two sides falls with γ.  So the last draft that pays is bisected.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    cost : float, Fraction or array
        Time c of a run of the draft model over that of the target, at least 0.
    max_gamma : int, optional
        Most drafts that a block may have, at least 0 (2^53 if not given).

    Returns
    -------
    int or int array
        The smallest best γ; 0 where α ≤ c, since no draft pays (Corollary 3.9).

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range or the arguments do not broadcast; or if every further
        draft pays (c = 0 < α, or c < 1 = α) and `max_gamma` is not given.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> best_gamma([0.5, 0.75, 0.9], 0.02)
    array([ 4,  9, 19])
    >>> best_gamma(0.75, 0, max_gamma=8)
    8
    """
    a, c = of_one_kind(in_unit_interval(alpha, "α"), as_costs(cost, "c"))
    endless = ((c == 0) & (a > 0)) | ((a == 1) & (c < 1))
    if max_gamma is None:
        if np.any(endless):
            raise InvalidParameterError(
                "with c = 0 < α or c < 1 = α every further draft pays, so that no γ is the best; "
                "give the `max_gamma` that a block may have"
            )
        max_gamma = LARGEST_GAMMA
    limit = int(as_draft_numbers(max_gamma, "max_gamma", single=True))
    a = np.where(endless, 0, a)  # nothing to search there

    def pays(drafts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        number = as_kind(drafts, exact=is_exact(a))
        gained = a**number * (1 + (number - 1) * c)
        return np.asarray(gained > c * geometric_sum(a, number), dtype=np.bool_)

    gamma, step = np.zeros(a.shape, dtype=np.int64), 1
    while step <= limit and pays(gamma + step).any():
        step *= 2
    while step:
        further = gamma + step
        gamma = np.where((further <= limit) & pays(further), further, gamma)
        step //= 2
    return result(np.where(endless, limit, gamma))
