"""The budget that the plugin for pytest hands to tests, with what it has to know for its summary.

The plugin itself, `_otm_pytest_plugin`, lies beside the package and says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from otm.errors import InvalidParameterError
from otm.shown import shown
from otm.testing.monte_carlo import Budget, Control, Sampler, Verdict
from otm.testing.statistics import Criterion

__all__ = ["RunBudget"]


@dataclass
class RunBudget(Budget):
    """A budget that counts what the checks of a run used.

    Parameters
    ----------
    false_alarms : float
        Bound on the probability that a run fails although every sampler is right.
    capacity : int
        Number of checks that share it.

    Raises
    ------
    InvalidParameterError
        If the bound is not in (0, 1) or the capacity is not at least 1.

    Examples
    --------
    >>> RunBudget(capacity=100).used()
    {'checks': 0, 'draws': 0, 'capacity': 100, 'level': 1e-08}
    """

    draws: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.false_alarms < 1:
            raise InvalidParameterError(
                f"false_alarms = {shown(self.false_alarms)}; it is a probability in (0, 1)"
            )
        if not self.capacity >= 1:
            raise InvalidParameterError(
                f"capacity = {shown(self.capacity)}; at least one check is needed"
            )

    def used(self) -> dict[str, Any]:
        """Return the numbers of checks and of draws, those of negative controls among them."""
        return {
            "checks": len(self._names),
            "draws": self.draws,
            "capacity": self.capacity,
            "level": self.level,
        }

    def _judge(
        self, name: str, sampler: Sampler, criterion: Criterion, control: Control
    ) -> Verdict:
        self.draws += 2 * criterion.draws
        return super()._judge(name, sampler, criterion, control)
