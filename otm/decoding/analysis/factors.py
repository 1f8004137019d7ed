"""What a block of γ drafts gives and costs, over decoding without drafts.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023, sections 3.1, 3.3 and 3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.arithmetic import Law, is_exact
from otm.decoding.parameters import (
    as_costs,
    as_draft_numbers,
    in_unit_interval,
    of_one_kind,
    result,
)


def expected_tokens(alpha: Any, gamma: Any) -> Any:
    """Mean number of tokens from one block, 1 + α + … + α^γ ([leviathan2023]_, Equation (1)).

    It is (1 − α^(γ+1)) / (1 − α), and γ + 1 for α = 1.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    gamma : int or int array
        Number of drafts γ in a block, at least 0.

    Returns
    -------
    float, Fraction or array
        From 1 to γ + 1.

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
    a, g = of_one_kind(in_unit_interval(alpha, "α"), as_draft_numbers(gamma))
    return result(geometric_sum(a, g + 1))


def walltime_improvement(alpha: Any, gamma: Any, cost: Any) -> Any:
    """Speed over decoding without drafts ([leviathan2023]_, Theorem 3.8).

    It is `expected_tokens` over γ c + 1, the time of a block.  The γ + 1 judgements of the target
    are assumed to run in parallel, in the time of one.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    gamma : int or int array
        Number of drafts γ in a block, at least 0.
    cost : float, Fraction or array
        Time c of a run of the draft model over that of the target (Definition 3.7), at least 0.

    Returns
    -------
    float, Fraction or array
        Above 1 where drafting pays.

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
    a, g, c = of_one_kind(
        in_unit_interval(alpha, "α"), as_draft_numbers(gamma), as_costs(cost, "c")
    )
    return result(geometric_sum(a, g + 1) / (g * c + 1))


def operations_factor(alpha: Any, gamma: Any, cost: Any) -> Any:
    """Arithmetic operations over those of decoding without drafts ([leviathan2023]_, Theorem 3.11).

    It is (γ ĉ + γ + 1) over `expected_tokens`: a block runs the target on γ + 1 positions, and what
    follows a rejected draft is wasted.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    gamma : int or int array
        Number of drafts γ in a block, at least 0.
    cost : float, Fraction or array
        Operations ĉ for a token of the draft model over those of the target (Definition 3.10), at
        least 0; not the c of time.

    Returns
    -------
    float, Fraction or array
        At least 1.

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
    a, g, c = of_one_kind(
        in_unit_interval(alpha, "α"), as_draft_numbers(gamma), as_costs(cost, "ĉ")
    )
    return result((g * c + g + 1) / geometric_sum(a, g + 1))


def memory_accesses_factor(alpha: Any, gamma: Any) -> Any:
    """Ratio of reads of the target's weights and cache to those without drafts.

    A block reads them once, so that this is the inverse of `expected_tokens`, which the paper calls
    the factor by which the reads shrink ([leviathan2023]_, section 3.4).  Reads for the draft model
    are not counted.

    Parameters
    ----------
    alpha : float, Fraction or array
        Acceptance rate α, in [0, 1].
    gamma : int or int array
        Number of drafts γ in a block, at least 0.

    Returns
    -------
    float, Fraction or array
        From 1/(γ + 1) to 1.

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
    a, g = of_one_kind(in_unit_interval(alpha, "α"), as_draft_numbers(gamma))
    return result(1 / geometric_sum(a, g + 1))


def geometric_sum(alpha: Law, terms: Law) -> Law:
    """Sum of α^i over i < terms, for α in [0, 1] and terms of at least 1: [...], [...] → [...].

    Both of one kind, floats or fractions, as from `of_one_kind`.
    """
    certain = alpha == 1
    left = np.where(certain, 1, 1 - alpha)
    if is_exact(alpha):
        return np.where(certain, terms, (1 - alpha**terms) / left)
    with np.errstate(divide="ignore"):  # log(0) = −∞, whose exponential is 0
        return np.where(certain, terms, -np.expm1(terms * np.log(alpha)) / left)
