"""Which rule, how many drafts and how long ones to decode with, and what that gains.

Block efficiency says how many tokens a step adds on average, measured times say what the step
costs (`latency`); the quotient of the two decides.  `recommend` computes the block efficiency from
recorded drafts, `report` from recorded distributions; `ranked` orders the setups of both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from types import MappingProxyType
from typing import Any

import numpy as np

from otm._core.display.reprs import Printed
from otm._core.display.text import html_table, shown, text_table
from otm._core.means import Estimate, Floats, Prompts, Setup
from otm._core.numbers import as_positive
from otm.coupling.build import named_rules
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError
from otm.gain.efficiency import KNOWN, Rules, block_efficiency
from otm.gain.efficiency_bound import efficiency_bound
from otm.gain.latency import Latency
from otm.gain.recording import record
from otm.models.base import LanguageModel

Way = tuple[Setup, SamplingParameters]
"""A setup, and how the draft model is sampled."""

SHOWN = 10
"""Candidates that are printed."""


@dataclass(frozen=True)
class Candidate:
    """A way to decode, and what it gains.

    Attributes
    ----------
    setup : Setup
        Rule, K and γ.
    draft_sampling : SamplingParameters
        How to sample from the draft model.
    block_efficiency : Estimate
        Mean number of tokens of a step.
    speedup : Estimate
        Speed over decoding without drafts; no unit.
    gap_to_best : Estimate
        By how much the speed-up of the best candidate is larger, at the same contexts.
    bound : Estimate, optional
        Upper bound on the block efficiency of every memoryless lossless verifier with these drafts,
        from `efficiency_bound`; None if it was not computed.

    Examples
    --------
    >>> one = Estimate(1.0, 1.0, 1.0)
    >>> Candidate(Setup("k-Seq", 2, 4), SamplingParameters(), one, one, one).arguments["gamma"]
    4
    """

    setup: Setup
    draft_sampling: SamplingParameters
    block_efficiency: Estimate
    speedup: Estimate
    gap_to_best: Estimate
    bound: Estimate | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What to pass to `otm.decoding.spectr`, for a rule that is known there by this name."""
        return {**self.setup._asdict(), "draft_sampling": self.draft_sampling}


@dataclass(frozen=True, eq=False)
class Recommendation(Printed):
    """Ways to decode, the fastest first; printed as a table of the first ten.

    Attributes
    ----------
    candidates : tuple of Candidate
        All that the costs decide between.  Costs that are the same for any number of chains
        (`Latency.is_constant`) do not say what more of them cost: these are then the ways with the
        fewest chains.
    contexts, prompts : int
        Number of contexts that were measured, and of prompts that they belong to.
    level : float, optional
        Probability that an interval covers its mean, nearly.
    if_chains_are_free : tuple of Candidate, optional
        All others, the fastest first if more chains cost nothing.

    Examples
    --------
    >>> one = Estimate(1.0, 1.0, 1.0)
    >>> candidate = Candidate(Setup("k-Seq", 2, 4), SamplingParameters(), one, one, one)
    >>> Recommendation((candidate,), contexts=1, prompts=1).beats_autoregressive
    False
    """

    candidates: tuple[Candidate, ...]
    contexts: int
    prompts: int
    level: float = 0.95
    if_chains_are_free: tuple[Candidate, ...] = ()

    @property
    def best(self) -> Candidate:
        """The fastest that the costs decide on."""
        return self.candidates[0]

    @property
    def beats_autoregressive(self) -> bool:
        """Whether the fastest is faster than decoding without drafts, beyond its interval."""
        return self.best.speedup.low > 1

    def __str__(self) -> str:
        heading, *rows = self._table
        return f"{self._title}\n{text_table(heading, rows)}"

    def _repr_html_(self) -> str:
        heading, *rows = self._table
        return html_table(rows, escape(self._title).replace("\n", "<br>"), heading=heading)

    @property
    def _table(self) -> list[list[str]]:
        """Heading, and the first candidates."""
        rows = [["rule", "K", "γ", "draft model", "tokens/step", "speed-up", "gap to best"]]
        for candidate in self.candidates[:SHOWN]:
            estimates = candidate.block_efficiency, candidate.speedup, candidate.gap_to_best
            sampling = str(candidate.draft_sampling)
            rows.append([str(cell) for cell in (*candidate.setup, sampling, *estimates)])
        return rows

    @property
    def _title(self) -> str:
        """The verdict, the bound of all verifiers, and the size of the measurement."""
        k = self.best.setup.k
        first = " ".join(filter(None, verdict_sentences(self)))
        if (bound := self.best.bound) is not None:
            first += (
                f"\nNo memoryless lossless verifier exceeds {bound} tokens per step with these "
                "drafts."
            )
        if self.if_chains_are_free:
            other = self.if_chains_are_free[0]
            first += (
                f"\nThe cost of more than K = {k} chains is unknown. If they cost nothing, "
                f"{setup_text(other.setup)} would be {two_decimals(other.speedup)} times as fast "
                "as plain decoding."
            )
        counts = f"{len(self.candidates)} setups, {self.contexts} contexts of "
        if self.prompts == 1:
            return f"{first}\n{counts}one prompt, so no intervals"
        return f"{first}\n{counts}{self.prompts} prompts, {100 * self.level:g} % intervals"


def verdict_sentences(recommendation: Recommendation) -> tuple[str, str]:
    """Return the verdict as a short sentence, and a second sentence or an empty text."""
    best = recommendation.best
    setup, speed = setup_text(best.setup), two_decimals(best.speedup)
    if recommendation.beats_autoregressive:
        return f"Use {setup}: {speed} times as fast as plain decoding.", ""
    detail = f"The best setting found ({setup}) decodes at {speed} of plain speed."
    if best.speedup.high < 1:
        return "Do not use drafts with these models.", detail
    if np.isfinite(best.speedup.high):
        return "It is uncertain whether drafts pay with these models.", detail
    return "No interval is known for the speed with drafts.", detail


def setup_text(setup: Setup) -> str:
    """Write a setup, such as "k-Seq, K = 1, γ = 4"."""
    return f"{setup.rule}, K = {setup.k}, γ = {setup.gamma}"


def two_decimals(estimate: Estimate) -> str:
    """Write an estimate with two decimals, and half of its interval if that is known."""
    half = f" ± {estimate.high - estimate.mean:.2f}" if np.isfinite(estimate.high) else ""
    return f"{estimate.mean:.2f}{half}"


def ranked(
    tokens: Mapping[Way, Floats],
    latency: Latency,
    prompts: Prompts,
    bounds: Mapping[Any, Estimate] = MappingProxyType({}),
) -> Recommendation:
    """Order ways to decode by speed, from sums [P] over prompts of the tokens of a step.

    Costs that are the same for any K decide between the ways with the fewest chains alone.

    Rules that verify the same drafts alike appear once, by the first of their names.  Bounds are by
    the drafts: (K, γ, how the draft model is sampled).
    """
    speed: dict[Way, Floats] = {}
    different: dict[Any, list[Floats]] = {}
    for way, sums in tokens.items():
        (_, k, gamma), sampling = way
        others = different.setdefault((k, gamma, sampling), [])
        if not any(np.allclose(sums, other) for other in others):
            others.append(sums)
            speed[way] = sums * latency.speedup(1.0, gamma, as_positive(k, "k"))
    order = sorted(speed, key=lambda way: -float(speed[way].sum()))
    decided = order
    if latency.is_constant:  # the largest K would win, whatever it really costs
        fewest = min(as_positive(way[0].k, "k") for way in order)
        decided = [way for way in order if way[0].k == fewest]
    candidates = {
        way: Candidate(
            *way,
            block_efficiency=prompts.mean(tokens[way]),
            speedup=prompts.mean(speed[way]),
            gap_to_best=prompts.mean(speed[decided[0]] - speed[way]),
            bound=bounds.get((way[0].k, way[0].gamma, way[1])),
        )
        for way in order
    }
    return Recommendation(
        tuple(candidates[way] for way in decided),
        prompts.index.size,
        prompts.sizes.size,
        prompts.level,
        tuple(candidates[way] for way in order if way not in decided),
    )


def recommend(
    target: LanguageModel,
    draft: LanguageModel,
    contexts: Sequence[Sequence[Sequence[int]]],
    latency: Latency,
    *,
    rules: Rules = ("k-Seq", "optimal", "traversal", "walk and keep"),
    ks: Iterable[int] = (1, 2, 4, 8),
    gammas: Iterable[int] = range(1, 9),
    sampling: SamplingParameters | None = None,
    draft_temperatures: Iterable[float] | None = None,
    draft_truncations: Iterable[Mapping[str, Any]] = ({},),
    batch: int = 8,
    seed: int | None = 0,
) -> Recommendation:
    """Find the fastest way to decode with two models.

    Parameters
    ----------
    target, draft : LanguageModel
        The two models.
    contexts : sequence, for each prompt, of sequences of int
        Where to look at the models, as for `record`: many prompts like those that will be decoded,
        at the contexts where the steps of a loop with drafts begin, which `contexts_from` takes
        from a run of `spectr`.
    latency : Latency
        What steps cost, from `measure_latency` or a table.
    rules : names, or mapping from names to rules, optional
        As for `block_efficiency`.
    ks, gammas : iterable of int, optional
        Numbers of chains K and of drafts γ to compare, which the latency must cover.
    sampling : SamplingParameters, optional
        How the target is sampled.
    draft_temperatures : iterable of float, optional
        Temperatures of the draft model to compare; that of the target if left out.
    draft_truncations : iterable of mapping, optional
        Truncations of the draft model to compare, as changes of the target's: {"top_k": 20},
        {"top_p": 0.9} or both; {} changes nothing.
    batch : int, optional
        Number of prompts that are read at a time.
    seed : int, optional
        Seed of the drafts, the same for all ways of sampling them.

    Returns
    -------
    Recommendation
        Setups, the fastest first, those of the fewest chains if `latency` is the same for any
        number of them; rules that verify the same drafts alike, as many do for one
        chain, appear once, by the first of their names.  With the contexts of two prompts or more,
        each has the bound of all lossless verifiers.

    Raises
    ------
    UnknownMethodError
        If a rule is asked for by a name that does not exist.
    InvalidInputError, InvalidParameterError
        If an argument is outside its range; before any model is run, but for a rule that returns no
        plan, or one whose drafts are not independent.
    ProblemTooLargeError
        If K has more than 2^16 paths.

    Notes
    -----
    The largest of many noisy means is too large on average: where runner-ups are close behind, the
    interval of the best is optimistic, and contexts of other prompts show what it gains.  The
    contexts, too, are those of the loop that they come from; with contexts from a run of what is
    recommended, a second call confirms it.

    Examples
    --------
    >>> from otm.models import TableModel
    >>> target, draft = TableModel({(): [0.5, 0.5]}), TableModel({(): [0.75, 0.25]})
    >>> contexts = [[[0]] * 4] * 5
    >>> latency = Latency((1, 2), (1, 5), (0.05, 0.05), ((1.0, 1.1), (1.1, 1.2)))
    >>> print(recommend(target, draft, contexts, latency, ks=[1, 2], gammas=[2, 4]))
    Use walk and keep, K = 2, γ = 4: 2.91 ± 0.11 times as fast as plain decoding.
    No memoryless lossless verifier exceeds 4.206 ± 0.433 tokens per step with these drafts.
    12 setups, 20 contexts of 5 prompts, 95 % intervals
    rule           K  γ  draft model  tokens/step    speed-up       gap to best
    -------------  -  -  -----------  -------------  -------------  -------------
    walk and keep  2  4  T 1          4.079 ± 0.160  2.913 ± 0.115  0.000 ± 0.000
    optimal        2  4  T 1          3.903 ± 0.115  2.788 ± 0.082  0.125 ± 0.047
    traversal      1  4  T 1          3.538 ± 0.348  2.722 ± 0.267  0.192 ± 0.340
    traversal      2  4  T 1          3.631 ± 0.287  2.594 ± 0.205  0.319 ± 0.280
    k-Seq          2  4  T 1          3.392 ± 0.202  2.423 ± 0.144  0.490 ± 0.223
    k-Seq          1  4  T 1          3.018 ± 0.414  2.321 ± 0.318  0.592 ± 0.393
    walk and keep  2  2  T 1          2.756 ± 0.061  2.205 ± 0.049  0.708 ± 0.135
    optimal        2  2  T 1          2.728 ± 0.053  2.182 ± 0.043  0.731 ± 0.126
    traversal      1  2  T 1          2.350 ± 0.338  2.043 ± 0.294  0.870 ± 0.382
    k-Seq          2  2  T 1          2.484 ± 0.145  1.987 ± 0.116  0.926 ± 0.209
    """
    chosen_ks = sorted({as_positive(k, "k") for k in ks})
    chosen_gammas = sorted({as_positive(gamma, "gamma") for gamma in gammas})
    for k, gamma in itertools.product(chosen_ks, chosen_gammas):
        latency.step_time(gamma, k)  # refuses what the table does not reach
    compared = named_rules(rules, KNOWN)
    of_target = sampling or SamplingParameters()
    temperatures = [of_target.temperature] if draft_temperatures is None else draft_temperatures
    samplings = []
    for temperature, truncation in itertools.product(temperatures, draft_truncations):
        unknown = set(truncation) - {"top_k", "top_p", "min_p"}
        if unknown:
            raise InvalidParameterError(
                f"a draft truncation with {shown(unknown.pop())}; it may have 'top_k', 'top_p' "
                "and 'min_p'"
            )
        samplings.append(replace(of_target, temperature=temperature, **truncation))
    if not (chosen_ks and chosen_gammas and compared and samplings):
        raise InvalidParameterError(
            "there is nothing to compare; give at least one rule, K, γ, draft temperature and "
            "draft truncation"
        )
    tokens: dict[Way, Floats] = {}
    bounds: dict[Any, Estimate] = {}
    for draft_sampling in dict.fromkeys(samplings):
        drafter = ModelDrafter(draft, chosen_ks[-1], draft_sampling)
        recordings = record(
            target, drafter, contexts, chosen_gammas[-1], sampling=of_target, batch=batch, seed=seed
        )
        means = block_efficiency(recordings, compared, chosen_ks, chosen_gammas)
        prompts = Prompts(means.prompts)
        for setup, values in means.values.items():
            tokens[setup, draft_sampling] = prompts.sums(values)
        if prompts.sizes.size > 1:
            bound = efficiency_bound(recordings, chosen_ks, chosen_gammas)
            bounds |= {(key.k, key.gamma, draft_sampling): bound[key] for key in bound}
    return ranked(tokens, latency, prompts, bounds)
