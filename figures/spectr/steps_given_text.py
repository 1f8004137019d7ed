"""Mean number of steps of a loop with drafts for a given text.

The text of a lossless loop has the target's distribution for all drafts.  So the text may be drawn
first, without drafts, and shared by all draft models, rules, K and L.  Given the text, the number
of chains that agree with it is a Markov chain.  At a token x it goes from m chains to j with
probability Pr(Y = x and j of m drafts are x) / q(x), where Y is the rule's selected token.  From
j = 0, and after the token that follows the last draft, the next step begins with K chains.  One
pass over the text sums the probabilities that a step begins at each token, so only the text is
random.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from otm.coupling import KSeq, OptimalPlan, RecursiveRejection, TransportPlan
from otm.errors import InvalidParameterError

Floats = npt.NDArray[np.float64]
Polynomial = npt.NDArray[np.complex128]


def survivors(plan: TransportPlan, token: int) -> Floats:
    """Return the distribution of the number of drafts equal to the output, given the output.

    Parameters
    ----------
    plan : KSeq, RecursiveRejection or OptimalPlan
        The rule for k drafts, in floats.
    token : int
        The output, a token of positive target probability.

    Returns
    -------
    float64 array [k + 1]
        Probability of each number from 0 to k.

    Raises
    ------
    InvalidParameterError
        If the plan is of another type.

    Notes
    -----
    The probabilities are the coefficients of a polynomial, where each draft equal to the output
    contributes a factor z.  The polynomial is evaluated at roots of unity.

    Examples
    --------
    >>> from otm import Problem
    >>> plan = KSeq(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> survivors(plan, 0).round(3), survivors(plan, 1).round(3)
    (array([0.   , 0.157, 0.843]), array([0.469, 0.448, 0.083]))
    """
    if type(plan) not in (
        KSeq,
        RecursiveRejection,
        OptimalPlan,
    ):  # a subclass may select differently
        raise InvalidParameterError(
            f"a plan of type {type(plan).__name__}; how many drafts are equal to its output is "
            "worked out for KSeq, RecursiveRejection and OptimalPlan"
        )
    k = plan.problem.k
    z = roots_of_unity(k)
    if isinstance(plan, OptimalPlan):
        masses = _highest_slot(plan, token, z)
    else:
        rounds = np.zeros((1, k, 2))  # tests that are never reached have probability 0
        for i, passing in enumerate(_passing(plan)):
            rounds[0, i] = passing[token], passing.sum()
        p, q = (probs[token : token + 1] for probs in (plan.problem.draft, plan.problem.target))
        masses = first_that_passes(rounds, p, q, z)[0]
    distribution: Floats = np.fft.fft(masses).real / ((k + 1) * plan.problem.target[token])
    return distribution


def roots_of_unity(k: int) -> Polynomial:
    """Return the k + 1 points for polynomials of degree k; the first point is 1."""
    roots: Polynomial = np.exp(2j * np.pi * np.arange(k + 1) / (k + 1))
    return roots


def _passing(plan: TransportPlan) -> Iterator[Floats]:
    """Return, for each draft in turn, the probability that it is a token [V] and passes."""
    draft, target = plan.problem.draft, plan.problem.target
    if isinstance(plan, KSeq):
        yield from [draft * plan.accept_probability] * plan.problem.k
    elif isinstance(plan, RecursiveRejection):
        for cap, mass in plan.rounds:
            yield np.minimum(np.maximum(target - cap * draft, 0) / mass, draft)


def first_that_passes(rounds: Floats, p: Floats, q: Floats, z: Polynomial) -> Polynomial:
    """Return the masses [T, k + 1] of tokens as first passing draft or as residual draw.

    For each of T tokens, with probabilities p and q, and for each draft, `rounds` [T, k, 2] has two
    probabilities: that the draft is this token and passes, and that it passes.
    """
    k = rounds.shape[1]
    own, passing = rounds[..., :1], rounds[..., 1:]
    failed = p[:, None, None] - own
    goes_on = 1 - passing - failed + failed * z  # [T, k, k + 1]
    start = np.ones((len(p), 1, k + 1))
    tested = np.cumprod(np.concatenate([start, goes_on], axis=1), axis=1)
    each = (1 - p)[:, None, None] + p[:, None, None] * z
    untested = each ** np.arange(k - 1, -1, -1)[:, None]
    masses: Polynomial = (tested[:, :-1] * own * z * untested).sum(1)
    accepted, left = masses[:, :1].real, tested[:, -1, :1].real  # at z = 1
    drawn = np.where(left > 0, q[:, None] - accepted, 0) / np.where(left > 0, left, 1)
    return masses + tested[:, -1] * drawn


def _highest_slot(plan: OptimalPlan, token: int, z: Polynomial) -> Polynomial:
    """Return the masses of a token that wins in the highest slot or is drawn from the residual.

    A token drawn from the residual is never among the drafts.  Otherwise the rule, which accepts
    with the largest possible probability, would not be optimal.
    """
    p, k = plan.problem.draft[token], plan.problem.k
    from_residual = plan.problem.target[token] - plan.accepted_mass[token]
    masses: Polynomial = np.full(k + 1, from_residual, dtype=np.complex128)
    if p > 0:
        slots, distribution = plan.slot_distribution(token)
        below = plan.slots.bins.draft_below
        own = p * np.concatenate([[0], np.cumsum(distribution)])
        lower, not_higher = (
            (below[slots + i] - own[i : len(distribution) + i])[:, None]
            + own[i : len(distribution) + i, None] * z
            for i in (0, 1)
        )
        wins: Polynomial = sum(lower**i * not_higher ** (k - 1 - i) for i in range(k))
        masses += plan.accept_probability[token] * (p * distribution @ wins) * z
    return masses


def expected_steps(moves: Floats, k: int, gamma: int) -> Floats:
    """Return the mean number of steps of a loop for each text; the end of the text cuts the last.

    Parameters
    ----------
    moves : float64 array [R, T, K + 1, K + 1]
        Results of `survivors_along` for R texts of T tokens.
    k, gamma : int
        Number K of chains, at most that of the array, and number γ of drafts per chain.

    Returns
    -------
    float64 array [R]
        Numbers between T/(γ + 1) and T.

    Examples
    --------
    >>> equal = np.ones((1, 6, 2, 2)) * [0.0, 1.0]  # the draft is always accepted
    >>> expected_steps(equal, 1, 2)
    array([2.])
    """
    texts, length = moves.shape[:2]
    begun, steps = np.ones(texts), np.zeros(texts)
    # Indexed by the number of drafts so far, and by the number of agreeing chains.
    agreeing = np.zeros((texts, gamma + 1, k + 1))
    for t in range(length):
        steps += begun
        agreeing[:, 0, k] = begun
        moved = agreeing[:, :gamma] @ moves[:, t, : k + 1, : k + 1]
        begun = moved[:, :, 0].sum(1) + agreeing[:, gamma].sum(1)
        agreeing = np.zeros_like(agreeing)
        agreeing[:, 1:, 1:] = moved[:, :, 1:]
    return steps
