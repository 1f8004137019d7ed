"""How likely a draft is accepted at one prefix: the divergence of the two laws, D_LK.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023, sections 3.1 and 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.distribution import as_probs_rows
from otm.decoding.parameters import in_unit_interval, of_one_kind, result


def lk_divergence(draft: Any, target: Any) -> Any:
    """Divergence D_LK(p, q) = Σ abs(p − M), M = (p + q)/2 ([leviathan2023]_, Definition 3.2).

    It is 1 − Σ min(p, q) (Lemma 3.3), symmetric, 0 for equal laws alone and 1 for laws of disjoint
    support alone (Corollary 3.4): the total variation distance.

    Parameters
    ----------
    draft, target : array-like [..., n]
        Laws along the last axis, as for `otm.solve`; the leading axes broadcast.

    Returns
    -------
    float, Fraction or array [...]
        In [0, 1].

    Raises
    ------
    InvalidDistributionError
        If a row is not a law, or the laws do not fit together.

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
    return result(np.minimum(divergence, 1))  # a sum of floats can pass one


def acceptance_from_divergence(divergence: Any) -> Any:
    """Probability β = 1 − D_LK that a draft is accepted ([leviathan2023]_, Theorem 3.5).

    The acceptance rate α of a pair of models is the mean of β over prefixes (Corollary 3.6).

    Parameters
    ----------
    divergence : float, Fraction or array
        D_LK, in [0, 1].

    Returns
    -------
    float, Fraction or array
        In [0, 1].

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
    (given,) = of_one_kind(in_unit_interval(divergence, "D_LK"))
    return result(1 - given)
