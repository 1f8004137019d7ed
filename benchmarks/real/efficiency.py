"""Tokens a step of each rule on a real model, computed from recorded distributions.

A loop decodes the prompts with four chains of the main draft.  At contexts where its steps
begin, the distributions of both models are recorded.  All rules and all numbers of chains use the
same records, so their differences are paired.  The loop's own number of tokens a step is compared
with the number that the records predict.  Intervals are over prompts.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.real.models import DRAFTS, KINDS, MAIN, Real
from otm._core.means import PairedMeans, Setup, clustered_mean
from otm.decoding import Drafter, SamplingParameters, spectr
from otm.gain import block_efficiency, stream_recordings
from otm.models import HuggingFaceModel

__all__ = ["efficiency"]

GAMMA, KS = 4, (1, 2, 4)
RULES = (
    "recursive rejection",
    "k-Seq",
    "optimal",
    "traversal",
    "greedy multi-path",
    "walk and keep",
    "branch and keep",
)
LOOP = "walk and keep"
"""Rule of the loop that determines the contexts."""

EVERY = 3
"""Number of steps of the loop for each context at T = 1; other settings have half the contexts."""

PAIRS = (
    *((rule, "optimal") for rule in (*RULES, "bound") if rule != "optimal"),
    ("walk and keep", "traversal"),
    ("branch and keep", "walk and keep"),
    ("greedy multi-path", "walk and keep"),
)
"""Rules whose difference is stated for each number of chains."""

Prompts = Sequence[tuple[int, ...]]
Contexts = list[list[tuple[int, ...]]]


def efficiency(real: Real, prompts: int, tokens: int) -> dict[str, Any]:
    """Compare the rules with the main draft at each setting, and all drafts at T = 1."""
    by_kind, results = real.prompts(prompts), {}
    first = next(iter(real.samplings))
    for name, sampling in real.samplings.items():
        drafter = real.drafter(MAIN[real.name], max(KS), sampling)
        every = EVERY if name == first else 2 * EVERY
        contexts, steps = contexts_of(real, drafter, by_kind, sampling, tokens, every=every)
        target = real.target_of(MAIN[real.name])
        means = compared(target, drafter, contexts, sampling, rules=RULES, ks=KS)
        rows, differences = table(means, prompts)
        results[name] = {
            "contexts": means.prompts.size,
            "rows": rows,
            "differences": differences,
            "loop": against_loop(means, steps),
        }
        print(f"{real.name}, {name}\n{means}", flush=True)
        if name == first:
            results[name]["drafts"] = drafts_compared(real, contexts, sampling, prompts)
    return {"model": real.name, "draft": MAIN[real.name], "gamma": GAMMA, "settings": results}


def contexts_of(
    real: Real,
    drafter: Drafter,
    by_kind: Mapping[str, Prompts],
    sampling: SamplingParameters,
    tokens: int,
    *,
    every: int,
) -> tuple[Contexts, list[int]]:
    """Decode all prompts; return contexts of each prompt, and the tokens of the steps there.

    Every n-th step is taken that begins among the first new tokens.  Steps that an end token cuts
    are left out, because the records do not know the end.
    """
    contexts: Contexts = []
    lengths: list[int] = []
    for prompts in by_kind.values():
        loop = spectr(
            real.target_of(MAIN[real.name]),
            drafter,
            prompts,
            rule=LOOP,
            gamma=GAMMA,
            sampling=sampling,
            max_tokens=tokens + GAMMA + 1,
            eos_token_id=real.end,
            seed=0,
        )
        for b, prompt in enumerate(prompts):
            steps = [
                step
                for step in loop.steps_of(b)
                if step.position - len(prompt) < tokens and step.finish_reason is None
            ][::every]
            whole = prompt + loop.sequences[b]
            contexts.append([whole[: step.position] for step in steps])
            lengths += [len(step.output) for step in steps]
    return contexts, lengths


def compared(
    target: HuggingFaceModel,
    drafter: Drafter,
    contexts: Contexts,
    sampling: SamplingParameters,
    *,
    rules: Sequence[str],
    ks: Sequence[int],
) -> PairedMeans:
    """Compute the tokens a step of each rule and the bound at the contexts."""
    recordings = stream_recordings(
        target, drafter, contexts, GAMMA, sampling=sampling, batch=1, seed=1
    )
    return block_efficiency(recordings, rules, ks, (GAMMA,), bound=True)


def table(means: PairedMeans, prompts: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the means of each rule for all prompts and for each kind, and paired differences."""
    rows, differences = [], []
    for kind in ("all", *KINDS):
        part = means if kind == "all" else of_prompts(means, KINDS.index(kind), prompts)
        for setup in part:
            if name := name_of(setup):
                row = {"kind": kind, "rule": name, "k": setup.k, **part[setup]._asdict()}
                rows.append(row)
        for k, (rule, other) in itertools.product(KS[1:], PAIRS):
            found = part.difference((rule, k, GAMMA), (other, k, GAMMA))
            row = {"kind": kind, "rule": rule, "less": other, "k": k, **found._asdict()}
            differences.append(row)
            if kind == "all":
                print(f"  {rule} less {other}, K = {k}: {found}", flush=True)
        found = part.difference(("traversal", 1, GAMMA), ("recursive rejection", 1, GAMMA))
        differences.append(
            {"kind": kind, "rule": "block", "less": "chain", "k": 1, **found._asdict()}
        )
    return rows, differences


def name_of(setup: Setup) -> str | None:
    """Return the name of a rule in the record; for one chain, rules coincide with two others."""
    if setup.k != 1 or setup.rule == "bound":
        return setup.rule
    return {"recursive rejection": "chain", "traversal": "block"}.get(setup.rule)


def of_prompts(means: PairedMeans, part: int, prompts: int) -> PairedMeans:
    """Return the measurements of one kind of prompts."""
    chosen = means.prompts // prompts == part
    values = {setup: row[chosen] for setup, row in means.values.items()}
    return PairedMeans(means.quantity, values, means.prompts[chosen])


def against_loop(means: PairedMeans, tokens: Sequence[int]) -> dict[str, Any]:
    """Compare the tokens of the loop's steps with the tokens that their contexts predict."""
    predicted = means.values[Setup(LOOP, max(KS), GAMMA)]
    measured = np.array(tokens, dtype=np.float64)
    found = {"measured": measured, "predicted": predicted, "difference": measured - predicted}
    estimates = {name: clustered_mean(row, means.prompts) for name, row in found.items()}
    print("  loop:", ", ".join(f"{name} {each}" for name, each in estimates.items()), flush=True)
    return {name: each._asdict() for name, each in estimates.items()}


def drafts_compared(
    real: Real, contexts: Contexts, sampling: SamplingParameters, prompts: int
) -> list[dict[str, Any]]:
    """Return the tokens a step with one chain of each draft, by chain and block verification."""
    rows = []
    for draft in DRAFTS[real.name]:
        drafter = real.drafter(draft, 1, sampling)
        rules = ("recursive rejection", "traversal")
        target = real.target_of(draft)
        means = compared(target, drafter, contexts, sampling, rules=rules, ks=(1,))
        for kind in ("all", *KINDS):
            part = means if kind == "all" else of_prompts(means, KINDS.index(kind), prompts)
            rows += [
                {"draft": draft, "kind": kind, "rule": name_of(setup), **part[setup]._asdict()}
                for setup in part
                if setup.rule != "bound"
            ]
        print(f"draft: {draft}\n{means}", flush=True)
    return rows
