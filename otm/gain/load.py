"""Decoding under load: tokens per second by the number of requests in flight.

With more requests a call of the target reads more rows, and drafts add tokens to each row.  So
drafts that pay for one request may cost time for many.  The block efficiency of a setup does not
depend on the load, but the measured times do (`Latency.under_load`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

from otm._core.display.reprs import TextRepr
from otm._core.display.text import shown, text_table
from otm._core.means import Setup
from otm._core.numbers import as_positive, as_real
from otm.decoding.policies import as_gamma
from otm.errors import InvalidInputError, InvalidParameterError
from otm.gain.latency import Latency, as_latency


class LoadedRate(NamedTuple):
    """Speed of one setup at one load.

    Attributes
    ----------
    requests : int
        Number B of requests in flight.
    setup : Setup or None
        Rule, K and γ; None for decoding without drafts.
    server_rate : float
        Tokens of all requests in a unit of time, such as a second.
    request_rate : float
        Tokens of one request in a unit of time.
    speedup : float
        Rate divided by the rate without drafts at the same load.

    Examples
    --------
    >>> LoadedRate(2, None, 8.0, 4.0, 1.0).request_rate
    4.0
    """

    requests: int
    setup: Setup | None
    server_rate: float
    request_rate: float
    speedup: float


@dataclass(frozen=True, eq=False)
class LoadTable(TextRepr):
    """Rates of all setups at all loads; `print` shows the best setup at each load.

    Attributes
    ----------
    rates : tuple of LoadedRate
        For each load, the setups from the fastest to the slowest, with decoding without drafts.

    Examples
    --------
    >>> LoadTable((LoadedRate(1, None, 4.0, 4.0, 1.0),)).best_setup(1) is None
    True
    """

    rates: tuple[LoadedRate, ...]

    @property
    def loads(self) -> tuple[int, ...]:
        """The numbers of requests, ascending."""
        return tuple(sorted({rate.requests for rate in self.rates}))

    def best(self, requests: int) -> LoadedRate:
        """Return the fastest way to decode at a load of the table.

        Parameters
        ----------
        requests : int
            Number of requests in flight.

        Returns
        -------
        LoadedRate
            The fastest setup, or decoding without drafts.

        Raises
        ------
        InvalidInputError
            If the table does not have this load.
        """
        found = [rate for rate in self.rates if rate.requests == requests]
        if not found:
            raise InvalidInputError(
                f"no rates for {shown(requests)} requests; the table has {shown(self.loads)}"
            )
        return found[0]

    def best_setup(self, requests: int) -> Setup | None:
        """Return the setup to use at any load up to the largest one of the table.

        Parameters
        ----------
        requests : int
            Number of requests in flight.

        Returns
        -------
        Setup or None
            The fastest setup at the smallest load of the table that is not below `requests`; None
            if drafts do not pay at this load, so that the draft model should be switched off.

        Raises
        ------
        InvalidInputError
            If there are more requests than in the table.
        InvalidParameterError
            If `requests` is not an integer of at least 1.
        """
        count = as_positive(requests, "requests")
        larger = [load for load in self.loads if load >= count]
        if not larger:
            raise InvalidInputError(
                f"{count} requests; the table has rates up to {self.loads[-1]} requests: measure "
                "more rows"
            )
        return self.best(larger[0]).setup

    def __str__(self) -> str:
        rows = []
        for load in self.loads:
            best = self.best(load)
            plain = next(x for x in self.rates if x.requests == load and x.setup is None)
            words = ["no drafts", "", ""] if best.setup is None else list(map(str, best.setup))
            rates = best.server_rate, best.request_rate, plain.server_rate, best.speedup
            rows.append([str(load), *words, *(f"{rate:.4g}" for rate in rates)])
        heading = ["requests", "rule", "K", "γ", "server", "request", "without drafts", "speed-up"]
        return text_table(heading, rows)


def rates_under_load(
    block_efficiencies: Mapping[Any, float], latency: Latency, requests: Iterable[int]
) -> LoadTable:
    """Compute tokens per unit of time for each number of requests that are decoded together.

    A step of B requests yields B times the block efficiency, and takes the time of a step with B
    times as many rows.  All requests take their steps together, as in continuous batching.

    Parameters
    ----------
    block_efficiencies : mapping from (rule, K, γ) to float
        Mean tokens per step of each setup, as from `block_efficiency`.  K may be a tuple with the
        number of children at each level of a tree; the target then reads the tree in one row.
    latency : Latency
        Measured times for up to B K rows, as from `measure_latency` with the same `requests`.
    requests : iterable of int
        Numbers B of requests in flight.

    Returns
    -------
    LoadTable
        The rates, and the best setup at each load.

    Raises
    ------
    InvalidInputError
        If `latency` is not a Latency or has no time for a setup at a load, or `requests` is empty.
    InvalidParameterError
        If a number is outside its range, or a setup is not (rule, K, γ).

    Examples
    --------
    With eight rows, a call with five tokens per row takes four times as long as a call with one
    token per row.  So drafts do not pay for eight requests:

    >>> latency = Latency((1, 8), (1, 5), (0.1, 0.1), ((1, 1), (1.25, 4)))
    >>> table = rates_under_load({("block", 1, 4): 2.5, ("block", 1, 2): 2.0}, latency, [1, 4, 8])
    >>> print(table)
    requests  rule       K  γ  server  request  without drafts  speed-up
    --------  ---------  -  -  ------  -------  --------------  --------
    1         block      1  4  1.515   1.515    1               1.515
    4         block      1  2  4.179   1.045    4               1.045
    8         no drafts        8       1        8               1
    >>> table.best_setup(3), table.best_setup(8)
    (Setup(rule='block', k=1, gamma=2), None)
    """
    setups = _as_setups(block_efficiencies)
    as_latency(latency)
    if not isinstance(requests, Iterable):
        raise InvalidParameterError(f"requests = {shown(requests)}; give numbers, such as [1, 8]")
    rates: list[LoadedRate] = []
    for load in sorted({as_positive(count, "requests") for count in requests}):
        loaded = latency.under_load(load)
        for setup in setups:
            _check_rows(setup, load, latency)
        plain = 1 / (loaded.autoregressive_time + loaded.autoregressive_overhead)
        found = [LoadedRate(load, None, load * plain, plain, 1.0)]
        for setup, tokens in setups.items():
            rate = float(tokens) / _step_time(loaded, setup)
            found.append(LoadedRate(load, setup, load * rate, rate, rate / plain))
        # a stable sort prefers decoding without drafts among equals
        rates += sorted(found, key=lambda x: -x.speedup)
    if not rates:
        raise InvalidInputError("no numbers of requests; give at least one, such as [1, 8]")
    return LoadTable(tuple(rates))


def _as_setups(block_efficiencies: Any) -> dict[Setup, float]:
    """Return the block efficiency of each setup; raise on other keys or values."""
    given = block_efficiencies if isinstance(block_efficiencies, Mapping) else {None: 1}
    setups: dict[Setup, float] = {}
    for key, tokens in given.items():
        if not (isinstance(key, tuple) and len(key) == len(Setup._fields)):
            raise InvalidParameterError(
                f"block_efficiencies = {shown(block_efficiencies)}; give a mapping from "
                '(rule, K, γ) to tokens per step, such as {("block", 1, 4): 2.5}'
            )
        setup = Setup(*key)
        as_gamma(setup.gamma)
        setups[setup] = as_real(tokens, f"the block efficiency of {setup.rule}", above=0)
    return setups


def _check_rows(setup: Setup, load: int, latency: Latency) -> None:
    """Raise unless the table has times for the rows of all requests together."""
    # The draft model reads all levels of a tree but the last.
    counts = setup.k[: max(setup.gamma - 1, 0)] if isinstance(setup.k, tuple) else [setup.k]
    rows = max([1, *accumulate((as_positive(count, "k") for count in counts), mul)])
    if load * rows > latency.rows[-1]:
        raise InvalidInputError(
            f"{load} requests with k = {shown(setup.k)} need {load * rows} rows, but the table "
            f"has times up to {latency.rows[-1]} rows: pass `requests` and `ks` to "
            "`measure_latency`, or leave out this setup or load"
        )


def _step_time(latency: Latency, setup: Setup) -> float:
    """Return the time of a step with K chains of γ drafts, or with a tree of γ levels."""
    if not isinstance(setup.k, tuple):
        return latency.step_time(setup.gamma, as_positive(setup.k, "k"))
    if len(setup.k) < setup.gamma:
        raise InvalidParameterError(
            f"k = {shown(setup.k)} and γ = {setup.gamma}; give a branching number for each level"
        )
    return latency.tree_time(list(accumulate(setup.k[: setup.gamma], mul)))
