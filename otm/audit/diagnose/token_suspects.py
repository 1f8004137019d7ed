"""Known mistakes that rows alone can show: how each would distribute the tokens of a step.

Token by token, given that the tokens before were output.  The tests hold each against its verifier,
run along all its paths.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from otm._core.arithmetic import Probs, as_fractions
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, KnownBug
from otm.audit.diagnose.known_bugs.in_rows import AllRows, from_aim
from otm.audit.diagnose.known_bugs.steps import Chain, Rows, bonus, likeliest, normalised, sharpened
from otm.audit.streams.e_process import Floats


def _flattened(probs: Probs) -> Probs:
    """Double the temperature, of fractions up to the rounding of the roots."""
    roots = np.sqrt(probs.astype(np.float64))
    return normalised(as_fractions(roots) if probs.dtype == object else roots)


IN_ROWS_ALONE = (
    Chain("every draft accepted", accepts=lambda *_: True).as_bug(
        mistake="lossy acceptance",
        summary="Every draft is accepted, whatever the target's probability.",
        in_rows=lambda _, rows: rows.draft[0],
    ),
    Chain("target at twice the temperature", aim=_flattened).as_bug(
        mistake="one-sided temperature",
        summary="The output is flatter than the rows: as they are at twice the temperature.",
        in_rows=from_aim,
    ),
    Chain("likeliest token of the target", aim=likeliest).as_bug(
        mistake="greedy output",
        summary="The output is the likeliest token of the target.",
        in_rows=from_aim,
    ),
)
"""Mistakes that are looked for in rows and are none of the known bugs."""

SUSPECTS: dict[str, KnownBug] = {
    bug.name: bug for bug in (*KNOWN_BUGS, *IN_ROWS_ALONE) if bug.in_rows is not None
}
"""All mistakes that are looked for, by name."""

OF_DRAFTS: dict[str, Callable[[Floats], Floats]] = {
    "greedy drafts": likeliest,
    "drafts at half the temperature": sharpened,
    "drafts at twice the temperature": _flattened,
}
"""How drafts are drawn, where they are not drawn from their rows."""


def suspected(target: Floats, draft: Floats | None, drafts: int) -> Floats:
    """Return the distributions of tokens along drafts under each suspect: [m, S, U].

    Target rows [m, U] and draft rows [g, U], which may be more or unknown.  A suspect that does
    nothing wrong at a place has the target's row there.
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
