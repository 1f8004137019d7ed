"""Means over all positions, their differences, and what to decode with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from otm.gain.estimates import Prompts
from otm.gain.latency import Latency
from otm.gain.paired_means import Estimate, Setup
from otm.gain.pairs import Measured
from otm.gain.recommendation import Candidate, Recommendation
from otm.gain.settings import Settings
from otm.gain.sources import Source
from otm.gain.steps import steps_of_prompts

Floats = npt.NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """What a report says; every table is a list of rows, every row has the same names.

    Attributes
    ----------
    source : str
        Where the positions are from.
    positions, prompts : int
        How many of them there are, and of how many prompts.
    prompts_known : bool
        Whether the source told the prompts; otherwise no interval is known.
    tokens_known : bool
        Whether the tokens that the target drew were given, so that steps need no assumption.
    settings : Settings
        What was computed.
    level : float
        Probability that an interval covers its mean, nearly.
    acceptance : list of dict
        Acceptance probability for each draft temperature, rule and k.
    differences : list of dict
        What the first rule accepts beyond each other one, and what each other draft temperature
        adds, at the same positions.
    bounds : list of dict
        Interval of the mean of α_k where only the most likely tokens are known.
    block_efficiency : list of dict
        Mean number of tokens of a step: "tree" for a prefix tree with K children at each node,
        "chains" at least for K chains.
    lossy : list of dict
        What each setting adds to the acceptance of the best lossless rule, and its total variation
        from the target.
    recommendation : Recommendation or None
        Ways to decode, the fastest first, if a latency table was given.
    latency : Latency or None
        What steps were taken to cost.

    Examples
    --------
    >>> summary = Summary("two files", 100, 1, False, False, Settings(), level=0.95)
    >>> summary.as_json()["positions"]
    100
    """

    source: str
    positions: int
    prompts: int
    prompts_known: bool
    tokens_known: bool
    settings: Settings
    level: float
    acceptance: list[Row] = field(default_factory=list)
    differences: list[Row] = field(default_factory=list)
    bounds: list[Row] = field(default_factory=list)
    block_efficiency: list[Row] = field(default_factory=list)
    lossy: list[Row] = field(default_factory=list)
    recommendation: Recommendation | None = None
    latency: Latency | None = None

    @property
    def costs(self) -> str:
        """What the recommendation takes steps to cost, in words; empty without one.

        Examples
        --------
        >>> from dataclasses import replace
        >>> summary = Summary("two files", 100, 1, False, False, Settings(), level=0.95)
        >>> replace(summary, latency=Latency.constant(0.05)).costs[:68]
        'The draft model takes 0.05 of the time of the target for a token, as'
        """
        if self.latency is None:
            return ""
        ratio = self.latency.draft[0] / self.latency.autoregressive_time
        first = f"The draft model takes {ratio:.3g} of the time of the target for a token"
        if not self.latency.is_constant:
            return f"{first}, and more rows or tokens take as long as the latency table says."
        return (
            f"{first}, as given. By assumption a run of either model takes the same time for any K "
            "and γ, so that more chains cost nothing and a large K wins: to choose K, give a "
            "table of step times (otm.gain.measure_latency)."
        )

    def as_json(self) -> dict[str, Any]:
        """All of it for `json.dump`; ends of intervals that are not known are null."""
        tables = {
            name: [_plain(row) for row in getattr(self, name)]
            for name in ("acceptance", "differences", "bounds", "block_efficiency", "lossy")
        }
        named = ("source", "positions", "prompts", "prompts_known", "tokens_known", "level")
        candidates = () if self.recommendation is None else self.recommendation.candidates
        return {
            **{name: getattr(self, name) for name in named},
            "settings": self.settings.key,
            **tables,
            "latency": None if self.latency is None else asdict(self.latency),
            "costs": self.costs or None,
            "recommendation": [_plain(_candidate(candidate)) for candidate in candidates],
        }


def summarise(
    source: Source,
    measured: Measured,
    settings: Settings,
    gammas: Sequence[int],
    latency: Latency | None = None,
    *,
    level: float = 0.95,
) -> Summary:
    """Take means over the positions of what was measured; without latency no recommendation."""
    prompts = Prompts(source.prompts, level)
    tables: dict[str, Any] = {}
    if "interval" in measured:
        tables["bounds"] = _bounds(measured["interval"], settings, prompts)
    else:
        sums = prompts.sums(measured["acceptance"])
        tables["acceptance"] = _acceptance(sums, settings, prompts)
        tables["differences"] = _differences(sums, settings, prompts)
        tables["lossy"] = _lossy(measured, settings, prompts)
        if settings.capped_rules:
            tokens = _tokens(measured, settings, gammas, prompts)
            tables["block_efficiency"] = _efficiency(tokens, settings, gammas, prompts)
            if latency is not None:
                tables["latency"] = latency
                tables["recommendation"] = _recommend(tokens, settings, gammas, latency, prompts)
    return Summary(
        source.name,
        source.prompts.size,
        prompts.sizes.size,
        source.prompts_known,
        "accepted" in measured,
        settings,
        level,
        **tables,
    )


def _bounds(intervals: Floats, settings: Settings, prompts: Prompts) -> list[Row]:
    sums = prompts.sums(intervals)
    return [
        {"k": k, "lower": prompts.mean(sums[:, i, 0]), "upper": prompts.mean(sums[:, i, 1])}
        for i, k in enumerate(settings.ks)
    ]


def _acceptance(sums: Floats, settings: Settings, prompts: Prompts) -> list[Row]:
    return [
        {"draft temperature": t, "rule": rule, "k": k, "mean": prompts.mean(sums[:, d, r, i])}
        for d, t in enumerate(settings.draft_temperatures)
        for r, rule in enumerate(settings.rules)
        for i, k in enumerate(settings.ks)
    ]


def _differences(sums: Floats, settings: Settings, prompts: Prompts) -> list[Row]:
    first, others = settings.rules[0], settings.rules[1:]
    main, further = settings.draft_temperatures[0], settings.draft_temperatures[1:]
    by_rule = [
        {
            "of": first,
            "less": rule,
            "draft temperature": t,
            "k": k,
            "mean": prompts.mean(sums[:, d, 0, i] - sums[:, d, r, i]),
        }
        for d, t in enumerate(settings.draft_temperatures)
        for r, rule in enumerate(others, 1)
        for i, k in enumerate(settings.ks)
    ]
    by_temperature = [
        {
            "of": f"{first}, draft temperature {t:g}",
            "less": f"{first}, draft temperature {main:g}",
            "draft temperature": t,
            "k": k,
            "mean": prompts.mean(sums[:, d, 0, i] - sums[:, 0, 0, i]),
        }
        for d, t in enumerate(further, 1)
        for i, k in enumerate(settings.ks)
    ]
    return by_rule + by_temperature


def _lossy(measured: Measured, settings: Settings, prompts: Prompts) -> list[Row]:
    sums = prompts.sums(measured["lossy"])
    optimum = prompts.sums(measured["optimum"])
    return [
        {
            "draft temperature": t,
            "setting": str(setting),
            "k": k,
            "acceptance": prompts.mean(sums[:, d, j, 0, i]),
            "gain": prompts.mean(sums[:, d, j, 0, i] - optimum[:, d, i]),
            "total variation": prompts.mean(sums[:, d, j, 1, i]),
        }
        for d, t in enumerate(settings.draft_temperatures)
        for j, setting in enumerate(settings.lossy_settings)
        for i, k in enumerate(settings.ks)
    ]


def _tokens(
    measured: Measured, settings: Settings, gammas: Sequence[int], prompts: Prompts
) -> Floats:
    """Return sums whose means are tokens of a step: [P, D, cap rules, K, gammas, 2]."""
    accepted = measured.get("accepted")
    if accepted is None:
        caps = [settings.rules.index(rule) for rule in settings.capped_rules]
        accepted = measured["acceptance"][:, :, caps]
    tokens = np.stack(
        [steps_of_prompts(accepted[:, d], gammas, prompts) for d in range(accepted.shape[1])],
        axis=1,
    )
    for place in np.ndindex(tokens.shape[1:]):
        tokens[:, *place] = prompts.per(tokens[:, *place])
    return tokens


def _efficiency(
    tokens: Floats, settings: Settings, gammas: Sequence[int], prompts: Prompts
) -> list[Row]:
    return [
        {
            "draft temperature": t,
            "rule": rule,
            "K": k,
            "gamma": gamma,
            "chains": prompts.mean(tokens[:, d, r, i, g, 1]),
            "tree": prompts.mean(tokens[:, d, r, i, g, 0]),
        }
        for d, t in enumerate(settings.draft_temperatures)
        for r, rule in enumerate(settings.capped_rules)
        for i, k in enumerate(settings.ks)
        for g, gamma in enumerate(gammas)
    ]


def _recommend(
    tokens: Floats,
    settings: Settings,
    gammas: Sequence[int],
    latency: Latency,
    prompts: Prompts,
) -> Recommendation:
    """Order all ways by speed, K chains by the fewest tokens that their steps may have."""
    shapes = itertools.product(
        enumerate(settings.draft_samplings),
        enumerate(settings.ks),
        enumerate(gammas),
        enumerate(settings.capped_rules),
    )
    kept: dict[tuple[Setup, int], tuple[Floats, Floats]] = {}
    for (d, _), (i, k), (g, gamma), (r, rule) in shapes:
        sums = tokens[:, d, r, i, g, 1]
        alike = (Setup(other, k, gamma) for other in settings.capped_rules[:r])
        if any(np.allclose(kept[s, d][0], sums) for s in alike if (s, d) in kept):
            continue  # by another name alone, as with one draft
        kept[Setup(rule, k, gamma), d] = sums, sums * latency.speedup(1.0, gamma, k)
    order = sorted(kept, key=lambda key: -float(kept[key][1].sum()))
    best = kept[order[0]][1]
    return Recommendation(
        tuple(
            Candidate(
                setup,
                settings.draft_samplings[d],
                block_efficiency=prompts.mean(kept[setup, d][0]),
                speedup=prompts.mean(kept[setup, d][1]),
                gap_to_best=prompts.mean(best - kept[setup, d][1]),
            )
            for setup, d in order
        ),
        contexts=prompts.index.size,
        prompts=prompts.sizes.size,
    )


def _candidate(candidate: Candidate) -> Row:
    return {
        "rule": candidate.setup.rule,
        "K": candidate.setup.k,
        "gamma": candidate.setup.gamma,
        "draft temperature": candidate.draft_sampling.temperature,
        "tokens of a step": candidate.block_efficiency,
        "speed-up": candidate.speedup,
        "gap to best": candidate.gap_to_best,
    }


def _plain(row: Row) -> Row:
    """Estimates as objects, without infinities."""
    return {
        name: {
            end: number if np.isfinite(number) else None for end, number in value._asdict().items()
        }
        if isinstance(value, Estimate)
        else value
        for name, value in row.items()
    }
