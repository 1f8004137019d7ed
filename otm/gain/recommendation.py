"""Choose the rule and the numbers of drafts for decoding, and estimate the speed.

The block efficiency is the mean number of tokens per step, and measured times give the cost of a
step (`latency`). The block efficiency divided by the cost gives the speed. `recommend` computes
block efficiencies from recorded drafts, and `report` from recorded distributions. `rank_setups`
orders the setups for `recommend` and for `report`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from types import MappingProxyType
from typing import Any

import numpy as np

from otm._core.display.reprs import TextRepr
from otm._core.display.text import html_table, shown, text_table
from otm._core.means import Estimate, Floats, Prompts, Setup
from otm._core.numbers import as_positive
from otm.coupling.build import named_rules
from otm.decoding.drafters.model import ModelDrafter
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError
from otm.gain.efficiency import KNOWN, Rules, block_efficiency
from otm.gain.latency import Latency
from otm.gain.recording import stream_recordings
from otm.models.base import LanguageModel

SampledSetup = tuple[Setup, SamplingParameters]
"""A setup with the sampling parameters of the draft model."""

SHOWN = 10
"""Number of printed candidates."""


@dataclass(frozen=True)
class Candidate:
    """A way of decoding with drafts, with its estimated speed.

    Attributes
    ----------
    setup : Setup
        Rule, K and γ.
    draft_sampling : SamplingParameters
        Sampling parameters of the draft model.
    block_efficiency : Estimate
        Mean number of tokens per step.
    speedup : Estimate
        Speed relative to decoding without drafts; no unit.
    gap_to_best : Estimate
        Speed-up of the best candidate minus speed-up of this candidate, at the same contexts.
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
        """Keyword arguments for `otm.decoding.spectr`, if it has a rule of this name."""
        return {**self.setup._asdict(), "draft_sampling": self.draft_sampling}


@dataclass(frozen=True, eq=False)
class Recommendation(TextRepr):
    """Candidates for decoding, fastest first; printed as a table of the first ten.

    Attributes
    ----------
    candidates : tuple of Candidate
        The compared candidates. If the latency does not depend on the number of chains
        (`Latency.is_constant`), the cost of more chains is unknown, and only the candidates with
        the fewest chains are compared.
    contexts, prompts : int
        Number of measured contexts, and number of their prompts.
    level : float, optional
        Approximate probability that an interval covers its mean.
    if_chains_are_free : tuple of Candidate, optional
        The candidates that have more chains, sorted by their speed if more chains cost no time.

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
        """The fastest compared candidate."""
        return self.candidates[0]

    @property
    def beats_autoregressive(self) -> bool:
        """Whether the whole interval of the best candidate's speed-up is above 1."""
        return self.best.speedup.low > 1

    def __str__(self) -> str:
        heading, *rows = self._table
        return f"{self._title}\n{text_table(heading, rows)}"

    def _repr_html_(self) -> str:
        heading, *rows = self._table
        return html_table(rows, escape(self._title).replace("\n", "<br>"), heading=heading)

    @property
    def _table(self) -> list[list[str]]:
        """Heading and rows of the first candidates."""
        rows = [["rule", "K", "γ", "draft model", "tokens/step", "speed-up", "gap to best"]]
        for candidate in self.candidates[:SHOWN]:
            estimates = candidate.block_efficiency, candidate.speedup, candidate.gap_to_best
            sampling = str(candidate.draft_sampling)
            rows.append([str(cell) for cell in (*candidate.setup, sampling, *estimates)])
        return rows

    @property
    def _title(self) -> str:
        """The verdict, the bound that holds for all verifiers, and the size of the measurement."""
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
                f"{setup_text(other.setup)} would be {rounded_text(other.speedup)} times as fast "
                "as plain decoding."
            )
        counts = f"{len(self.candidates)} setups, {self.contexts} contexts of "
        if self.prompts == 1:
            return f"{first}\n{counts}one prompt, so no intervals"
        return f"{first}\n{counts}{self.prompts} prompts, {100 * self.level:g} % intervals"


def verdict_sentences(recommendation: Recommendation) -> tuple[str, str]:
    """Return the verdict as a short sentence, and a second sentence or an empty string."""
    best = recommendation.best
    setup, speed = setup_text(best.setup), rounded_text(best.speedup)
    if recommendation.beats_autoregressive:
        return f"Use {setup}: {speed} times as fast as plain decoding.", ""
    detail = f"The best setting found ({setup}) decodes at {speed} of plain speed."
    if best.speedup.high < 1:
        if any(other.speedup.mean > 1 for other in recommendation.if_chains_are_free):
            return "Do not use one chain of drafts with these models.", detail
        return "Do not use drafts with these models.", detail
    if np.isfinite(best.speedup.high):
        return "It is uncertain whether drafts pay with these models.", detail
    return "The speed with drafts is an estimate without an interval.", detail


def setup_text(setup: Setup) -> str:
    """Write a setup, such as "k-Seq, K = 1, γ = 4"."""
    return f"{setup.rule}, K = {setup.k}, γ = {setup.gamma}"


def rounded_text(estimate: Estimate) -> str:
    """Write an estimate with two decimals, or more if its interval is very narrow."""
    half = estimate.high - estimate.mean
    if not np.isfinite(half):
        return f"{estimate.mean:.2f}"
    decimals = 2 if half >= 0.005 else 3 if half >= 0.0005 else 5
    return f"{estimate.mean:.{decimals}f} ± {half:.{decimals}f}"


def rank_setups(
    tokens: Mapping[SampledSetup, Floats],
    latency: Latency,
    prompts: Prompts,
    bounds: Mapping[Any, Estimate] = MappingProxyType({}),
) -> Recommendation:
    """Order setups by speed, from sums [P] of tokens per step over the positions of each prompt.

    If the costs do not depend on K, compare only the setups with the fewest chains. Rules with
    equal tokens per step in every prompt appear once, under the first of their names. The keys of
    `bounds` are (K, γ, sampling parameters of the draft model).
    """
    speed: dict[SampledSetup, Floats] = {}
    different: dict[Any, list[Floats]] = {}
    for sampled_setup, sums in tokens.items():
        (_, k, gamma), sampling = sampled_setup
        others = different.setdefault((k, gamma, sampling), [])
        if not any(np.allclose(sums, other) for other in others):
            others.append(sums)
            speed[sampled_setup] = sums * latency.speedup(1.0, gamma, as_positive(k, "k"))
    order = sorted(speed, key=lambda key: -float(speed[key].sum()))
    compared = order
    # with a constant latency the largest K would always be fastest, for any real cost
    if latency.is_constant:
        fewest = min(as_positive(setup.k, "k") for setup, _ in order)
        compared = [key for key in order if key[0].k == fewest]
    candidates = {
        key: Candidate(
            *key,
            block_efficiency=prompts.mean(tokens[key]),
            speedup=prompts.mean(speed[key]),
            gap_to_best=prompts.mean(speed[compared[0]] - speed[key]),
            bound=bounds.get((key[0].k, key[0].gamma, key[1])),
        )
        for key in order
    }
    return Recommendation(
        tuple(candidates[key] for key in compared),
        prompts.index.size,
        prompts.sizes.size,
        prompts.level,
        tuple(candidates[key] for key in order if key not in compared),
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
    batch: int | None = None,
    seed: int | None = 0,
) -> Recommendation:
    """Find the fastest setup for decoding with two models.

    Parameters
    ----------
    target, draft : LanguageModel
        The two models.
    contexts : sequence, for each prompt, of sequences of int
        Contexts as for `record`, from many prompts like those that you will decode. Use the
        contexts at which the steps of a decoding loop begin: `contexts_from` returns them for a run
        of `spectr`.
    latency : Latency
        Cost of steps, from `measure_latency` or a table.
    rules : names, or mapping from names to rules, optional
        Rules as for `block_efficiency`.
    ks, gammas : iterable of int, optional
        Numbers of chains K and of drafts γ to compare; `latency` must cover them.
    sampling : SamplingParameters, optional
        Sampling parameters of the target.
    draft_temperatures : iterable of float, optional
        Temperatures of the draft model to compare; by default the target's temperature.
    draft_truncations : iterable of mapping, optional
        Truncations of the draft model to compare, as changes of the target's: {"top_k": 20},
        {"top_p": 0.9} or both. {} keeps the target's truncation.
    batch : int, optional
        Number of prompts that the models read together, as for `stream_recordings`.
    seed : int, optional
        Seed of the drafts, the same for all temperatures and truncations.

    Returns
    -------
    Recommendation
        The setups, fastest first. If `latency` does not depend on the number of chains, only the
        setups with the fewest chains are compared. Rules with equal tokens per step in every
        prompt appear once, under the first of their names; many rules are equal for one chain. If
        the contexts have two prompts or more, each setup has a bound that holds for all memoryless
        lossless verifiers.

    Raises
    ------
    UnknownMethodError
        If a rule name is unknown.
    InvalidInputError, InvalidParameterError
        If an argument is outside its range. The arguments are checked before a model runs. Two
        errors are found only later: a rule returns no plan, or the drafts are not independent.
    ProblemTooLargeError
        If a K in `ks` leads to more than 2^16 paths.

    Notes
    -----
    The largest of many noisy means is too large on average. If other setups are close to the best,
    the interval of the best is optimistic, and contexts of other prompts give a better estimate.
    The contexts also depend on the loop that they come from. To confirm a recommendation, call the
    function again with contexts from a run of the recommended setup.

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
        # raise now if the latency table does not cover these numbers
        latency.step_time(gamma, k)
    compared = named_rules(rules, KNOWN)
    of_target = sampling or SamplingParameters()
    temperatures = [of_target.temperature] if draft_temperatures is None else draft_temperatures
    samplings = []
    for temperature, truncation in itertools.product(temperatures, draft_truncations):
        unknown = set(truncation) - {"top_k", "top_p", "min_p"}
        if unknown:
            raise InvalidParameterError(
                f"a draft truncation has {shown(unknown.pop())}; allowed are 'top_k', 'top_p' and "
                "'min_p'"
            )
        samplings.append(replace(of_target, temperature=temperature, **truncation))
    if not (chosen_ks and chosen_gammas and compared and samplings):
        raise InvalidParameterError(
            "a list of values to compare is empty; give at least one rule, K, γ, draft temperature "
            "and draft truncation"
        )
    tokens: dict[SampledSetup, Floats] = {}
    bounds: dict[Any, Estimate] = {}
    bounded = sum(map(bool, contexts)) > 1
    for draft_sampling in dict.fromkeys(samplings):
        drafter = ModelDrafter(draft, chosen_ks[-1], draft_sampling)
        recordings = stream_recordings(
            target, drafter, contexts, chosen_gammas[-1], sampling=of_target, batch=batch, seed=seed
        )
        means = block_efficiency(recordings, compared, chosen_ks, chosen_gammas, bound=bounded)
        prompts = Prompts(means.prompts)
        for setup, values in means.values.items():
            if setup.rule == "bound":
                bounds[setup.k, setup.gamma, draft_sampling] = means[setup]
            else:
                tokens[setup, draft_sampling] = prompts.sums(values)
    return rank_setups(tokens, latency, prompts, bounds)
