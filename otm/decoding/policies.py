"""How many drafts γ a step asks for: always the same number, or one that follows what was accepted.

A policy sees the steps of its sequence that are over, the last `LONGEST_HISTORY` of the loop, and
so it may look at whatever they hold, their times and their rejected drafts included.  Given all of
this, a step draws its drafts and coins afresh, and so what it outputs, continued by the target, has
the distribution of the target whatever γ is.  A policy that saw the drafts of the step itself would
break this.  Where a key draws, by the clocks of positions, later steps read again what decided
about drafts that were not reached: policies are not shown these.

No policy gains more than `otm.gain.oracle_speedup` with its α, if every draft is accepted with
the same probability: 1/(1 − α) where drafts cost nothing ([leviathan2023]_, section 3.5).

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
"""From the last steps of a sequence to the most drafts γ ≥ 0 of a path in the next one.

It sees nothing of the drafts to come, so that decoding stays lossless.
"""


def as_policy(gamma: int | GammaPolicy) -> GammaPolicy:
    """Return a policy, that of a fixed γ for a number."""
    if callable(gamma):
        return gamma
    fixed = as_gamma(gamma)
    return lambda steps: fixed


def as_gamma(value: Any) -> int:
    """Return a number of drafts γ, an integer of at least 0."""
    return as_integer(
        value,
        "γ",
        0,
        advice="0 to decode without drafts, or a policy: a function from the steps so far to γ",
    )


def huggingface_heuristic(initial_gamma: int = 5, *, max_gamma: int | None = None) -> GammaPolicy:
    """Draft 2 more after a step that accepted all drafts, and otherwise 1 fewer, but at least 1.

    The schedule "heuristic" of Hugging Face transformers, with γ = 5 at first as in
    [wagner2024]_.

    Parameters
    ----------
    initial_gamma : int, optional
        γ of the first step of each sequence, at least 1.
    max_gamma : int, optional
        Most drafts of a step; there is no such limit in transformers.

    Returns
    -------
    GammaPolicy
        The schedule, which nothing but the last step decides.

    Raises
    ------
    InvalidParameterError
        If a number is outside its range.

    Notes
    -----
    As in transformers (5.23), all drafts counts as what was really drafted, which may be fewer than
    γ near the longest length allowed.  A step that drafted nothing leaves γ as it is here; there it
    can be the last one only.

    Across calls, "heuristic" there writes the last γ back to the assistant's generation
    configuration, so that the next call goes on with it; here every sequence begins with
    `initial_gamma`, as "heuristic_transient" does.  Neither is the default there, which is
    "constant", 20 drafts, of which a draft model leaves off those that follow an unlikely one.

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
