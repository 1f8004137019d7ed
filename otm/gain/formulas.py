"""Formulas for the gain of speculative decoding: Leviathan et al., Definition 3.2 to Theorem 3.11.

A block drafts γ tokens, and the target model verifies them in one call. Each draft is accepted with
the same probability α, independently of the others (the assumption of section 3.1). All drafts
after the first rejected draft are lost. A call of the draft model costs c calls of the target.

Every function takes numbers or arrays, which broadcast, and returns a number or an array. If α
and c are fractions, or integers together with a fraction, the result is exact; otherwise it is in
float64. All results hold at α = 1, where the printed formulas are 0/0.

The paper has two errors. Corollary 3.6 writes E(min(p, q)) for the mean of Σ_x min(p(x), q(x)).
Appendix A.5 states improvements of 2.5, 3.1, 3.6 and 5 at c = 0.015. Theorem 3.8 gives 2.33, 2.94,
3.45 and 4.79, and rounding of the printed α does not explain the differences.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import is_exact
from otm._core.probs.distribution import as_probs_rows
from otm.errors import InvalidParameterError
from otm.gain.parameters import (
    LARGEST_GAMMA,
    as_costs,
    as_draft_numbers,
    as_kind,
    as_one_type,
    geometric_sum,
    in_unit_interval,
    result,
)


def lk_divergence(draft: Any, target: Any) -> Any:
    """Return the divergence D_LK(p, q) = Σ abs(p − M), M = (p + q)/2.

    D_LK (Definition 3.2 of [leviathan2023]_) is symmetric, and equals 1 − Σ min(p, q) (Lemma 3.3),
    the total variation distance. It is 0 only if p = q, and 1 only if the supports of p and q are
    disjoint (Corollary 3.4).

    Parameters
    ----------
    draft, target : array-like [..., n]
        Distributions along the last axis, as for `otm.solve`; the leading axes broadcast.

    Returns
    -------
    float, Fraction or array [...]
        The divergence, in [0, 1].

    Raises
    ------
    InvalidDistributionError
        If a row is not a distribution, or the two shapes do not broadcast.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> lk_divergence([0.75, 0.25], [[0.25, 0.75], [0.75, 0.25]])
    array([0.5, 0. ])
    """
    p, q = as_probs_rows(draft, target)
    divergence = np.abs(p - q).sum(axis=-1) / 2
    return result(np.minimum(divergence, 1))  # rounding can bring a sum of floats above one


def acceptance_from_divergence(divergence: Any) -> Any:
    """Return the probability β = 1 − D_LK that a draft is accepted ([leviathan2023]_, Theorem 3.5).

    The acceptance rate α of two models is the mean of β over prefixes (Corollary 3.6).

    Parameters
    ----------
    divergence : float, Fraction or array
        D_LK, in [0, 1].

    Returns
    -------
    float, Fraction or array
        The probability, in [0, 1].

    Raises
    ------
    InvalidParameterError
        If the divergence is not in [0, 1].

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> acceptance_from_divergence(lk_divergence([0.75, 0.25], [0.25, 0.75]))
    0.5
    """
    return result(1 - as_one_type(in_unit_interval(divergence, "D_LK"))[0])


def expected_tokens(alpha: Any, gamma: Any) -> Any:
    """Return the mean tokens per block, 1 + α + … + α^γ ([leviathan2023]_, Equation (1)).

    The sum is (1 − α^(γ+1)) / (1 − α), and γ + 1 for α = 1.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    gamma : int or int array
        Number of drafts γ in a block, at least 0.

    Returns
    -------
    float, Fraction or array
        The mean, from 1 to γ + 1.

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
    >>> expected_tokens(Fraction(1, 2), 2)
    Fraction(7, 4)
    >>> expected_tokens(1, [0, 4])
    array([1., 5.])
    """
    a, g = as_one_type(in_unit_interval(alpha), as_draft_numbers(gamma))
    return result(geometric_sum(a, g + 1))


def walltime_improvement(alpha: Any, gamma: Any, cost: Any) -> Any:
    """Return the speed relative to decoding without drafts ([leviathan2023]_, Theorem 3.8).

    The speed is `expected_tokens` divided by γ c + 1, the time of a block. The target is assumed to
    read γ + 1 positions in the time of one position.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.
    cost : float, Fraction or array
        Time c of a draft model call divided by the time of a target call (Definition 3.7), at
        least 0.

    Returns
    -------
    float, Fraction or array
        The speed; above 1 if drafting pays.

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
    >>> round(walltime_improvement(0.8, gamma=5, cost=0), 2)
    3.69
    """
    a, g, c = as_one_type(in_unit_interval(alpha), as_draft_numbers(gamma), as_costs(cost))
    return result(geometric_sum(a, g + 1) / (g * c + 1))


def operations_factor(alpha: Any, gamma: Any, cost: Any) -> Any:
    """Return the arithmetic operations relative to decoding without drafts.

    By [leviathan2023]_, Theorem 3.11, the factor is (γ ĉ + γ + 1) / `expected_tokens`. A block runs
    the target on γ + 1 positions, and the positions after a rejected draft are wasted.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.
    cost : float, Fraction or array
        Operations ĉ per token of the draft model divided by operations per token of the target
        (Definition 3.10), at least 0. Elsewhere `cost` is not ĉ but c, a ratio of times.

    Returns
    -------
    float, Fraction or array
        The factor, at least 1.

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
    >>> round(operations_factor(0.8, gamma=5, cost=0), 2)
    1.63
    """
    a, g, c = as_one_type(in_unit_interval(alpha), as_draft_numbers(gamma), as_costs(cost, "ĉ"))
    return result((g * c + g + 1) / geometric_sum(a, g + 1))


def memory_accesses_factor(alpha: Any, gamma: Any) -> Any:
    """Return the reads of the target's weights and cache relative to decoding without drafts.

    The target reads its weights and its cache once for each block, so the reads shrink by the
    factor `expected_tokens` ([leviathan2023]_, section 3.4). The ratio is its inverse. Reads of the
    draft model are not counted.

    Parameters
    ----------
    alpha, gamma
        As for `expected_tokens`.

    Returns
    -------
    float, Fraction or array
        The ratio, from 1/(γ + 1) to 1.

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
    >>> memory_accesses_factor(Fraction(1, 2), 2)
    Fraction(4, 7)
    """
    return 1 / expected_tokens(alpha, gamma)


def single_draft_improvement(alpha: Any, cost: Any) -> Any:
    """Return the speed (1 + α) / (1 + c) with a single draft ([leviathan2023]_, Corollary 3.9).

    If α > c, the speed is above 1, and the best γ is at least as fast. If α ≤ c, the speed is at
    most 1, and no γ helps: drafting pays only if the mean of α, …, α^γ exceeds c, and that mean
    falls with γ.

    Parameters
    ----------
    alpha, cost
        As for `walltime_improvement`.

    Returns
    -------
    float, Fraction or array
        The speed; above 1 if and only if some γ makes decoding faster.

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
    a, c = as_one_type(in_unit_interval(alpha), as_costs(cost))
    return result((1 + a) / (1 + c))


def oracle_speedup(alpha: Any, cost: Any = 0) -> Any:
    """Return the speed if γ always equals the number of accepted drafts ([leviathan2023]_, 3.5).

    For c = 0 the speed is the paper's 1/(1 − α): the mean number of tokens per block, and the upper
    bound of Theorem 3.8 over all γ. For c > 0 the speed is 1/(1 − α + α c), because the drafts of
    accepted tokens take time.

    Parameters
    ----------
    alpha, cost
        As for `walltime_improvement`.

    Returns
    -------
    float, Fraction or array
        The speed; the float infinity for α = 1 and c = 0.

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
    a, c = as_one_type(in_unit_interval(alpha), as_costs(cost))
    time = 1 - a + a * c
    # 1 divided by a tiny time may overflow to infinity
    with np.errstate(over="ignore"):
        return result(np.where(time == 0, math.inf, 1 / np.where(time == 0, 1, time)))


def best_gamma(alpha: Any, cost: Any, *, max_gamma: int | None = None) -> Any:
    """Find the number of drafts γ with the highest speed ([leviathan2023]_, section 3.5).

    The `walltime_improvement` rises up to one γ and does not rise again. Draft number γ raises
    the speed if and only if ::

        α^γ (1 + (γ − 1) c) > c (1 + α + … + α^(γ−1)).

    The left side minus the right side falls with γ, so bisection finds the last draft that pays.

    Parameters
    ----------
    alpha, cost
        As for `walltime_improvement`.
    max_gamma : int, optional
        Largest allowed number of drafts in a block, at least 0; 2^53 if omitted.

    Returns
    -------
    int or int array
        The smallest best γ; 0 if α ≤ c, because then no draft pays (Corollary 3.9).

    Raises
    ------
    InvalidParameterError
        If an argument is outside its range, the arguments do not broadcast, or every further draft
        pays (c = 0 < α, or c < 1 = α) and `max_gamma` is omitted.

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
    a, c = as_one_type(in_unit_interval(alpha), as_costs(cost))
    endless = ((c == 0) & (a > 0)) | ((a == 1) & (c < 1))
    if max_gamma is None and np.any(endless):
        raise InvalidParameterError(
            "with c = 0 < α or c < 1 = α every further draft pays, so no γ is best; give "
            "`max_gamma`, the largest γ of a block"
        )
    limit = LARGEST_GAMMA if max_gamma is None else max_gamma
    limit = int(as_draft_numbers(limit, "max_gamma", single=True))
    a = np.where(endless, 0, a)  # an unlimited γ needs no search

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
