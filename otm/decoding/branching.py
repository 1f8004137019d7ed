"""Shapes of trees of drafts: how many drafts each node gets."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, TypeAlias

from otm._core.checks import as_draft_count
from otm.errors import InvalidParameterError, ProblemTooLargeError

Branching: TypeAlias = int | tuple[int, ...]
"""Either a number K of chains, or for each level the number of children of a node there."""

MAX_PATHS = 2**16
"""Most paths of a tree, far beyond what a target model can read at once."""


def as_branching(branching: Any) -> Branching:
    """Check a branching, and return its numbers as int; refuse more than `MAX_PATHS` paths."""
    numbers = branching if isinstance(branching, tuple) else (branching,)
    if not numbers:
        raise InvalidParameterError(
            "the branching () has no level; give the number of children at each level, such as "
            "(4, 2, 1), or the number of chains"
        )
    counts = tuple(as_draft_count(number) for number in numbers)
    paths = math.prod(counts)
    if paths > MAX_PATHS:
        raise ProblemTooLargeError(
            f"a tree of {Decimal(paths):.3g} paths of drafts; at most {MAX_PATHS:,} can be asked "
            "for, and few models gain from more than a hundred"
        )
    return counts if isinstance(branching, tuple) else counts[0]


def children_at(branching: Branching, level: int) -> int:
    """Return the number of children of a node at a level; 0 below the last one of a prefix tree."""
    if isinstance(branching, int):
        return 1 if level else branching
    return branching[level] if level < len(branching) else 0
