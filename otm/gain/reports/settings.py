"""What a report computes at every position: rules, draft counts, temperatures, lossy settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from otm._core.checks import as_draft_count
from otm._core.display.reprs import Brief
from otm._core.display.text import shown
from otm._core.numbers import as_real
from otm.coupling.build import PlanBuilder, PlanOfRule
from otm.coupling.compare.capped import CAPPED_RULES
from otm.decoding.sampling_parameters import SamplingParameters
from otm.errors import InvalidParameterError
from otm.rules import named

MAX_DRAFTS = 1024
"""Largest k: recursive rejection and the tables take time and memory for each below it."""


@dataclass(frozen=True)
class Lenience:
    """`otm.coupling.lossy.LenientPlan` at a lenience l: no token more than 1/l times as often.

    Its acceptance is α_k(l), and its total variation from the target α_k(l) − α_k: the least that
    such an acceptance can cost (Theorems 7.3 and 7.4 of docs/theory/lenience.md).

    Parameters
    ----------
    lenience : float
        l in (0, 1].

    Raises
    ------
    InvalidParameterError
        If it is not.

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
    """`otm.coupling.lossy.TypicalAcceptance`, as in Medusa: likely drafts, or the likeliest token.

    Parameters
    ----------
    epsilon, delta : float, optional
        As of `otm.coupling.lossy.TypicalAcceptance`, finite and at least 0.

    Raises
    ------
    InvalidParameterError
        If they are not.

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
"""A rule that accepts more drafts than a lossless one, with its parameters."""


@dataclass(frozen=True)
class Settings(Brief):
    """What is computed at every position.

    Parameters
    ----------
    ks : sequence of int, optional
        Numbers of drafts, at most 1024; 1 is always among them.
    rules : sequence of str, optional
        Names in `otm.rules.RULES`, or "module:name" of your own.  The three that accept min(q, c p)
        take a few milliseconds together, whatever the number of k; others a plan for each k.
    sampling : SamplingParameters, optional
        How to sample from both models.
    draft_temperatures : sequence of float, optional
        Temperatures of the draft model to compare, the first of them the main one; that of the
        sampling if left out.
    lossy_settings : sequence of Lenience or Typical, optional
        Rules that are not lossless.

    Raises
    ------
    InvalidDraftCountError, InvalidParameterError
        If a number of drafts, a temperature or a setting is outside its range, or there is no rule.
    UnknownMethodError
        If a rule does not exist.

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

    def __post_init__(self) -> None:
        for name in ("ks", "rules"):  # a single one may stand alone
            if isinstance(vars(self)[name], int | str):
                vars(self)[name] = (vars(self)[name],)
        ks = sorted({1, *map(as_draft_count, self.ks)})
        if ks[-1] > MAX_DRAFTS:
            raise InvalidParameterError(f"k = {ks[-1]}; a report takes at most {MAX_DRAFTS}")
        for name in self.rules:
            named(name, "plan")
        if not self.rules:
            raise InvalidParameterError("there is nothing to compute; give at least one rule")
        for setting in self.lossy_settings:
            if not isinstance(setting, Lenience | Typical):
                raise InvalidParameterError(
                    f"setting {shown(setting)}; give a Lenience, such as Lenience(0.5), or a "
                    "Typical"
                )
        temperatures = tuple(self.draft_temperatures) or (self.sampling.temperature,)
        samplings = [replace(self.sampling, temperature=t) for t in temperatures]  # checks them
        vars(self).update(
            ks=tuple(ks),
            rules=tuple(dict.fromkeys(self.rules)),
            draft_temperatures=tuple(dict.fromkeys(each.temperature for each in samplings)),
            lossy_settings=tuple(self.lossy_settings),
        )

    @property
    def draft_samplings(self) -> tuple[SamplingParameters, ...]:
        """How to sample from the draft model, one for each of its temperatures."""
        return tuple(replace(self.sampling, temperature=t) for t in self.draft_temperatures)

    @property
    def capped_rules(self) -> tuple[str, ...]:
        """Those of the rules that accept min(q, c p)."""
        return tuple(name for name in self.rules if name in CAPPED_RULES)

    @cached_property
    def plans(self) -> dict[str, PlanBuilder]:
        """Look the rules up, by their names."""
        return {name: PlanOfRule(named(name, "plan")) for name in self.rules}

    @property
    def key(self) -> dict[str, Any]:
        """All of it as JSON; equal for equal settings."""
        return asdict(self)
