"""Greedy texts against `generate` of transformers, token by token."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.real.models import DRAFTS, MAIN, Real
from otm.decoding import Generation, SamplingParameters, spectr, speculative, tree_rules

__all__ = ["identities"]

GAMMA, CHAINS = 4, 2
GREEDY = SamplingParameters(temperature=0)
SHORT_PROMPTS, SHORT_TOKENS = 2, 20
"""Size of the comparison for all other pairs of a rule and a draft."""

Way = Callable[[Sequence[tuple[int, ...]], int], Generation]


def identities(real: Real, prompts: int, tokens: int) -> dict[str, Any]:
    """Compare every rule with one draft and every draft with one rule, and other pairs in short."""
    given = [
        each for of_kind in zip(*real.prompts(prompts).values(), strict=True) for each in of_kind
    ]
    plain = [continuation(real, prompt, tokens) for prompt in given]
    rows = []
    for rule, draft, decode in ways_of(real):
        whole = rule == "chain" or draft == MAIN[real.name]
        count, length = (
            (len(given), tokens) if whole else (SHORT_PROMPTS, min(SHORT_TOKENS, tokens))
        )
        made = decode(given[:count], length)
        different = [
            first_difference(mine, text[:length])
            for mine, text in zip(made.sequences, plain, strict=False)
        ]
        row = {
            "rule": rule,
            "draft": draft,
            "texts": count,
            "tokens": made.tokens,
            "different": [
                {"prompt": i, "position": place}
                for i, place in enumerate(different)
                if place is not None
            ],
            "tokens a step": made.block_efficiency,
        }
        rows.append(row)
        print(f"  {rule}, {draft}: {len(row['different'])} of {count} texts differ", flush=True)
    return {"model": real.name, "dtype": str(real.model.dtype), "rows": rows}


def ways_of(real: Real) -> Iterator[tuple[str, str, Way]]:
    """Yield each rule with each draft that suits it."""
    for draft in DRAFTS[real.name]:
        for rule in ("chain", "block"):
            yield rule, draft, partial(_one_chain, real, draft, rule)
        if draft == "prompt lookup":
            continue
        for rule in tree_rules():
            yield rule, draft, partial(_chains, real, draft, rule)


def _one_chain(
    real: Real, draft: str, rule: str, prompts: Sequence[tuple[int, ...]], tokens: int
) -> Generation:
    drafter = real.drafter(draft, 1, GREEDY)
    return speculative(real.target_of(draft), drafter, prompts, rule=rule, **_options(real, tokens))


def _chains(
    real: Real, draft: str, rule: str, prompts: Sequence[tuple[int, ...]], tokens: int
) -> Generation:
    model = real.draft_model(draft)
    return spectr(
        real.target_of(draft), model, prompts, k=CHAINS, rule=rule, **_options(real, tokens)
    )


def _options(real: Real, tokens: int) -> dict[str, Any]:
    ends: dict[str, Any] = {"max_tokens": tokens, "eos_token_id": real.end, "seed": 0}
    return {"gamma": GAMMA, "sampling": GREEDY, **ends}


def continuation(real: Real, prompt: Sequence[int], tokens: int) -> tuple[int, ...]:
    """Return the greedy continuation by `generate`."""
    import torch

    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    made = real.model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens)
    return tuple(made[0, ids.shape[1] :].tolist())


def first_difference(mine: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first place where two texts differ, or None."""
    if tuple(mine) == tuple(other):
        return None
    agreed = (a == b for a, b in zip(mine, other, strict=False))
    return next((i for i, same in enumerate(agreed) if not same), min(len(mine), len(other)))
