"""Settings of a report: rules, numbers of drafts, temperatures and lossy rules."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from otm._core.checks import as_draft_count
from otm._core.display.reprs import ShortRepr
from otm._core.display.text import shown
from otm._core.numbers import as_positive, as_real, check_name
from otm.coupling.build import PlanBuilder, PlanOfRule
from otm.coupling.compare.capped import CAPPED_RULES
from otm.decoding.drafters.trees import as_nodes
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError
from otm.rules import named

PATH_RULES = ("block", "traversal", "walk and keep", "branch and keep")
"""Rules that verify whole paths, the best one last; "block" verifies one chain."""

MAX_DRAFTS = 1024
"""Largest k: time and memory of recursive rejection and of the tables grow with k."""


@dataclass(frozen=True)
class Lenience:
    """Setting for `otm.coupling.lossy.LenientPlan`, which may overuse a token by a factor of 1/l.

    At lenience l the acceptance is α_k(l), and the total variation from the target is α_k(l) − α_k.
    No rule with acceptance α_k(l) is closer to the target (Theorems 7.3 and 7.4 of
    docs/theory/lenience.md).

    Parameters
    ----------
    lenience : float
        The lenience l, in (0, 1].

    Raises
    ------
    InvalidParameterError
        If l is not in (0, 1].

    Examples
    --------
    >>> str(Lenience(0.5))
    'lenience 0.5'
    """

    lenience: float

    def __post_init__(self) -> None:
        vars(self)["lenience"] = as_real(self.lenience, "lenience", above=0, most=1)

    def __str__(self) -> str:
        return f"lenience {self.lenience!r}"


@dataclass(frozen=True)
class Typical:
    """Setting for `otm.coupling.lossy.TypicalAcceptance`, the lossy rule of Medusa.

    The rule accepts drafts with a high target probability; otherwise it outputs the target's most
    probable token.

    Parameters
    ----------
    epsilon, delta : float, optional
        Parameters of `otm.coupling.lossy.TypicalAcceptance`, finite and at least 0.

    Raises
    ------
    InvalidParameterError
        If a parameter is not finite or below 0.

    Examples
    --------
    >>> str(Typical())
    'typical acceptance ε 0.09, δ 0.3'
    """

    epsilon: float = 0.09
    delta: float = 0.3

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            vars(self)[name] = as_real(value, name, least=0)

    def __str__(self) -> str:
        return f"typical acceptance ε {self.epsilon!r}, δ {self.delta!r}"


LossySetting: TypeAlias = Lenience | Typical
"""A rule that is not lossless and accepts more drafts, with its parameters."""


@dataclass(frozen=True)
class Settings(ShortRepr):
    """Settings of a report: what it computes at every position.

    Parameters
    ----------
    ks : sequence of int, optional
        Numbers of drafts, at most 1024; every report also has k = 1.
    rules : sequence of str, optional
        Names in `otm.rules.RULES`, or "module:name" for your own rule. The three rules whose
        accepted mass is min(q, c p) take a few milliseconds together, for any `ks`. All other rules
        take longer, because each builds a plan for each k.
    sampling : SamplingParameters, optional
        Sampling parameters of both models.
    draft_temperatures : sequence of float, optional
        Temperatures of the draft model to compare. The first temperature is the main one. The
        default is the temperature in `sampling`.
    lossy_settings : sequence of Lenience or Typical, optional
        Settings for rules that are not lossless.
    path_rules : sequence of str, optional
        Rules that verify whole paths: "block", "traversal", "walk and keep" and "branch and keep".
        A name of these in `rules` is moved here. They need drafts, which a report samples only if
        it has the models.
    contexts : int, optional
        Largest number of contexts at which drafts are sampled for `path_rules` and `nodes`.
    nodes : sequence of int, optional
        Draft budgets of trees, each at most 4,096: the largest number of drafts of a step. For each
        budget, the report drafts best-first trees without drawn children (`BestFirstDrafter`,
        verified by "target-only") and with them (`DrawnTreeDrafter`, "walk and keep"). At draft
        temperature 0 no child is drawn. Trees also need the models.

    Raises
    ------
    InvalidDraftCountError, InvalidParameterError
        If a number of drafts, a temperature or a setting is outside its range, or `rules` is empty.
    ProblemTooLargeError
        If a number in `nodes` exceeds 4,096.
    UnknownMethodError
        If a rule name is unknown.

    Examples
    --------
    >>> settings = Settings(ks=(4,), rules=("k-Seq",))
    >>> settings.ks, settings.draft_temperatures
    ((1, 4), (1.0,))
    """

    ks: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    rules: tuple[str, ...] = CAPPED_RULES
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    draft_temperatures: tuple[float, ...] = ()
    lossy_settings: tuple[LossySetting, ...] = (
        Lenience(0.9),
        Lenience(0.7),
        Lenience(0.5),
        Typical(),
    )
    path_rules: tuple[str, ...] = ()
    contexts: int = 100
    nodes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # a single number or name is also accepted
        for name in ("ks", "rules", "path_rules", "nodes"):
            if isinstance(vars(self)[name], int | str):
                vars(self)[name] = (vars(self)[name],)
        ks = sorted({1, *map(as_draft_count, self.ks)})
        if ks[-1] > MAX_DRAFTS:
            raise InvalidParameterError(f"k = {ks[-1]}; a report accepts at most {MAX_DRAFTS}")
        if not self.rules:
            raise InvalidParameterError("`rules` is empty; give at least one rule")
        paths = [name for name in self.rules if name in PATH_RULES]
        # tokens per step along the text need a rule with a plan
        rules = [name for name in self.rules if name not in PATH_RULES] or CAPPED_RULES
        for name in rules:
            named(name, "plan")
        paths += [check_name("path rule", name, PATH_RULES) for name in self.path_rules]
        for setting in self.lossy_settings:
            if not isinstance(setting, Lenience | Typical):
                raise InvalidParameterError(
                    f"setting {shown(setting)}; give a Lenience, such as Lenience(0.5), or a "
                    "Typical"
                )
        temperatures = tuple(self.draft_temperatures) or (self.sampling.temperature,)
        # `replace` checks the temperatures
        samplings = [replace(self.sampling, temperature=t) for t in temperatures]
        vars(self).update(
            ks=tuple(ks),
            rules=tuple(dict.fromkeys(rules)),
            path_rules=tuple(dict.fromkeys(paths)),
            contexts=as_positive(self.contexts, "contexts"),
            nodes=tuple(dict.fromkeys(map(as_nodes, self.nodes))),
            draft_temperatures=tuple(dict.fromkeys(each.temperature for each in samplings)),
            lossy_settings=tuple(self.lossy_settings),
        )

    @property
    def draft_samplings(self) -> tuple[SamplingParameters, ...]:
        """Sampling parameters of the draft model, one for each draft temperature."""
        return tuple(replace(self.sampling, temperature=t) for t in self.draft_temperatures)

    @property
    def capped_rules(self) -> tuple[str, ...]:
        """The rules whose accepted mass is min(q, c p), for a cap c."""
        return tuple(name for name in self.rules if name in CAPPED_RULES)

    @cached_property
    def plans(self) -> dict[str, PlanBuilder]:
        """The plan builder of each rule, by name."""
        return {name: PlanOfRule(named(name, "plan")) for name in self.rules}

    @property
    def key(self) -> dict[str, Any]:
        """All settings of the positions as JSON; equal for equal settings."""
        of_drafts = ("path_rules", "contexts", "nodes")
        return {name: value for name, value in asdict(self).items() if name not in of_drafts}
