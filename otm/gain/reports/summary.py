"""Summary of a report: means over all positions, differences, tokens per step, recommendation.

Tokens per step follow from the number of steps along the text (`mean_steps_of_prompts`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from otm._core.display.reprs import FactsRepr
from otm._core.means import Estimate, Floats, PairedMeans, Prompts, Setup
from otm.coupling.compare.capped import CAPPED_RULES
from otm.gain.latency import Latency
from otm.gain.recommendation import Candidate, Recommendation, rank_setups
from otm.gain.reports.pairs import Measured
from otm.gain.reports.sampled_tables import TableRow, sampled_tables
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.gain.reports.steps_along_text import mean_steps_of_prompts
from otm.gain.reports.text_bound import bound_along_text
from otm.gain.reports.verdict import verdict

Axes = dict[str, Sequence[Any]]
"""Labels of each axis of an array, by the axis's name; the axis of the prompts is left out."""


@dataclass(frozen=True)
class Summary(FactsRepr):
    """The numbers of a report. A table is a list of rows, and all its rows have the same keys.

    Attributes
    ----------
    source : str
        Description of the source.
    positions, prompts : int
        Numbers of positions and of prompts.
    prompts_known : bool
        Whether the source has the prompts; if not, there are no intervals.
    tokens_known : bool
        Whether the source has tokens that the target sampled; without them, the tokens per step
        rest on an assumption.
    settings : Settings
        Settings of the report.
    level : float
        Approximate probability that an interval covers its mean.
    acceptance : list of dict
        Acceptance probability for each draft temperature, rule and k.
    differences : list of dict
        Acceptance of the first rule minus acceptance of each other rule, at the same positions.
        Further rows have the acceptance at each other draft temperature minus the acceptance at the
        first temperature.
    bounds : list of dict
        Bounds on the mean of α_k, if only the most probable tokens are known.
    block_efficiency : list of dict
        Mean tokens per step: "tree" for a prefix tree with K children at each node, and "chains", a
        lower bound for K chains.
    efficiency_bounds : list of dict
        Mean "bound", an upper bound on the tokens per step of every memoryless lossless verifier of
        K i.i.d. chains, if steps begin equally often at each position of the text. Empty unless the
        tokens of two or more prompts are known.
    sampled_drafts : list of dict
        "mean" tokens per step of each rule, K and γ, from drafts sampled at contexts where steps
        begin. Empty unless the settings have path rules or `nodes`.
    sampled_bounds : list of dict
        "bound" on "mean" in `sampled_drafts`, for every memoryless lossless verifier of K i.i.d.
        chains, estimated from the same drafts. Empty unless these have two or more prompts.
    sampled_trees : list of dict
        "mean" tokens per step of each kind of tree, number of "nodes" and depth "gamma", at the
        contexts of `sampled_drafts`. Empty unless the settings have `nodes`.
    tree_differences : list of dict
        Paired differences at these contexts: tokens of the tree "of" minus tokens of "less", which
        is another tree with as many nodes, or a rule with the most chains "K" of at most as many
        drafts. If one chain of "gamma" drafts has more, K is 1.
    lossy : list of dict
        For each lossy setting, the acceptance that it adds to the best lossless rule, and its total
        variation from the target.
    recommendation : Recommendation or None
        Setups for decoding, fastest first, if a latency was given.
    latency : Latency or None
        Assumed cost of steps.

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
    acceptance: list[TableRow] = field(default_factory=list)
    differences: list[TableRow] = field(default_factory=list)
    bounds: list[TableRow] = field(default_factory=list)
    block_efficiency: list[TableRow] = field(default_factory=list)
    efficiency_bounds: list[TableRow] = field(default_factory=list)
    sampled_drafts: list[TableRow] = field(default_factory=list)
    sampled_bounds: list[TableRow] = field(default_factory=list)
    sampled_trees: list[TableRow] = field(default_factory=list)
    tree_differences: list[TableRow] = field(default_factory=list)
    lossy: list[TableRow] = field(default_factory=list)
    recommendation: Recommendation | None = None
    latency: Latency | None = None

    @property
    def _title(self) -> str:
        first = verdict(self)
        return f"{first.headline} {first.detail}".rstrip()

    def _lines(self) -> list[tuple[str, str]]:
        prompts = f"{self.prompts:,}" if self.prompts_known else "unknown, so no intervals"
        lines = [
            *verdict(self).numbers,
            ("source", self.source),
            ("positions", f"{self.positions:,}"),
            ("prompts", prompts),
            ("sampling", str(self.settings.sampling)),
        ]
        ks = self.settings.ks
        main = self.settings.draft_temperatures[0]
        for row in self.bounds:
            if row["k"] in (ks[0], ks[-1]):
                lines.append((f"α, k = {row['k']}", f"{row['lower']} to {row['upper']}"))
        for row in self.acceptance:
            if row["draft temperature"] == main and row["k"] == ks[-1]:
                lines.append((f"{row['rule']}, k = {row['k']}", f"{row['mean']} accepted"))
        return lines

    @property
    def not_recommended(self) -> str:
        """The rules that a recommendation leaves out and the reason; empty if it has all rules.

        Examples
        --------
        >>> settings = Settings(rules=("greedy",))
        >>> summary = Summary("two files", 100, 1, False, False, settings, level=0.95,
        ...                   latency=Latency.constant(0.05))
        >>> summary.not_recommended[:35]
        'Not in the recommendation: greedy. '
        """
        others = [rule for rule in self.settings.rules if rule not in CAPPED_RULES]
        if self.latency is None or not others:
            return ""
        return (
            f"Not in the recommendation: {', '.join(others)}. From a recorded text a report can "
            f"compute tokens per step only for {', '.join(CAPPED_RULES)}. To compare other rules, "
            "such as walk and keep, use `otm.gain.recommend`, which samples drafts from the models."
        )

    @property
    def costs(self) -> str:
        """The costs that the recommendation assumes, in words; empty without a latency.

        Examples
        --------
        >>> from dataclasses import replace
        >>> summary = Summary("two files", 100, 1, False, False, Settings(), level=0.95)
        >>> replace(summary, latency=Latency.constant(0.05)).costs[:61]
        'The speeds assume that a draft token takes 0.05 times as long'
        """
        if self.latency is None:
            return ""
        ratio = self.latency.draft[0] / self.latency.autoregressive_time
        times = f"{ratio:.3g} times as long as a target token"
        first = f"The speeds assume that a draft token takes {times}"
        if not self.latency.is_constant:
            return f"{first}; the latency table has the times for more rows and tokens."
        return (
            f"{first}, and that the target reads γ + 1 tokens in the time of one. The cost of more "
            "chains is unknown, so only one chain is compared. To compare several, give a table of "
            "step times from otm.gain.measure_latency."
        )

    @property
    def intervals(self) -> str:
        """The meaning of ±, or the reason why there are no intervals.

        Examples
        --------
        >>> Summary("two files", 100, 1, True, False, Settings(), level=0.95).intervals[:55]
        'All positions are from one prompt, so the report has no'
        """
        if not self.prompts_known:
            return (
                "The prompt of each position is unknown, so the report has no intervals: "
                "neighbouring positions are alike, and the report cannot know how much."
            )
        if self.prompts == 1:
            return (
                "All positions are from one prompt, so the report has no intervals: the "
                "differences between prompts are unknown."
            )
        return (
            f"± is half of the {100 * self.level:g} % interval. Positions of one prompt are alike, "
            f"so the intervals treat only the {self.prompts:,} prompts as independent."
        )

    @property
    def most_tokens(self) -> Estimate | None:
        """The bound from `efficiency_bounds` for the recommended drafts; None if unknown.

        Examples
        --------
        >>> Summary("two files", 100, 1, False, False, Settings(), level=0.95).most_tokens
        """
        if self.recommendation is None:
            return None
        best = self.recommendation.best
        drafts = best.draft_sampling.temperature, best.setup.k, best.setup.gamma
        bounds = (
            row["bound"]
            for row in self.efficiency_bounds
            if (row["draft temperature"], row["K"], row["gamma"]) == drafts
        )
        return next(bounds, None)

    def as_json(self) -> dict[str, Any]:
        """Return all numbers for `json.dump`; unknown ends of intervals are None."""
        recommendation = self.recommendation
        values = {
            **vars(self),
            "settings": asdict(self.settings),
            "latency": None if self.latency is None else asdict(self.latency),
            "costs": self.costs or None,
            "intervals": self.intervals,
            "recommendation": _setup_rows(recommendation.candidates if recommendation else ()),
            "recommendation if chains are free": _setup_rows(
                recommendation.if_chains_are_free if recommendation else ()
            ),
        }
        return {
            name: _without_infinities(value) if isinstance(value, list) else value
            for name, value in values.items()
        }


def summarise(
    source: Source,
    measured: Measured,
    settings: Settings,
    gammas: Sequence[int],
    latency: Latency | None = None,
    *,
    sampled: PairedMeans | None = None,
    level: float = 0.95,
) -> Summary:
    """Summarise measured arrays by means; add a recommendation if there is a latency.

    `sampled` has the tokens per step from sampled drafts, if there are any.
    """
    prompts = Prompts(source.prompts, level)
    temperatures: Axes = {"draft temperature": settings.draft_temperatures}
    rules: Axes = {"rule": settings.rules}
    ks: Axes = {"k": settings.ks}
    tables: dict[str, Any] = {} if "interval" in measured else {"latency": latency}
    if "interval" in measured:
        sums = prompts.sums(measured["interval"])
        ends = {"lower": sums[..., 0], "upper": sums[..., 1]}
        tables["bounds"] = _rows(prompts, ks, ends)
    else:
        sums = prompts.sums(measured["acceptance"])
        tables["acceptance"] = _rows(prompts, temperatures | rules | ks, {"mean": sums})
        tables["differences"] = _differences(sums, settings, prompts)
        lossy = prompts.sums(measured["lossy"])
        accepted, optimum = lossy[:, :, :, 0], prompts.sums(measured["optimum"])
        columns = {
            "acceptance": accepted,
            "gain": accepted - optimum[:, :, None],
            "total variation": lossy[:, :, :, 1],
        }
        named: Axes = {"setting": [str(setting) for setting in settings.lossy_settings]}
        tables["lossy"] = _rows(prompts, temperatures | named | ks, columns)
    if settings.capped_rules and "acceptance" in measured:
        places = [settings.rules.index(rule) for rule in settings.capped_rules]
        accepted = measured.get("accepted", measured["acceptance"][:, :, places])
        # sums whose means are tokens per step: [P, D, capped rules, K, gammas, 2]
        tokens = prompts.per(mean_steps_of_prompts(accepted, gammas, prompts))
        capped: Axes = {"rule": settings.capped_rules, "K": settings.ks, "gamma": gammas}
        ends = {"chains": tokens[..., 1], "tree": tokens[..., 0]}
        tables["block_efficiency"] = _rows(prompts, temperatures | capped, ends)
        if latency is not None:
            setups = itertools.product(
                settings.draft_samplings, settings.capped_rules, settings.ks, gammas
            )
            chains = tokens[..., 1].reshape(len(tokens), -1)
            fewest = {
                (Setup(rule, k, gamma), sampling): sums
                for (sampling, rule, k, gamma), sums in zip(setups, chains.T, strict=True)
            }
            tables["recommendation"] = rank_setups(fewest, latency, prompts)
    if "ratio" in measured and prompts.sizes.size > 1:
        most = bound_along_text(measured, settings.ks, gammas, prompts)
        bounded: Axes = {"K": settings.ks, "gamma": gammas}
        rows = _rows(prompts, temperatures | bounded, {"bound": most})
        tables["efficiency_bounds"] = [row for row in rows if not np.isnan(row["bound"].mean)]
    if sampled is not None:
        tables |= sampled_tables(sampled, settings)
    counts = source.prompts.size, prompts.sizes.size
    known = source.prompts_known, "accepted" in measured
    return Summary(source.name, *counts, *known, settings, level, **tables)


def _rows(prompts: Prompts, axes: Axes, columns: Mapping[str, Floats]) -> list[TableRow]:
    """Return a row for each combination of labels, with the means of sums [P, axes]."""
    places = np.ndindex(*map(len, axes.values()))
    return [
        dict(zip(axes, labels, strict=True))
        | {name: prompts.mean(sums[:, *place]) for name, sums in columns.items()}
        for place, labels in zip(places, itertools.product(*axes.values()), strict=True)
    ]


def _differences(sums: Floats, settings: Settings, prompts: Prompts) -> list[TableRow]:
    """Return differences of sums [P, D, rules, K] between rules, and between temperatures."""
    (first, *others), (main, *further) = settings.rules, settings.draft_temperatures
    ks = {"k": settings.ks}
    rules: Axes = {"draft temperature": settings.draft_temperatures, "less": others, **ks}
    by_rule = _rows(prompts, rules, {"mean": sums[:, :, :1] - sums[:, :, 1:]})
    temperatures: Axes = {"draft temperature": further, **ks}
    by_temperature = _rows(prompts, temperatures, {"mean": sums[:, 1:, 0] - sums[:, :1, 0]})
    at = f"{first}, draft temperature"
    return [{"of": first, **row} for row in by_rule] + [
        {"of": f"{at} {row['draft temperature']:g}", "less": f"{at} {main:g}", **row}
        for row in by_temperature
    ]


def _setup_rows(candidates: Sequence[Candidate]) -> list[TableRow]:
    """Return a row of JSON for each candidate."""
    return [
        {
            **dict(zip(("rule", "K", "gamma"), candidate.setup, strict=True)),
            "draft temperature": candidate.draft_sampling.temperature,
            "tokens of a step": candidate.block_efficiency,
            "speed-up": candidate.speedup,
            "gap to best": candidate.gap_to_best,
        }
        for candidate in candidates
    ]


def _without_infinities(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return rows with estimates as dicts, in which unknown ends are None."""
    return [
        {
            name: {end: x if np.isfinite(x) else None for end, x in value._asdict().items()}
            if isinstance(value, Estimate)
            else value
            for name, value in row.items()
        }
        for row in rows
    ]
