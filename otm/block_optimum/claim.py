"""The number that SpecTr-GBV states as the optimum for several independent paths of drafts.

References
----------
.. [lin2026] Lin et al., "SpecTr-GBV: Multi-Draft Block Verification Accelerating Speculative
   Decoding", arXiv 2604.25925, 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from otm._core.arithmetic import at_least_once

Rows = Callable[[tuple[int, ...]], Sequence[Any]]
"""Function from a path to the distribution of the next token."""


def spectr_gbv_claim(draft: Rows, target: Rows, k: int, length: int) -> Any:
    """Return Σ T(y) (1 − (1 − min(D(y)/T(y), 1))^K) over all paths y of 1 to L tokens.

    D(y) and T(y) are the probabilities of a path under draft model and target.  SpecTr-GBV
    ([lin2026]_) states that no verifier of K independent paths accepts more drafts on average, and
    that its own rule attains the number.  For K = 1 this is the maximum of verifiers with a state,
    in a step without a correction.  For K ≥ 2 the number is not the optimum: other lossless rules
    accept more (Theorem 24.2 of docs/theory/several-paths.md).

    Parameters
    ----------
    draft, target : callable
        Functions from a path of tokens to the probabilities of the next token, as for
        `otm.solve_block`.
    k : int
        Number K of paths.
    length : int
        Number L of tokens of a path.

    Returns
    -------
    number
        The number; a fraction if the probabilities are fractions.

    Notes
    -----
    We know the formula from the paper's reviews and from other people's code, not from the paper.

    References
    ----------
    .. [lin2026] Lin et al., "SpecTr-GBV: Multi-Draft Block Verification Accelerating Speculative
       Decoding", arXiv 2604.25925, 2026.

    Examples
    --------
    One token and two drafts: the optimum is 1.

    >>> from fractions import Fraction as F
    >>> import otm
    >>> draft, target = [F(1, 2), F(1, 2)], [F(1, 3), F(2, 3)]
    >>> spectr_gbv_claim(lambda path: draft, lambda path: target, 2, 1), otm.alpha(draft, target, 2)
    (Fraction(23, 24), Fraction(1, 1))
    """

    def below(path: tuple[int, ...], of_draft: Any, of_target: Any) -> Any:
        if len(path) == length:
            return 0
        total: Any = 0
        rows = zip(draft(path), target(path), strict=True)
        for z, (d, t) in enumerate(rows):
            reached = of_target * t
            if reached > 0:
                ratio = min(of_draft * d / reached, 1)
                total += reached * at_least_once(ratio, k)
                total += below((*path, z), of_draft * d, reached)
        return total

    return below((), 1, 1)
