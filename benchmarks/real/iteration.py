"""One step with four chains on real text, for a figure like SpecTr's Figure 2."""

from typing import Any

from benchmarks.real.models import MAIN, Real
from otm.decoding import SamplingParameters, Step, spectr

__all__ = ["iteration"]

KIND, RULE, CHAINS, GAMMA = "story", "walk and keep", 4, 4
SHOWN = 12
"""Number of tokens of the context in the record."""


def iteration(real: Real, tokens: int) -> dict[str, Any]:
    """Decode a text, and record the first step that accepts at least two drafts and rejects one."""
    (prompt,) = real.prompts(1)[KIND]
    sampling = SamplingParameters()
    made = spectr(
        real.target_of(MAIN[real.name]),
        real.drafter(MAIN[real.name], CHAINS, sampling),
        [prompt],
        gamma=GAMMA,
        rule=RULE,
        sampling=sampling,
        max_tokens=tokens,
        eos_token_id=real.end,
        seed=0,
    )
    step = next(filter(tells_enough, made.steps), made.steps[0])
    whole = prompt + made.sequences[0]

    def texts(tokens: tuple[int, ...]) -> list[str]:
        return [real.tokenizer.decode([token]) for token in tokens]

    new = step.position - len(prompt)
    print(f"  {len(made.steps)} steps; the step after {new} new tokens", flush=True)
    return {
        "model": real.name,
        "draft": MAIN[real.name],
        "rule": RULE,
        "new tokens before": new,
        "context": texts(whole[max(len(prompt), step.position - SHOWN) : step.position]),
        "drafts": [texts(path) for path in step.drafts],
        "output": texts(step.output),
        "accepted": step.accepted,
        "tokens": {"drafts": step.drafts, "output": step.output},
    }


def tells_enough(step: Step) -> bool:
    """Whether a step accepts two drafts or more, and verifies and rejects another one."""
    distinct = len(set(step.drafts)) == len(step.drafts)
    return step.accepted >= 2 and step.rejected and distinct and step.finish_reason is None
