"""
Rollouts for reinforcement learning
===================================

Sample texts with drafts, get their log-probabilities from the same pass, and check the sampler
before a policy gradient trusts it.

Needs OTM with the extra ``testing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from otm import Problem
from otm.audit import recorded
from otm.coupling.lossy import LenientPlan
from otm.decoding import Generation, sampled_log_probs, spectr, speculative
from otm.models import LanguageModel, encode, load

policy, draft = load("target"), load("small")
starts = ["And it came to pass", "In the beginning", "The Lord said unto", "Now these are"]
prompts = [encode(start) for start in starts * 4]
options: Any = {"gamma": 4, "max_tokens": 50, "log_probs": True}

# %%
# With ``log_probs=True`` each token comes with its log-probability under the policy.  The loop has
# read these numbers to verify the drafts, so they cost no second pass.  A second pass gives the
# same numbers:


def rows(model: LanguageModel, tokens: Any, count: int) -> Any:
    """Return the distributions of the last `count` tokens and of the token after them."""
    session: Any = model.start(1)
    scores = np.asarray(session.append(np.array([tokens])), dtype=float)[0, -count - 1 :]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


rollouts = speculative(policy, draft, prompts, seed=1, **options)
print(f"{rollouts.tokens} tokens, {rollouts.block_efficiency:.2f} for each call of the policy")

text = rollouts.sequences[0]
again = rows(policy, [*prompts[0], *text], len(text))[np.arange(len(text)), text]
assert rollouts.log_probs is not None
difference = np.abs(np.log(again) - rollouts.log_probs[0]).max()
print(f"log-probability of text 0: {sum(rollouts.log_probs[0]):.1f} (same: {difference < 1e-4})")

# %%
# The gradient is right only if the texts are samples of the policy.  The audit of recorded steps
# is a gate: it compares every token with the policy's distribution at its position.  A rule that
# accepts twice as many doubtful drafts gives the same kind of log-probabilities, but its texts are
# not samples.


def steps(generation: Generation) -> Iterator[dict[str, Any]]:
    """Yield the records of a generation, with the distributions of a second pass."""
    for b, prompt in enumerate(generation.prompts):
        before = list(prompt)
        for step in generation.steps_of(b):
            drafts = list(step.drafts[0]) if step.drafts else []
            record = {"target_probs": rows(policy, before + drafts, len(drafts))}
            if drafts:
                record["draft_probs"] = rows(draft, before + drafts, len(drafts))[:-1]
            yield {**record, "drafts": drafts, "output": list(step.output)}
            before += step.output


# %%
# The gate opens only if no deviation was found, and one of 0.2 of a class of tokens would have been
# found; more texts find smaller ones.  For texts of a server the same gate is ``otm audit server
# URL --model FOLDER``, with exit status 0 up to a total variation of ``--tv``.


def rule(problem: Problem) -> LenientPlan:
    """Accept with twice the probability of a lossless rule, where this is possible."""
    return LenientPlan(problem, 0.5)


lenient = spectr(policy, draft, prompts, k=1, seed=1, rule=rule, **options)
for name, generation in {"lossless": rollouts, "lenient": lenient}.items():
    report = recorded(steps(generation), delta=0.2)
    print(f"{name}: {report.verdict}, deviations from {report.delta:.2f} on would be found")
    print("use these rollouts" if report.lossless else "do not use these rollouts")

# %%
# Rollouts of the lossy rule are still of use: ``sampled_log_probs`` gives the log-probabilities
# with which this rule sampled them, so each text has an importance weight.

assert lenient.log_probs is not None
for b in range(4):
    own = sampled_log_probs(
        policy, draft, prompts[b], lenient.sequences[b], rule, gamma=4, max_tokens=50
    )
    of_policy = sum(lenient.log_probs[b])
    weight = np.exp(of_policy - sum(own))
    print(f"text {b}: log-probability {of_policy:.1f}, sampled with {sum(own):.1f}: {weight:.2g}")
