"""Small named problems that have revealed errors in rules and solvers."""

from __future__ import annotations

from otm._core.arithmetic import as_fractions
from otm._core.numbers import check_name
from otm.problem import Problem

INSTANCES: dict[str, tuple[list[int], list[int], int]] = {
    "Bernoulli": ([3, 1], [1, 3], 2),
    "three drafts": ([5, 2, 3], [1, 4, 5], 3),
    "four tokens": ([1, 2, 3, 4], [4, 3, 1, 2], 2),
    "zeros": ([2, 2, 0, 0, 4], [0, 1, 3, 0, 4], 2),
    # The cut values of prefixes in the order of q/p have two local minima.
    "two cuts": ([7, 2, 6, 2], [1, 1, 4, 3], 2),
    "one token drafted": ([0, 1, 0], [1, 2, 3], 2),
    "one token wanted": ([1, 2, 3], [0, 1, 0], 2),
    "ties": ([1, 1, 1, 1], [1, 1, 3, 3], 2),
    "equal": ([1, 2, 3], [1, 2, 3], 2),
    "disjoint": ([1, 2, 0, 0], [0, 0, 2, 1], 2),
    "V = 1": ([1], [1], 3),
}
"""A map from names to draft weights, target weights and k."""


def instance(name: str, *, exact: bool = True) -> Problem:
    """Return a problem of `INSTANCES` by name, in fractions or floats.

    Parameters
    ----------
    name : str
        A key of `INSTANCES`, such as "Bernoulli" or "disjoint".
    exact : bool, optional
        Whether the probabilities are fractions (the default) or float64.

    Returns
    -------
    Problem
        The problem, with draft and target distributions [n] and k.

    Raises
    ------
    UnknownMethodError
        If no instance has this name; the message lists all names.

    Examples
    --------
    >>> instance("Bernoulli", exact=False).draft
    array([0.75, 0.25])
    """
    *weights, k = INSTANCES[check_name("instance", name, INSTANCES)]
    draft, target = (as_fractions(row) / sum(row) for row in weights)
    problem = Problem(draft, target, k)
    return problem if exact else problem.to_floats()
