"""Number of drafts γ of a step: a constant, or a policy that adapts γ to the acceptance so far.

A policy receives the last steps of its sequence, at most `LONGEST_HISTORY` of them.  A policy may
use every field of a step, including times and rejected drafts.  Each step draws its drafts and
uniforms independently of earlier steps, so the output has the target's distribution for every γ.  A
policy that saw the drafts of the coming step could change the output's distribution.  In coupled
and watermarked decoding, later steps read the random numbers of unreached drafts again, so the loop
hides unreached drafts from policies.

If all drafts have the same acceptance probability α, no policy gains more than
`otm.gain.oracle_speedup`: 1/(1 − α) where drafts cost nothing ([leviathan2023]_, section 3.5).

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from otm._core.numbers import as_integer, as_positive
from otm.decoding.trace import Step

GammaPolicy = Callable[[Sequence[Step]], int]
"""Function from the last steps of a sequence to the maximum number γ ≥ 0 of drafts in a path.

A policy receives no drafts of the coming step, so decoding stays lossless.
"""


def as_policy(gamma: int | GammaPolicy) -> GammaPolicy:
    """Return a policy; an integer becomes the policy of this constant γ."""
    if callable(gamma):
        return gamma
    fixed = as_gamma(gamma)
    return lambda steps: fixed


def as_gamma(value: Any) -> int:
    """Return the number of drafts γ as an integer of at least 0."""
    return as_integer(
        value,
        "γ",
        0,
        advice="0 to decode without drafts, or a policy, which is a function from steps to γ",
    )


def huggingface_heuristic(initial_gamma: int = 5, *, max_gamma: int | None = None) -> GammaPolicy:
    """Return a policy: 2 drafts more after a step without a rejection, else 1 fewer (at least 1).

    This is the schedule "heuristic" of Hugging Face transformers.  The default of the first step,
    γ = 5, is that of [wagner2024]_.

    Parameters
    ----------
    initial_gamma : int, optional
        γ of the first step of each sequence, at least 1.
    max_gamma : int, optional
        Maximum number of drafts of a step; transformers has no such limit.

    Returns
    -------
    GammaPolicy
        The schedule, which depends on the last step only.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.

    Notes
    -----
    As in transformers (5.23), "all drafts" means the drafts that the step really had, which may be
    fewer than γ near the maximum length.  Here, a step without drafts leaves γ unchanged; in
    transformers, only the last step can have no drafts.

    In transformers, "heuristic" writes the last γ back to the assistant's generation configuration,
    and the next call continues with this γ.  Here every sequence begins with `initial_gamma`, as in
    the schedule "heuristic_transient".  The default of transformers is "constant": 20 drafts, but a
    draft model stops after a token of low probability.

    References
    ----------
    .. [wagner2024] Wagner et al., "Optimized Speculative Sampling for GPU Hardware Accelerators",
       EMNLP 2024.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> from otm.decoding import speculative
    >>> same = TableModel({(): [0.5, 0.5]})
    >>> policy = huggingface_heuristic()
    >>> steps = speculative(same, same, [[0]], gamma=policy, max_tokens=30, seed=0).steps
    >>> [step.gamma for step in steps]  # all drafts are accepted
    [5, 7, 9, 11]
    """
    first = as_positive(initial_gamma, "initial_gamma")
    if max_gamma is not None:
        as_positive(max_gamma, "max_gamma")

    def gamma(steps: Sequence[Step]) -> int:
        if not steps:
            drafts = first
        elif steps[-1].drafted == 0:
            drafts = steps[-1].gamma
        elif not steps[-1].rejected:
            drafts = steps[-1].gamma + 2
        else:
            drafts = max(1, steps[-1].gamma - 1)
        return drafts if max_gamma is None else min(drafts, max_gamma)

    return gamma
