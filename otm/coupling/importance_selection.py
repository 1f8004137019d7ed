"""Importance selection, then one-draft rejection (Khisti et al., ICLR 2025)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import (
    Number,
    Probs,
    as_number,
    at_least_once,
    at_most_one,
    read_only,
    scatter_sum,
)
from otm._core.checks import Drafts, Uniforms, as_numbers
from otm._core.quadrature import log_trapezoid, node_chunks
from otm.coupling.residual import ResidualPlan, acceptance_ratio
from otm.errors import InvalidParameterError, ProblemTooLargeError
from otm.optimum.multisets import (
    first_occurrences,
    multiset_count,
    multiset_probabilities,
    multisets,
    scientific,
)
from otm.problem import Problem

LARGEST_ENUMERATION = 20_000
"""Most entries that the table of multisets may have over which an exact plan is summed."""

LARGEST_RATIO = 2.0**500
"""Float ratios q/p above this weigh as much as this: such tokens are never drafted in practice."""

SMALLEST_FLOAT = 2.0**-1074

SMALLEST_WEIGHT = 2.0**-1000
"""Float weights below this, relative to the largest, are taken as zero."""


@dataclass(frozen=True, eq=False)
class ImportanceSelection(ResidualPlan):
    """Choose one draft by importance weights, then accept or reject it alone.

    Draft m is chosen with probability w(x_m) / Σ_j w(x_j), all alike if every weight is zero.  Let
    p_I be the distribution of the chosen token.  It is accepted with probability min(1, q/p_I), as
    one draft from p_I would be; otherwise the output is drawn from the residual ∝ max(q − p_I, 0)
    ([khisti2025]_: importance weighted sampling, then speculative sampling with one draft).  The
    weights are fixed, one a token, and those of importance sampling, w = q/p, if left out.

    The paper proves that an optimal rule has this form if the probability of choosing each draft
    may depend on the whole set, and finds that by a linear program, which it truncates to the most
    likely tokens.  Neither the program nor the truncation is done here: `OptimalPlan`, which
    chooses by slots and accepts with min(1, q/v'), is an optimal rule of this form at any size.

    In exact mode p_I is summed over all multisets of drafts.  In floats it is the integral ::

        p_I(y) = k p(y) w(y) ∫ e^(−w(y) t) φ(t)^(k−1) dt,   φ(t) = Σ p(x) e^(−w(x) t)

    since 1/s = ∫ e^(−s t) dt, by the trapezoid rule in log t, whose relative error is below 2e-17
    for every token (`log_trapezoid`).  With rounding, p_I and so the output distribution have a
    relative error of about 1e-14.  This takes O(n) time for each of a few hundred nodes, more the
    further the weights lie apart, and bounded memory.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    weights : array-like [n], optional
        Weights of at least zero.  Only their ratios matter; they are held relative to the
        largest of the tokens that can be drafted.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the weights have a wrong shape or are not finite numbers of at least zero.
    ProblemTooLargeError
        On use, in exact mode, if there are too many multisets to sum over for p_I, from which
        acceptance, distributions and selections follow.

    References
    ----------
    .. [khisti2025] Khisti et al., "Multi-Draft Speculative Sampling: Canonical Decomposition and
       Theoretical Limits", ICLR 2025, Theorem 1.

    Examples
    --------
    >>> from otm import Problem
    >>> problem = Problem([0.75, 0.25], [0.25, 0.75], k=2)
    >>> plan = ImportanceSelection(problem)
    >>> plan.selected_distribution.round(4)
    array([0.6, 0.4])
    >>> round(plan.acceptance_by_test, 12), round(plan.acceptance, 12)
    (0.65, 0.671875)
    """

    weights: Any = None

    def __post_init__(self) -> None:
        self._check_problem()
        object.__setattr__(self, "weights", read_only(_checked(self.problem, self.weights)))

    uniforms_per_selection = 3
    """One uniform for the choice of a draft, one coin, one for the residual: 3."""

    @cached_property
    def selected_distribution(self) -> Probs:
        """Distribution p_I of the chosen draft: array [n]."""
        if self.problem.k == 1:
            return self.problem.draft
        return read_only(self._chosen_by_sum() if self.problem.exact else self._chosen_by_nodes())

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/p_I) of accepting each token when it is chosen: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.selected_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Mass min(q, p_I) of each token output as an accepted draft: array [n]."""
        return read_only(self.selected_distribution * self.accept_probability)

    @cached_property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        Above `acceptance_by_test` where the residual can hit a draft that was not chosen.
        """
        if self.problem.k == 1:
            return self.acceptance_by_test
        hit = self._hit_by_sum() if self.problem.exact else self._hit_by_nodes()
        return at_most_one(self.acceptance_by_test + hit)

    def _accept(self, drafts: Drafts, uniforms: Uniforms) -> npt.NDArray[np.int64]:
        cumulative = np.cumsum(self._shares(drafts), axis=1)
        point = uniforms[:, :1] * cumulative[:, -1:]
        chosen = (cumulative[:, :-1] <= point).sum(axis=1).astype(np.int64)
        token = np.take_along_axis(drafts, chosen[:, None], axis=1)[:, 0]
        return np.where(uniforms[:, 1] < self.accept_probability[token], chosen, -1)

    def _acceptance_per_draft(self, drafts: Drafts) -> Probs:
        shares = self._shares(drafts)
        return np.asarray(
            shares / shares.sum(axis=1, keepdims=True) * self.accept_probability[drafts]
        )

    def _shares(self, drafts: Drafts) -> Probs:
        """Weights of the drafts, all one where all are zero: [B, k] → [B, k]."""
        weights = self.weights[drafts]
        return np.asarray(weights + (weights == 0).all(axis=1, keepdims=True))

    # Exact: sums over multisets

    @cached_property
    def _sets(self) -> tuple[npt.NDArray[np.int64], Probs, Probs]:
        """Multisets of drafts, their probabilities, and those of choosing each column."""
        support, k = np.flatnonzero(self.problem.draft), self.problem.k
        entries = k * multiset_count(support.size, k)
        if entries > LARGEST_ENUMERATION:
            raise ProblemTooLargeError(
                f"k = {k} drafts of {support.size:,} tokens have multisets of "
                f"{scientific(entries)} entries in all, above the limit of "
                f"{LARGEST_ENUMERATION:,} for a sum in fractions; in floats any size works"
            )
        sets = support[multisets(support.size, k)]
        shares = self._shares(sets)
        chosen = shares / shares.sum(axis=1, keepdims=True)
        probability = multiset_probabilities(self.problem.draft, sets)
        return read_only(sets), read_only(probability), read_only(chosen)

    def _chosen_by_sum(self) -> Probs:
        sets, probability, chosen = self._sets
        return scatter_sum(sets.ravel(), (probability[:, None] * chosen).ravel(), self.problem.n)

    def _hit_by_sum(self) -> Number:
        sets, probability, chosen = self._sets
        rejected = (chosen * (1 - self.accept_probability[sets])).sum(axis=1)
        by_residual = self.residual.probs(self.problem.n)[sets] * first_occurrences(sets)
        return as_number((probability * rejected * by_residual.sum(axis=1)).sum())

    # Floats: integrals over t

    @cached_property
    def _nodes(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Nodes and weights that integrate e^(−s t) for every sum s of k weights."""
        positive = self.weights[self.weights > 0]
        if not positive.size:
            return read_only(positive), positive
        # what is left out of 1/s is a share s · low at one end and e^(−s · high) at the other
        low, high = 2.0**-60 / (self.problem.k * positive.max()), 40 / positive.min()
        nodes, weights = log_trapezoid(low, high)
        return read_only(nodes), read_only(weights)

    def _log_transform(self, exponents: Probs, decay: Probs) -> Probs:
        """Logarithm of φ at some nodes, from −w t and e^(−w t); nothing cancels near φ = 1."""
        draft = self.problem.draft
        logarithm: Probs = np.log(np.maximum(decay @ draft, SMALLEST_FLOAT))
        near_one = logarithm > -0.5
        logarithm[near_one] = np.log1p(np.expm1(exponents[near_one]) @ draft)
        return logarithm

    def _tables(self) -> Iterator[tuple[Probs, Probs, Probs, Probs]]:
        """Spacings of some nodes t, then −w t, e^(−w t) and ln φ at them: [T], [T, n], …, [T]."""
        nodes, spacings = self._nodes
        for chunk in node_chunks(nodes.size, self.problem.n):
            exponents = np.multiply.outer(-nodes[chunk], self.weights)
            decay = np.exp(exponents)
            yield spacings[chunk], exponents, decay, self._log_transform(exponents, decay)

    def _chosen_by_nodes(self) -> Probs:
        draft, weights, k = self.problem.draft, self.weights, self.problem.k
        integral = np.zeros(self.problem.n)
        for spacings, _, decay, logarithm in self._tables():
            integral += (spacings * np.exp((k - 1) * logarithm)) @ decay
        probs: Probs = k * draft * (weights * integral)
        zero = weights == 0  # chosen only if every draft has weight zero
        probs[zero] = draft[zero] * draft[zero].sum() ** (k - 1)
        return probs

    def _hit_by_nodes(self) -> Number:
        """Probability that the chosen draft is rejected and the residual hits another.

        For a token z of the residual it is k ∫ ψ(t) (φ^(k−1) − (φ − p(z) e^(−w(z) t))^(k−1)) dt
        with ψ(t) = Σ p w (1 − a) e^(−w t), a the probability of acceptance, which is 1 at z.
        """
        draft, weights, k = self.problem.draft, self.weights, self.problem.k
        by_residual = self.residual.probs(self.problem.n)
        rejected = draft * (1 - self.accept_probability)
        with np.errstate(divide="ignore"):
            log_draft = np.log(draft)
        zero = weights == 0
        none_positive = draft[zero].sum()
        total = float(
            rejected[zero].sum()
            * none_positive ** (k - 1)
            * (at_least_once(draft[zero] / (none_positive or 1), k - 1) @ by_residual[zero])
        )
        for spacings, exponents, decay, logarithm in self._tables():
            chosen = spacings * (decay @ (weights * rejected)) * np.exp((k - 1) * logarithm)
            # p e^(−w t) / φ, at most one: the quotient of two numbers that may both underflow
            share = np.exp(np.minimum(log_draft + exponents - logarithm[:, None], 0))
            total += k * float(chosen @ (at_least_once(share, k - 1) @ by_residual))
        return total


def _checked(problem: Problem, weights: Any) -> Probs:
    """Bring weights, q/p if none are given, to the numbers of the problem; the largest is one."""
    draftable = problem.draft > 0
    if weights is None:
        with np.errstate(over="ignore"):
            relative = problem.target / (problem.draft + ~draftable)
        given = np.where(draftable, relative, 0 * problem.draft)
        if not problem.exact:
            given = np.minimum(given, LARGEST_RATIO)
    else:
        given = _as_weights(problem, weights)
        given = np.where(draftable, given, 0 * problem.draft)
    scaled: Probs = given / (given.max() or 1)
    if not problem.exact:
        scaled[scaled < SMALLEST_WEIGHT] = 0
    return scaled


def _as_weights(problem: Problem, weights: Any) -> Probs:
    """Check weights that were given: finite numbers of at least zero, one a token."""
    need = f"give one a token, of shape ({problem.n},)"
    given = as_numbers(weights, (problem.n,), problem.exact, "a list of weights", need)
    wrong = ~((given >= 0) & (given < np.inf))
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise InvalidParameterError(
            f"the weight of token {index} is {given[index]}; weights must be finite and at least 0"
        )
    return given
