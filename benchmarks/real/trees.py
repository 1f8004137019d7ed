"""Tokens of a step with 32 drafts on a real model, for trees that engines draft and for others."""

from typing import Any

from benchmarks.real.efficiency import contexts_of
from benchmarks.real.models import MAIN, Real
from benchmarks.trees import BEST, DEPTH, DRAWN, NODES, PREFIX, WITHOUT, Way, compared, tokens_of
from otm._core.means import PairedMeans
from otm.decoding import (
    BestFirstDrafter,
    DrawnTreeDrafter,
    DynamicTreeDrafter,
    ModelDrafter,
    SamplingParameters,
)
from otm.models import LanguageModel

__all__ = ["trees"]

EVERY = 4
"""Number of steps of the loop for each context."""


def trees(real: Real, prompts: int, tokens: int) -> dict[str, Any]:
    """Compare trees of the main draft at temperature 1 and 0.5, on the same contexts."""
    by_kind, results = real.prompts(prompts), {}
    target, draft = real.target_of(MAIN[real.name]), real.draft_model(MAIN[real.name])
    for temperature in (1, 0.5):
        sampling = SamplingParameters(temperature=temperature)
        drafter = real.drafter(MAIN[real.name], 4, sampling)
        asked, _ = contexts_of(real, drafter, by_kind, sampling, tokens, every=EVERY)
        values, nodes, of_prompts = tokens_of(target, ways(draft, sampling), asked, sampling)
        means = PairedMeans("tokens of a step", values, of_prompts)
        setting = f"T {temperature}"
        rows = compared(means, nodes, setting)
        results[setting] = {"contexts": of_prompts.size, "rows": rows}
    return {"model": real.name, "draft": MAIN[real.name], "depth": DEPTH, "settings": results}


def ways(draft: LanguageModel, sampling: SamplingParameters) -> list[Way]:
    """Return each way to draft at most 32 tokens."""
    walk = "walk and keep"
    return [
        (BEST, BestFirstDrafter(draft, NODES, None, sampling), "target-only", DEPTH),
        (DRAWN, DrawnTreeDrafter(draft, NODES, sampling=sampling), walk, DEPTH),
        ("dynamic tree, without replacement", DynamicTreeDrafter(draft, NODES, None, sampling),
         WITHOUT, DEPTH),
        ("prefix tree, walk and keep", ModelDrafter(draft, PREFIX, sampling), walk, DEPTH),
        ("4 chains, walk and keep", ModelDrafter(draft, 4, sampling), walk, DEPTH),
    ]  # fmt: skip
