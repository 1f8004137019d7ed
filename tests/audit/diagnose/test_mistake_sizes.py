"""Sizes and places are read off what a verifier outputs, and not off what it is."""

from __future__ import annotations

from fractions import Fraction

import pytest

from otm.audit import lossless
from otm.audit.diagnose.diagnosis import diagnose, same_distribution
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, KnownBug
from otm.audit.diagnose.known_bugs.size_and_place import (
    passes_at,
    residual_cut_to,
    target_floor_at,
    temperature_lost_at,
    tile_sums_of,
)
from otm.audit.diagnose.known_bugs.steps import Chain
from otm.audit.diagnose.mistake_sizes import first_wrong, parametrized_suspects, tile_sizes
from otm.audit.instances import INSTANCES
from otm.audit.larger_instances import ladder, larger_instances
from otm.audit.observe.exact import observe_by_paths
from otm.audit.observe.observation import Observation
from otm.audit.runs import Runner

SMALL = [INSTANCES[name] for name in ("zeros", "four tokens", "two drafts", "three drafts")]
LARGER = [larger_instances()[name] for name in ("40 tokens", "48 tokens", "300 tokens")]
DEEP = ladder(8)


def seen_of(bug: KnownBug) -> list[Observation]:
    chosen = [*SMALL, *LARGER, DEEP]
    return [
        observe_by_paths(Runner(bug.verifier), each)
        for each in chosen
        if bug.verifier.supports(each)
    ]


@pytest.mark.parametrize(
    "bug",
    [
        passes_at(8),
        temperature_lost_at(9),
        residual_cut_to(11),
        residual_cut_to(45),
        tile_sums_of(24),
        tile_sums_of(136),
        target_floor_at(Fraction(1, 37)),
        target_floor_at(Fraction(3, 1000)),
    ],
    ids=lambda bug: bug.name,
)
def test_what_is_measured_is_what_was_made(bug: KnownBug) -> None:
    """Bug: sizes beside those of a list are found, and have no name."""
    assert bug not in KNOWN_BUGS
    observations = seen_of(bug)
    assert bug in parametrized_suspects(observations)
    assert diagnose(observations, [same_distribution(0)])[0].name == bug.name


def test_other_mistakes_have_no_size() -> None:
    """Bug: a mistake of any kind is given a size, since something is always read off."""
    (bug,) = (bug for bug in KNOWN_BUGS if bug.name == "no residual")
    observations = seen_of(bug)
    assert parametrized_suspects(observations), "they do not fit, but are tried"
    assert [each.name for each in diagnose(observations, [same_distribution(0)])] == [bug.name]


def test_nothing_is_measured_where_nothing_is_wrong() -> None:
    observations = [observe_by_paths(Runner(Chain()), each) for each in (*SMALL, DEEP)]
    assert parametrized_suspects(observations) == ()
    assert [first_wrong(seen) for seen in observations] == [None] * len(observations)


@pytest.mark.parametrize("place", [1, 5, 8])
def test_the_first_wrong_token_is_where_the_mistake_is(place: int) -> None:
    assert first_wrong(observe_by_paths(Runner(passes_at(place).verifier), DEEP)) == place


def test_frequencies_are_not_taken_for_mistakes() -> None:
    """Bug: the first token of a sample is always a little off, and no place is named."""
    report = lossless(temperature_lost_at(7).verifier, method="Monte Carlo", instances=[DEEP])
    assert [diagnosis.name for diagnosis in report.diagnoses] == [temperature_lost_at(7).name]


def test_round_sizes_come_first() -> None:
    """Bug: 60 comes before 64 although no token distinguishes them."""
    assert tile_sizes([range(59, 66), range(50, 70)]) == [64, 60, 62, 59, 61, 63, 65]
    assert tile_sizes([range(5, 8), range(20, 30)]) == []
    assert tile_sizes([]) == []
