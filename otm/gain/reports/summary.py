"""Means over all positions, their differences, tokens of a step, and what to decode with.

Tokens of a step follow from the number of steps along a text that the target drew, and that number
is computed without sampling drafts.  The output Y of a lossless rule has the distribution q,
whatever the drafts.  Given Y = y, the rule accepts a draft with the probability w(y) = v(y)/q(y),
where v is its accepted mass: min(1, c p(y)/q(y)) for a rule with the cap c.  So given the whole
text the decisions along it are independent, each with its own w, as long as the number of drafts is
known.
The distribution of where steps begin then follows from the text by a recursion:

- **a prefix tree**, in which each node has K children, and K = 1, a chain: at every place K drafts
  are verified.  The mean number of steps is exact.
- **K chains**: at the first place of a step K drafts are verified, further on those chains that
  agree with the output so far, at least one and at most K.  For all three rules the cap grows
  with the number of drafts, and so does w, place by place: with one chain there are at most as
  many tokens, with all K (the prefix tree) at least as many.  These are the two bounds.

Both hold if the tokens were sampled from the target at the temperature of the report.  If the
tokens are not known, the acceptance probability α takes the place of w: exact if acceptance and
what follows are independent given the context, which is an assumption, and not quite true.  The end
of a prompt's text ends its last step.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from otm._core.display.reprs import Facts
from otm._core.means import Estimate, Floats, Prompts, Setup
from otm.coupling.compare.capped import CAPPED_RULES
from otm.gain.latency import Latency
from otm.gain.recommendation import Candidate, Recommendation, rank_setups
from otm.gain.reports.pairs import Measured
from otm.gain.reports.score_files import Source
from otm.gain.reports.settings import Settings
from otm.gain.reports.text_bound import bound_along_text
from otm.gain.reports.verdict import verdict

TableRow = dict[str, Any]
Axes = dict[str, Sequence[Any]]
"""The axes of an array behind that of the prompts: their names and labels."""


@dataclass(frozen=True)
class Summary(Facts):
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
    efficiency_bounds : list of dict
        Mean "bound" on the tokens per step of any memoryless lossless verifier of K i.i.d. chains,
        if a step begins equally often at each position of the text.  Empty unless the tokens of two
        prompts or more are known.
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
    acceptance: list[TableRow] = field(default_factory=list)
    differences: list[TableRow] = field(default_factory=list)
    bounds: list[TableRow] = field(default_factory=list)
    block_efficiency: list[TableRow] = field(default_factory=list)
    efficiency_bounds: list[TableRow] = field(default_factory=list)
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
        'The speeds assume that a draft token takes 0.05 of the time o'
        """
        if self.latency is None:
            return ""
        ratio = self.latency.draft[0] / self.latency.autoregressive_time
        first = (
            f"The speeds assume that a draft token takes {ratio:.3g} of the time of a target token"
        )
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
        """The bound of `efficiency_bounds` for the drafts of the recommendation, if it is known.

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
        """All of it for `json.dump`; ends of intervals that are not known are null."""
        found = self.recommendation
        values = {
            **vars(self),
            "settings": self.settings.key,
            "latency": None if self.latency is None else asdict(self.latency),
            "costs": self.costs or None,
            "intervals": self.intervals,
            "recommendation": _ways(found.candidates if found else ()),
            "recommendation if chains are free": _ways(found.if_chains_are_free if found else ()),
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
    level: float = 0.95,
) -> Summary:
    """Take means over the positions of what was measured; without latency no recommendation."""
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
        # sums whose means are tokens of a step: [P, D, capped rules, K, gammas, 2]
        tokens = prompts.per(steps_of_prompts(accepted, gammas, prompts))
        capped: Axes = {"rule": settings.capped_rules, "K": settings.ks, "gamma": gammas}
        ends = {"chains": tokens[..., 1], "tree": tokens[..., 0]}
        tables["block_efficiency"] = _rows(prompts, temperatures | capped, ends)
        if latency is not None:
            ways = itertools.product(
                settings.draft_samplings, settings.capped_rules, settings.ks, gammas
            )
            chains = tokens[..., 1].reshape(len(tokens), -1)
            fewest = {
                (Setup(rule, k, gamma), sampling): sums
                for (sampling, rule, k, gamma), sums in zip(ways, chains.T, strict=True)
            }
            tables["recommendation"] = rank_setups(fewest, latency, prompts)
    if "ratio" in measured and prompts.sizes.size > 1:
        most = bound_along_text(measured, settings.ks, gammas, prompts)
        bounded: Axes = {"K": settings.ks, "gamma": gammas}
        rows = _rows(prompts, temperatures | bounded, {"bound": most})
        tables["efficiency_bounds"] = [row for row in rows if not np.isnan(row["bound"].mean)]
    counts = source.prompts.size, prompts.sizes.size
    known = source.prompts_known, "accepted" in measured
    return Summary(source.name, *counts, *known, settings, level, **tables)


def _rows(prompts: Prompts, axes: Axes, columns: Mapping[str, Floats]) -> list[TableRow]:
    """One row for each combination of the axes: its labels, and the means of sums [P, axes]."""
    places = np.ndindex(*map(len, axes.values()))
    return [
        dict(zip(axes, labels, strict=True))
        | {name: prompts.mean(sums[:, *place]) for name, sums in columns.items()}
        for place, labels in zip(places, itertools.product(*axes.values()), strict=True)
    ]


def _differences(sums: Floats, settings: Settings, prompts: Prompts) -> list[TableRow]:
    """Differences to other rules, and to the first draft temperature, of sums [P, D, rules, K]."""
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


def steps_of_prompts(accepted: Floats, gammas: Sequence[int], prompts: Prompts) -> Floats:
    """Mean number of steps along the text of each prompt: [N, ..., K] → [P, ..., K, gammas, 2].

    `accepted` is the probability w at each position, k = 1 first, positions of a prompt in the
    order of its text.  Last axis: prefix trees (fewest), K chains of which one goes on (most).
    """
    depth = max(gammas)
    shape = (*accepted.shape[1:], len(gammas), 2)
    steps = np.zeros((prompts.sizes.size, *shape))
    # levels at which nothing is verified any more: the step's last token
    verified = np.arange(depth) < np.asarray(gammas)[:, None, None]
    for p, places in enumerate(prompts.places):
        level = np.zeros((*shape, depth + 1))  # how likely each number of accepted drafts is
        level[..., 0] = 1
        for w in accepted[places]:
            steps[p] += level[..., 0]
            later = np.empty((*w.shape, 1, 2, depth))
            later[...] = w[..., None, None, None]
            later[..., 1, 1:] = w[..., :1, None, None]
            moved = level[..., :-1] * later * verified
            level = np.concatenate([1 - moved.sum(-1, keepdims=True), moved], axis=-1)
    return steps


def _ways(candidates: Sequence[Candidate]) -> list[TableRow]:
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
    """Rows with estimates as objects, unknown ends as None."""
    return [
        {
            name: {end: x if np.isfinite(x) else None for end, x in value._asdict().items()}
            if isinstance(value, Estimate)
            else value
            for name, value in row.items()
        }
        for row in rows
    ]
