"""How many steps decoding with drafts takes along a text that the target drew.

A lossless rule outputs a token Y of the law q whatever the drafts, and accepts one of them with the
probability w(y) = v(y)/q(y), given that Y = y, where v is its accepted mass: min(1, c p(y)/q(y))
for a rule with the cap c.  Given the whole text the decisions along it are therefore independent,
each with its own w, as long as the number of drafts is known; so that the law of where steps begin
follows from the text by a recursion, without drawing anything:

- **a prefix tree**, in which each node has K children, and K = 1, a chain: at every place K drafts
  are judged.  The mean number of steps is exact.
- **K chains**: at the first place of a step K drafts are judged, further on those chains that agree
  with the output so far, at least one and at most K.  For all three rules the cap grows with the
  number of drafts, so that w does, place by place: with one chain there are at least as few
  tokens, with all K (the prefix tree) at least as many.  These are the two bounds.

Both hold if the tokens were sampled from the target's law at the temperature of the report.  If the
tokens are not known, the acceptance probability α takes the place of w: exact if acceptance and
what follows are independent given the context, which is an assumption, and not quite true.  The end
of a prompt's text ends its last step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otm.gain.estimates import Prompts

Floats = npt.NDArray[np.float64]

LANE_BYTES = 2**24
"""Bytes of the probabilities that are worked on at a time."""


def steps_of_prompts(accepted: Floats, gammas: Sequence[int], prompts: Prompts) -> Floats:
    """Mean number of steps along the text of each prompt: [N, rules, K] → [P, rules, K, gammas, 2].

    `accepted` is the probability w at each position, k = 1 first, positions of a prompt in the
    order of its text.  Last axis: prefix trees (fewest), K chains of which one goes on (most).
    """
    count, depth = prompts.sizes.size, max(gammas)
    _, rules, width = accepted.shape
    shape = (count, rules, width, len(gammas), 2)
    found = np.zeros(shape)
    # levels at which nothing is judged any more: the step's last token
    judged = np.arange(depth) < np.asarray(gammas)[:, None]
    places = np.argsort(prompts.index, kind="stable")
    ends = np.cumsum(prompts.sizes).astype(np.int64)
    together = max(1, LANE_BYTES // (rules * width * len(gammas) * 2 * (depth + 1) * 8))
    order = np.argsort(-prompts.sizes, kind="stable")  # alike in length, longest first
    for start in range(0, count, together):
        lanes = order[start : start + together]
        sizes = prompts.sizes[lanes].astype(np.int64)
        level = np.zeros((*shape[1:], depth + 1))  # how likely each number of accepted drafts is
        level[..., 0] = 1
        level = np.repeat(level[None], lanes.size, axis=0)
        for time in range(int(sizes[0])):
            running = int(np.count_nonzero(sizes > time))
            level = level[:running]
            found[lanes[:running]] += level[..., 0]
            rows = places[ends[lanes[:running]] - sizes[:running] + time]
            of_all = accepted[rows][:, :, :, None, None, None]
            later = np.broadcast_to(of_all, (running, rules, width, 1, 2, depth)).copy()
            later[:, :, :, 0, 1, 1:] = accepted[rows][:, :, :1, None]
            moved = level[..., :-1] * later * judged[:, None]
            level = np.concatenate([1 - moved.sum(-1, keepdims=True), moved], axis=-1)
    return found
