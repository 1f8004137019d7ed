"""Time of a step inside and outside of the models, by rule and number of chains."""

from typing import Any

from benchmarks.loops.overhead import overhead_of_trees, time_of_step
from benchmarks.real.models import MAIN, Real
from otm.decoding import SamplingParameters, spectr, speculative

__all__ = ["outside"]

GAMMA = 4
SETUPS = (
    ("chain", 1),
    ("block", 1),
    *((rule, k) for k in (2, 4) for rule in ("k-Seq", "optimal", "traversal", "walk and keep")),
)


def outside(real: Real, tokens: int) -> dict[str, Any]:
    """Measure the milliseconds of a step in the draft, in the target, and elsewhere."""
    (prompt,) = real.prompts(1)["chat"]
    draft, sampling, rows = MAIN[real.name], SamplingParameters(), []
    for rule, k in SETUPS:
        decode = speculative if k == 1 else spectr
        drafter = real.drafter(draft, k, sampling)
        options: dict[str, Any] = {"gamma": GAMMA, "rule": rule, "max_tokens": tokens}
        # The first run does not count.
        for seed in (1, 0):
            made = decode(real.target_of(draft), drafter, [prompt], seed=seed, **options)
        rows.append(time_of_step(rule, k, made))
    target, model = real.target_of(draft), real.draft_model(draft)
    rows += overhead_of_trees(target, model, prompt, tokens, sampling)
    return {"model": real.name, "dtype": str(real.model.dtype), "draft": draft, "rows": rows}
