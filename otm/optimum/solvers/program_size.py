"""How large the linear program of OTM-k is, before anything of it is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, Context

import numpy as np

from otm.errors import ProblemTooLargeError
from otm.optimum.multisets import MEMORY_LIMIT, multiset_count, scientific
from otm.problem import Problem

# The growth of the peak resident set of a fresh process that builds a program and solves it with
# highspy 1.15 on Linux, bounded from above: k from 1 to 1,000, up to 360,000 variables, uniform,
# Dirichlet and softmax laws.  The sum below was 1.1 to 1.6 times what was measured.
BYTES_FIXED = 10_000_000
BYTES_PER_VARIABLE = 1_000
BYTES_PER_ROW = 500
BYTES_PER_DRAFT = 24  # of every multiset, while they are listed


@dataclass(frozen=True)
class LinearProgramSize:
    """How large the packing form of a problem is.

    Attributes
    ----------
    variables, rows : int
        Of the constraint matrix.
    bytes : int
        Peak memory of building and solving it, estimated.

    Examples
    --------
    >>> size = size_of(Problem([0.75, 0.25], [0.25, 0.75], k=2))
    >>> size.variables, size.rows  # three multisets and two tokens
    (4, 5)
    """

    variables: int
    rows: int
    bytes: int


def size_of(problem: Problem) -> LinearProgramSize:
    """Size of the packing form, computed without building it.

    Parameters
    ----------
    problem : Problem
        The draft law, the target law and the number of drafts.

    Returns
    -------
    LinearProgramSize
        Variables, rows, and an estimate of the bytes, whatever they are.

    Examples
    --------
    >>> size_of(Problem([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], k=2))
    LinearProgramSize(variables=9, rows=9, bytes=10013788)
    """
    draftable = problem.draft > 0
    live = int(np.count_nonzero(draftable & (problem.target > 0)))
    m = live + int(live < np.count_nonzero(draftable))
    # a token y is in as many multisets as there are of k − 1 tokens, to which one y is added
    variables = live * math.comb(m + problem.k - 2, problem.k - 1)
    sets = multiset_count(m, problem.k)
    rows = sets + live
    needed = BYTES_FIXED + BYTES_PER_VARIABLE * variables + BYTES_PER_ROW * rows
    return LinearProgramSize(variables, rows, needed + BYTES_PER_DRAFT * problem.k * sets)


def check_size(problem: Problem, memory_limit: int = MEMORY_LIMIT) -> None:
    """Refuse a problem whose linear program would take more than so many bytes, by estimate."""
    size = size_of(problem)
    if size.bytes <= memory_limit:
        return
    form_of_equation_4 = Context(prec=9, Emax=MAX_EMAX).power(problem.n, problem.k + 1)
    raise ProblemTooLargeError(
        f"the linear program for n = {problem.n:,} tokens and k = {problem.k:,} drafts has "
        f"{scientific(size.variables)} variables over draft multisets (n^(k+1) = "
        f"{scientific(form_of_equation_4)} as SpecTr's equation 4 has it) and would take about "
        f"{scientific(size.bytes)} bytes, above the limit of {memory_limit:,} bytes "
        '(memory_limit); method="closed-form" solves the same problem exactly at any size'
    )
