"""What rules that are not lossless would gain, and how far their output is from the target.

Each is computed for all k at once, after one sort, by what `otm.coupling` does for one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import at_least_once, power_slopes
from otm._core.numbers import as_real
from otm._core.text import shown
from otm.errors import InvalidParameterError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lenience:
    """`otm.coupling.LenientPlan` at a lenience l: no token more than 1/l times as often.

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
        lenience = as_real(self.lenience, "lenience", above=0, most=1)
        object.__setattr__(self, "lenience", lenience)

    def __str__(self) -> str:
        return f"lenience {self.lenience!r}"


@dataclass(frozen=True)
class Typical:
    """`otm.coupling.TypicalAcceptance`, as Medusa has it: likely drafts, or else the likeliest.

    Parameters
    ----------
    epsilon, delta : float, optional
        As of `otm.coupling.TypicalAcceptance`, finite and at least 0.

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
            object.__setattr__(self, name, as_real(value, name, least=0))

    def __str__(self) -> str:
        return f"typical acceptance ε {self.epsilon!r}, δ {self.delta!r}"


LossySetting: TypeAlias = Lenience | Typical
"""A rule that accepts more drafts than a lossless one, with its parameters."""


def check_lossy_settings(lossy_settings: Any) -> tuple[LossySetting, ...]:
    """Refuse what is neither `Lenience` nor `Typical`, and return the settings."""
    for setting in lossy_settings:
        if not isinstance(setting, Lenience | Typical):
            raise InvalidParameterError(
                f"setting {shown(setting)}; give a Lenience, such as Lenience(0.5), or a Typical"
            )
    return tuple(lossy_settings)


def typical(draft: Floats, target: Floats, ks: Sequence[int], setting: Typical) -> Floats:
    """Compute the acceptance of a `Typical`, and its total variation from the target: [2, K]."""
    positive = target[target > 0]
    perplexity = math.exp(float((positive * np.log(positive)).sum()))
    likely = np.flatnonzero(target > min(setting.epsilon, setting.delta * perplexity))
    best = int(target.argmax())
    levels, level = np.unique(target[likely], return_inverse=True)
    drafted = draft[likely]
    unlikely = max(1 - float(drafted.sum()), 0.0)
    masses = np.cumsum([unlikely, *np.bincount(level, drafted, levels.size)])
    found = np.empty((2, len(ks)))
    for i, k in enumerate(ks):
        # the first of k drafts on the highest level reached
        output = drafted * power_slopes(masses, k)[level]
        accepted = min(float(output.sum()), 1.0)
        moved = np.abs(output - target[likely])
        rest = 1 - float(target[likely].sum())  # the others are never output, but for the best
        if likely.size and target[best] == levels[-1]:
            place = int(np.searchsorted(likely, best))
            moved[place] = abs(output[place] + 1 - accepted - target[best])
            hit = 0.0  # the best is likely, and would have been accepted
        else:
            rest += 1 - 2 * target[best]
            hit = float(at_least_once(float(draft[best]), k))
        found[:, i] = accepted + (1 - accepted) * hit, (moved.sum() + max(rest, 0)) / 2
    return found
