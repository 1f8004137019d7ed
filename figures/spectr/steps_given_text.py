"""How many steps a loop with drafts takes for one text, on average over all else.

The text that a lossless loop writes has the distribution of the target, whatever drafts.  So it may
be drawn first, without drafts, and be shared by all draft models, rules, K and L.  Given the text,
the number of chains that agree with it is a Markov chain: at a token x it goes from m chains to j
with probability Pr(Y = x and j of m drafts are x) / q(x), where Y is what the rule selects.  From
j = 0, and behind the token that follows the last draft, the next step begins with K chains.  One
pass over the text adds up how likely a step is to begin at each token; nothing but the text is left
to chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otm.coupling import KSeq, OptimalPlan, RecursiveRejection, TransportPlan
from otm.coupling.build import PlanBuilder
from otm.errors import InvalidParameterError
from otm.problem import Problem

Floats = npt.NDArray[np.float64]
Polynomial = npt.NDArray[np.complex128]


def survivors(plan: TransportPlan, token: int) -> Floats:
    """Distribution of the number of drafts that are equal to the output, given the output.

    Parameters
    ----------
    plan : KSeq, RecursiveRejection or OptimalPlan
        The rule for k drafts, in floats.
    token : int
        The output, a token that the target can give.

    Returns
    -------
    float64 array [k + 1]
        The probability of each number from 0 to k.

    Raises
    ------
    InvalidParameterError
        If the rule is another one.

    Notes
    -----
    The numbers are the coefficients of a polynomial, in which every draft that is equal to the
    output brings a factor z; it is evaluated at roots of unity.

    Examples
    --------
    >>> plan = KSeq(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> survivors(plan, 0).round(3), survivors(plan, 1).round(3)
    (array([0.   , 0.157, 0.843]), array([0.469, 0.448, 0.083]))
    """
    if type(plan) not in (KSeq, RecursiveRejection, OptimalPlan):  # a subclass selects otherwise
        raise InvalidParameterError(
            f"a plan of type {type(plan).__name__}; how many drafts are equal to its output is "
            "worked out for KSeq, RecursiveRejection and OptimalPlan"
        )
    k = plan.problem.k
    z = np.exp(2j * np.pi * np.arange(k + 1) / (k + 1))
    if isinstance(plan, OptimalPlan):
        masses = _highest_slot(plan, token, z)
    elif isinstance(plan, KSeq):
        one_draft = plan.problem.draft * plan.accept_probability
        passed = np.array([[one_draft[token], one_draft.sum()]])
        masses = _first_that_passes(plan, np.repeat(passed, k, axis=0), token, z)
    else:
        assert isinstance(plan, RecursiveRejection)
        passed = np.zeros((k, 2))  # nothing in rounds that are never reached
        for i, (cap, mass) in enumerate(plan.rounds):
            wanted = np.maximum(plan.problem.target - cap * plan.problem.draft, 0) / mass
            of_round = np.minimum(wanted, plan.problem.draft)
            passed[i] = of_round[token], of_round.sum()
        masses = _first_that_passes(plan, passed, token, z)
    distribution: Floats = np.fft.fft(masses).real / ((k + 1) * plan.problem.target[token])
    return distribution


def _first_that_passes(
    plan: KSeq | RecursiveRejection, passed: Floats, token: int, z: Polynomial
) -> Polynomial:
    """Masses of a token that is the first draft to pass, or is drawn from the residual.

    `passed` has, for each draft, the probability to be this token and pass, and to pass at all.
    """
    p, k = plan.problem.draft[token], len(passed)
    failed = p - passed[:, :1]
    goes_on = 1 - passed[:, 1:] - failed + failed * z  # [k, k + 1]
    tested = np.cumprod(np.concatenate([np.ones((1, k + 1)), goes_on]), axis=0)
    untested = (1 - p + p * z) ** np.arange(k - 1, -1, -1)[:, None]
    masses: Polynomial = (tested[:-1] * passed[:, :1] * z * untested).sum(0)
    accepted, left = masses[0], tested[-1, 0]  # at z = 1
    if left.real > 0:
        masses += tested[-1] * (plan.problem.target[token] - accepted) / left
    return masses


def _highest_slot(plan: OptimalPlan, token: int, z: Polynomial) -> Polynomial:
    """Masses of a token that wins in the highest slot, or is drawn from the residual.

    A token that the residual can give is never among the drafts then: else the rule, which accepts
    with the largest possible probability, would not be optimal.
    """
    p, k = plan.problem.draft[token], plan.problem.k
    from_residual = plan.problem.target[token] - plan.accepted_mass[token]
    masses: Polynomial = np.full(k + 1, from_residual, dtype=np.complex128)
    if p > 0:
        order = plan.problem.by_ratio
        slots, distribution = plan.slots.slot_law(int(np.argmax(order.tokens == token)))
        own = p * np.concatenate([[0], np.cumsum(distribution)])
        lower, not_higher = (
            (order.draft_below[slots + i] - own[i : len(distribution) + i])[:, None]
            + own[i : len(distribution) + i, None] * z
            for i in (0, 1)
        )
        wins: Polynomial = sum(lower**i * not_higher ** (k - 1 - i) for i in range(k))
        masses += plan.accept_probability[token] * (p * distribution @ wins) * z
    return masses


def survivors_along(
    rules: Sequence[PlanBuilder], draft: Floats, target: Floats, tokens: Sequence[int], most: int
) -> Floats:
    """Distribution of `survivors` at each token of a text, for each rule and number of drafts.

    Parameters
    ----------
    rules : sequence of callable
        From a problem to a plan: `KSeq`, `RecursiveRejection` or `OptimalPlan`.
    draft, target : float64 array [T, V]
        The distributions of the tokens.
    tokens : sequence of T int
        The text.
    most : int
        Largest number of drafts K.

    Returns
    -------
    float64 array [rules, T, K + 1, K + 1]
        Entry [i, t, m, j] is the probability that j of m drafts are equal to the token.
    """
    found = np.zeros((len(rules), len(tokens), most + 1, most + 1))
    for t, token in enumerate(tokens):
        for m in range(1, most + 1):
            problem = Problem(draft[t], target[t], m)
            for i, rule in enumerate(rules):
                found[i, t, m, : m + 1] = survivors(rule(problem), token)
    return found


def expected_steps(moves: Floats, k: int, gamma: int) -> Floats:
    """Mean number of steps that a loop takes for each text, the last one cut where the text ends.

    Parameters
    ----------
    moves : float64 array [R, T, K + 1, K + 1]
        From `survivors_along`, for R texts of T tokens.
    k, gamma : int
        K chains of γ drafts, K as in the array or below.

    Returns
    -------
    float64 array [R]
        Between T/(γ + 1) and T.

    Examples
    --------
    >>> equal = np.ones((1, 6, 2, 2)) * [0.0, 1.0]  # the one draft is always right
    >>> expected_steps(equal, 1, 2)
    array([2.])
    """
    texts, length = moves.shape[:2]
    begun, steps = np.ones(texts), np.zeros(texts)
    agreeing = np.zeros((texts, gamma + 1, k + 1))  # by number of drafts so far, and of chains
    for t in range(length):
        steps += begun
        agreeing[:, 0, k] = begun
        moved = agreeing[:, :gamma] @ moves[:, t, : k + 1, : k + 1]
        begun = moved[:, :, 0].sum(1) + agreeing[:, gamma].sum(1)
        agreeing = np.zeros_like(agreeing)
        agreeing[:, 1:, 1:] = moved[:, :, 1:]
    return steps
