"""Importance selection of one draft, then rejection sampling (Khisti et al., ICLR 2025)."""

from __future__ import annotations

import math
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
from otm.coupling.grouped_exponentials import LEAST_TOKENS, TERMS, GroupedExponentials
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
"""Largest table of multisets, in entries, for which sums are computed in fractions."""

LARGEST_RATIO = 2.0**500
"""Largest default weight in floats; tokens with a larger q/p are never drafted in practice."""

LARGEST_GROUPED_K = 8
"""Largest k for sums by groups; their alternating sums of k − 1 powers lose k bits."""

SMALLEST_FLOAT = 2.0**-1074

SMALLEST_WEIGHT = 2.0**-1000
"""Float weights below this value, relative to the largest, count as zero."""


@dataclass(frozen=True, eq=False)
class ImportanceSelection(ResidualPlan):
    """Select one draft by importance weights, then accept or reject this draft.

    Draft m is selected with probability w(x_m) / Σ_j w(x_j), or uniformly if all weights are zero.
    Let p_I be the distribution of the selected token.  The token is accepted with probability
    min(1, q/p_I), like a single draft from p_I.  Otherwise the output is drawn from the residual
    ∝ max(q − p_I, 0).  In [khisti2025]_ this is importance weighted sampling, followed by
    speculative sampling with one draft.  Each token has a fixed weight, by default the weight
    w = q/p of importance sampling.

    The paper proves that selection followed by rejection sampling is optimal for suitable selection
    probabilities, if these may depend on the whole set of drafts.  The paper computes suitable
    probabilities by a linear program, truncated to the most probable tokens.  This class uses fixed
    weights; `OptimalPlan` also selects one draft and then tests it, but is always optimal.

    For fractions, p_I is a sum over all multisets of drafts.  For floats, p_I is the integral ::

        p_I(y) = k p(y) w(y) ∫ e^(−w(y) t) φ(t)^(k−1) dt,   φ(t) = Σ p(x) e^(−w(x) t)

    which follows from 1/s = ∫ e^(−s t) dt.  The trapezoid rule in log t computes the integral with
    a relative error below 2e-17 for every token (`log_trapezoid`).  With rounding, p_I and the
    output distribution have a relative error of about 1e-14.  The computation takes bounded memory,
    and O(n) time for each of a few hundred nodes; the number of nodes grows with the range of the
    weights.

    Parameters
    ----------
    problem : Problem
        The draft distribution, the target distribution and the number of drafts.
    weights : array-like [n], optional
        Weights of at least zero.  Only the ratios of the weights matter; weights are stored
        relative to the largest weight of a token with p > 0.

    Raises
    ------
    InvalidInputError
        If `problem` is not a single `Problem`, or the rule does not support its drafts.
    InvalidParameterError
        If the weights have a wrong shape or are not finite numbers of at least zero.
    ProblemTooLargeError
        On first use, for fractions, if the sum for p_I has too many multisets.  All results need
        p_I.

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
    """Three uniforms: one to select a draft, one to test it, one for the residual."""

    @cached_property
    def selected_distribution(self) -> Probs:
        """Distribution p_I of the selected draft: array [n]."""
        if self.problem.k == 1:
            return self.problem.draft
        exact = self.problem.exact
        return read_only(self._selected_by_sum() if exact else self._selected_by_quadrature())

    @cached_property
    def accept_probability(self) -> Probs:
        """Probability min(1, q/p_I) of accepting each token if it is selected: array [n]."""
        return read_only(acceptance_ratio(self.problem.target, self.selected_distribution))

    @cached_property
    def accepted_mass(self) -> Probs:
        """Probability min(q, p_I) that each token is output as an accepted draft: array [n]."""
        return read_only(self.selected_distribution * self.accept_probability)

    @cached_property
    def acceptance(self) -> Number:
        """Acceptance probability Pr(Y ∈ {X_1, …, X_k}).

        The probability is larger than `acceptance_by_test` if the token from the residual can equal
        a draft that was not selected.
        """
        if self.problem.k == 1:
            return self.acceptance_by_test
        hit = self._hit_by_sum() if self.problem.exact else self._hit_by_quadrature()
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
        """Return the weights of the drafts, or ones if all are zero: `[B, k] → [B, k]`."""
        weights = self.weights[drafts]
        return np.asarray(weights + (weights == 0).all(axis=1, keepdims=True))

    # For fractions, results are sums over multisets.

    @cached_property
    def _sets(self) -> tuple[npt.NDArray[np.int64], Probs, Probs]:
        """Multisets of drafts, their probabilities, and the selection probability of each draft."""
        support, k = np.flatnonzero(self.problem.draft), self.problem.k
        entries = k * multiset_count(support.size, k)
        if entries > LARGEST_ENUMERATION:
            raise ProblemTooLargeError(
                f"the multisets of k = {k} drafts of {support.size:,} tokens have "
                f"{scientific(entries)} entries; the limit for fractions is "
                f"{LARGEST_ENUMERATION:,}: use floats, which work at any size"
            )
        sets = support[multisets(support.size, k)]
        shares = self._shares(sets)
        chosen = shares / shares.sum(axis=1, keepdims=True)
        probability = multiset_probabilities(self.problem.draft, sets)
        return read_only(sets), read_only(probability), read_only(chosen)

    def _selected_by_sum(self) -> Probs:
        """Compute p_I as a sum over multisets."""
        sets, probability, chosen = self._sets
        return scatter_sum(sets.ravel(), (probability[:, None] * chosen).ravel(), self.problem.n)

    def _hit_by_sum(self) -> Number:
        """Return the probability that the test rejects and the residual token is a draft."""
        sets, probability, chosen = self._sets
        rejected = (chosen * (1 - self.accept_probability[sets])).sum(axis=1)
        by_residual = self.residual.probs(self.problem.n)[sets] * first_occurrences(sets)
        return as_number((probability * rejected * by_residual.sum(axis=1)).sum())

    # For floats, results are integrals over t.

    @cached_property
    def _nodes(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Nodes and spacings of the quadrature of e^(−s t), for every sum s of k weights."""
        positive = self.weights[self.weights > 0]
        if not positive.size:
            return read_only(positive), positive
        # The cut at `low` causes a relative error of s · low, and the cut at `high` e^(−s · high).
        low, high = 2.0**-60 / (self.problem.k * positive.max()), 40 / positive.min()
        nodes, weights = log_trapezoid(low, high)
        return read_only(nodes), read_only(weights)

    @cached_property
    def _groups(self) -> GroupedExponentials | None:
        """Groups of nearly equal weights, if they are much fewer than the tokens."""
        positive = self.weights[self.weights > 0]
        if positive.size < LEAST_TOKENS or self.problem.k > LARGEST_GROUPED_K:
            return None
        groups = GroupedExponentials(positive)
        return groups if TERMS * groups.size < positive.size else None

    @cached_property
    def _grouped(self) -> tuple[GroupedExponentials, Probs] | None:
        """The groups, and ln φ at all nodes t, as `_log_transform` computes it."""
        if (groups := self._groups) is None:
            return None
        draft, positive = self.problem.draft, self.weights > 0
        moments, rest = groups.moments(draft[positive]), draft[~positive].sum()
        logarithm = np.empty(self._nodes[0].size)
        for chunk, terms, less_one in groups.chunks(self._nodes[0]):
            flat = terms.reshape(len(terms), -1)
            values = np.log(np.maximum(flat @ moments + rest, SMALLEST_FLOAT))
            near_one = values > -0.5
            size = groups.size
            less = less_one[near_one] @ moments[:size] + flat[near_one, size:] @ moments[size:]
            values[near_one] = np.log1p(less)
            logarithm[chunk] = values
        return groups, read_only(logarithm)

    def _integral_by_groups(self, groups: GroupedExponentials, logarithm: Probs) -> Probs:
        """Return ∫ e^(−w(y) t) φ(t)^(k−1) dt for each token: array [n]; 0 if w(y) is 0."""
        nodes, spacings = self._nodes
        factors = spacings * np.exp((self.problem.k - 1) * logarithm)
        sums = sum(
            np.tensordot(factors[chunk], terms, axes=1) for chunk, terms, _ in groups.chunks(nodes)
        )
        integral = np.zeros(self.problem.n)
        integral[self.weights > 0] = groups.at_tokens(np.asarray(sums))
        return integral

    def _hit_by_groups(
        self,
        groups: GroupedExponentials,
        logarithm: Probs,
        rejected: Probs,
        by_residual: Probs,
    ) -> float:
        """Return the integral of `_hit_by_quadrature` over tokens of positive weight.

        1 − (1 − s)^(k−1) is a sum of powers of s = p e^(−w t) / φ, which groups can sum.
        """
        k, draft, positive = self.problem.k, self.problem.draft, self.weights > 0
        nodes, spacings = self._nodes
        moments = groups.moments((self.weights * rejected)[positive])
        chosen, hits = np.empty(nodes.size), np.full(nodes.size, 0.0)
        for power in range(1, k):
            factor = math.comb(k - 1, power) * (-1) ** (power + 1)
            of_tokens = by_residual * draft**power
            of_power, rest = groups.moments(of_tokens[positive]), of_tokens[~positive].sum()
            # φ^(k−1) / φ^power, which cannot overflow.
            others = factor * np.exp((k - 1 - power) * logarithm)
            for chunk, terms, _ in groups.chunks(nodes, power):
                flat = terms.reshape(len(terms), -1)
                if power == 1:
                    chosen[chunk] = flat @ moments
                hits[chunk] += others[chunk] * (flat @ of_power + rest)
        return float((spacings * chosen) @ hits)

    def _log_transform(self, exponents: Probs, decay: Probs) -> Probs:
        """Return ln φ at nodes t, from −w t and e^(−w t), without cancellation near φ = 1."""
        draft = self.problem.draft
        logarithm: Probs = np.log(np.maximum(decay @ draft, SMALLEST_FLOAT))
        near_one = logarithm > -0.5
        logarithm[near_one] = np.log1p(np.expm1(exponents[near_one]) @ draft)
        return logarithm

    def _tables(self) -> Iterator[tuple[Probs, Probs, Probs, Probs]]:
        """Yield for chunks of nodes t: spacings [T], −w t and e^(−w t) [T, n], and ln φ [T]."""
        nodes, spacings = self._nodes
        for chunk in node_chunks(nodes.size, self.problem.n):
            exponents = np.multiply.outer(-nodes[chunk], self.weights)
            decay = np.exp(exponents)
            yield spacings[chunk], exponents, decay, self._log_transform(exponents, decay)

    def _selected_by_quadrature(self) -> Probs:
        """Compute p_I as an integral."""
        draft, weights, k = self.problem.draft, self.weights, self.problem.k
        integral = np.zeros(self.problem.n)
        if self._grouped is not None:
            integral = self._integral_by_groups(*self._grouped)
        else:
            for spacings, _, decay, logarithm in self._tables():
                integral += (spacings * np.exp((k - 1) * logarithm)) @ decay
        probs: Probs = k * draft * (weights * integral)
        # A draft of weight zero is selected only if all drafts have weight zero.
        zero = weights == 0
        probs[zero] = draft[zero] * draft[zero].sum() ** (k - 1)
        return probs

    def _hit_by_quadrature(self) -> Number:
        """Return the probability that the test rejects and the residual token is another draft.

        For a residual token z, the probability is k ∫ ψ(t) (φ^(k−1) − (φ − p(z) e^(−w(z) t))^(k−1))
        dt with ψ(t) = Σ p w (1 − a) e^(−w t).  Here a(x) is the acceptance probability of x;
        a(z) = 1.
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
        if self._grouped is not None:
            return total + k * self._hit_by_groups(*self._grouped, rejected, by_residual)
        for spacings, exponents, decay, logarithm in self._tables():
            chosen = spacings * (decay @ (weights * rejected)) * np.exp((k - 1) * logarithm)
            # p e^(−w t) / φ is at most 1, but numerator and denominator may both underflow.
            share = np.exp(np.minimum(log_draft + exponents - logarithm[:, None], 0))
            total += k * float(chosen @ (at_least_once(share, k - 1) @ by_residual))
        return total


def _checked(problem: Problem, weights: Any) -> Probs:
    """Return the weights (default q/p), scaled to a maximum of 1, in the problem's number type."""
    draftable = problem.draft > 0
    if weights is None:
        with np.errstate(over="ignore"):
            relative = problem.target / (problem.draft + ~draftable)
        weights = np.where(draftable, relative, 0 * problem.draft)
        if not problem.exact:
            weights = np.minimum(weights, LARGEST_RATIO)
    else:
        weights = _as_weights(problem, weights)
        weights = np.where(draftable, weights, 0 * problem.draft)
    scaled: Probs = weights / (weights.max() or 1)
    if not problem.exact:
        scaled[scaled < SMALLEST_WEIGHT] = 0
    return scaled


def _as_weights(problem: Problem, weights: Any) -> Probs:
    """Return the weights as numbers; raise unless each token has a finite weight ≥ 0."""
    need = f"give one weight for each token, in shape ({problem.n},)"
    numbers = as_numbers(weights, (problem.n,), problem.exact, "a list of weights", need)
    wrong = ~((numbers >= 0) & (numbers < np.inf))
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise InvalidParameterError(
            f"the weight of token {index} is {numbers[index]}; weights must be finite and at least "
            "0"
        )
    return numbers
