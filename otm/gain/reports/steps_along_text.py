"""Number of steps along a text that the target sampled, without sampling drafts.

The output Y of a lossless rule has the target's distribution q, for any drafts. Given Y = y, the
rule accepts a draft with probability w(y) = v(y)/q(y), where v is its accepted mass. For a rule
with cap c, w(y) = min(1, c p(y)/q(y)). Therefore, given the text and the numbers of drafts, the
decisions along the text are independent. Each position has its own acceptance probability w. A
recursion along the text gives the distribution of the positions at which steps begin:

- **Prefix tree**: each node has K children, so K drafts are verified at every position. A tree with
  K = 1 is a chain. The mean number of steps is exact.
- **K chains**: K drafts are verified at the first position of a step. Later positions verify the
  chains that agree with the output, at least one and at most K. For all three rules with a cap c,
  both c and w grow with the number of drafts at each position. So one chain gives a lower bound on
  the tokens per step, and the prefix tree gives an upper bound.

These results hold if the tokens were sampled from the target at the temperature of the report. If
the tokens are unknown, the acceptance probability α replaces w. To replace w by α is to assume that
acceptance, given the context, is independent of the later tokens, which is only approximately true.
The end of a prompt's text ends its last step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otm._core.means import Floats, Prompts


def mean_steps_of_prompts(accepted: Floats, gammas: Sequence[int], prompts: Prompts) -> Floats:
    """Return the mean number of steps in each prompt: [N, ..., K] → [P, ..., K, gammas, 2].

    `accepted` has the probability w at each position, with k = 1 first and the positions of a
    prompt in the order of its text. The last axis has two entries: the fewest steps, with prefix
    trees, and the most steps, with K chains if only one of them continues.
    """
    depth = max(gammas)
    shape = (*accepted.shape[1:], len(gammas), 2)
    steps = np.zeros((prompts.sizes.size, *shape))
    # after γ accepted drafts, the step's last token follows without verification
    verified = np.arange(depth) < np.asarray(gammas)[:, None, None]
    for p, places in enumerate(prompts.places):
        # probability of each number of accepted drafts so far
        count_probs = np.zeros((*shape, depth + 1))
        count_probs[..., 0] = 1
        for w in accepted[places]:
            steps[p] += count_probs[..., 0]
            later = np.empty((*w.shape, 1, 2, depth))
            later[...] = w[..., None, None, None]
            later[..., 1, 1:] = w[..., :1, None, None]
            moved = count_probs[..., :-1] * later * verified
            count_probs = np.concatenate([1 - moved.sum(-1, keepdims=True), moved], axis=-1)
    return steps
