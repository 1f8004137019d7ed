"""Known mistakes that recorded rows can show, and the distributions of their tokens.

Each distribution is that of one token, given the preceding output tokens.  Tests compare each
suspect with its verifier along all paths.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from otm._core.arithmetic import Probs, as_fractions
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, KnownBug
from otm.audit.diagnose.known_bugs.in_rows import AllRows, from_aim
from otm.audit.diagnose.known_bugs.steps import (
    Chain,
    Rows,
    bonus,
    greedy_probs,
    normalised,
    sharpened,
)
from otm.audit.streams.e_process import Floats


def _flattened(probs: Probs) -> Probs:
    """Double the temperature; the square roots are rounded, even those of fractions."""
    roots = np.sqrt(probs.astype(np.float64))
    return normalised(as_fractions(roots) if probs.dtype == object else roots)


ROW_MISTAKES = (
    Chain("every draft accepted", accepts=lambda *_: True).as_bug(
        mistake="lossy acceptance",
        summary="Every draft is accepted, for any target probability.",
        in_rows=lambda _, rows: rows.draft[0],
    ),
    Chain("target at twice the temperature", aim=_flattened).as_bug(
        mistake="one-sided temperature",
        summary="The output has the target rows at twice the temperature.",
        in_rows=from_aim,
    ),
    Chain("most probable token of the target", aim=greedy_probs).as_bug(
        mistake="greedy output",
        summary="The output is the most probable token of the target.",
        in_rows=from_aim,
    ),
)
"""Mistakes that recorded tokens and rows can show, but that are not in `KNOWN_BUGS`."""

SUSPECTS: dict[str, KnownBug] = {
    bug.name: bug for bug in (*KNOWN_BUGS, *ROW_MISTAKES) if bug.in_rows is not None
}
"""All mistakes that the audit compares with recorded tokens, by name."""

DRAFT_MISTAKES: dict[str, Callable[[Floats], Floats]] = {
    "greedy drafts": greedy_probs,
    "drafts at half the temperature": sharpened,
    "drafts at twice the temperature": _flattened,
}
"""Wrong distributions of drafts, by name."""


def suspect_rows(target: Floats, draft: Floats | None, drafts: int) -> Floats:
    """Return the distributions of tokens along drafts under each suspect: [m, S, U].

    The arguments are target rows [m, U] and draft rows: an array [g, U] with any g, or None.
    If a suspect has no effect at a position, it has the target's row there.
    """
    length = len(target)
    known = 0 if draft is None else min(len(draft), length)
    rows = None if draft is None or not known else AllRows.of(target[:known], draft[:known])
    of_all = np.empty((length, len(SUSPECTS), target.shape[1]))
    for place, bug in enumerate(SUSPECTS.values()):
        chain = bug.verifier
        if not isinstance(chain, Chain) or bug.in_rows is None:
            continue
        aim = chain.aim(target)
        of_all[known:, place] = aim[known:]
        if rows is not None:
            of_all[:known, place] = bug.in_rows(chain, rows)
        if 0 < drafts < length and chain.bonus is not bonus:
            of_all[drafts, place] = chain.bonus(Rows((0,) * drafts, [], [*aim]))
    return of_all
