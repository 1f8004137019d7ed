"""Small named problems on which rules and solvers have gone wrong."""

from __future__ import annotations

from otm._core.arithmetic import as_fractions
from otm._core.numbers import check_name
from otm.problem import Problem

INSTANCES: dict[str, tuple[list[int], list[int], int]] = {
    "Bernoulli": ([3, 1], [1, 3], 2),
    "three drafts": ([5, 2, 3], [1, 4, 5], 3),
    "four tokens": ([1, 2, 3, 4], [4, 3, 1, 2], 2),
    "zeros": ([2, 2, 0, 0, 4], [0, 1, 3, 0, 4], 2),
    "two cuts": ([7, 2, 6, 2], [1, 1, 4, 3], 2),  # two local minima along the prefixes in q/p
    "one token drafted": ([0, 1, 0], [1, 2, 3], 2),
    "one token wanted": ([1, 2, 3], [0, 1, 0], 2),
    "ties": ([1, 1, 1, 1], [1, 1, 3, 3], 2),
    "equal": ([1, 2, 3], [1, 2, 3], 2),
    "disjoint": ([1, 2, 0, 0], [0, 0, 2, 1], 2),
    "V = 1": ([1], [1], 3),
}
"""By name: weights of the draft and of the target distribution, and k."""


def instance(name: str, *, exact: bool = True) -> Problem:
    """Return the problem of a name in `INSTANCES`, in fractions or in floats.

    Parameters
    ----------
    name : str
        One of `INSTANCES`, such as "Bernoulli" or "disjoint".
    exact : bool, optional
        Whether the probabilities are fractions (the default) or float64.

    Returns
    -------
    Problem
        The draft and target distributions [n], and k.

    Raises
    ------
    UnknownMethodError
        If there is no instance of this name; the message lists the known ones.

    Examples
    --------
    >>> instance("Bernoulli", exact=False).draft
    array([0.75, 0.25])
    """
    *weights, k = INSTANCES[check_name("instance", name, INSTANCES)]
    draft, target = (as_fractions(row) / sum(row) for row in weights)
    problem = Problem(draft, target, k)
    return problem if exact else problem.to_floats()
