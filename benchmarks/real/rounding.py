"""Compare greedy texts in bfloat16 with `generate`; check if rounding explains differences."""

from collections import Counter
from typing import Any

from benchmarks.real.identities import continuation, ways_of
from benchmarks.real.models import MAIN, Real
from otm.audit import compare_greedy

__all__ = ["rounding"]


def rounding(real: Real, prompts: int, tokens: int) -> dict[str, Any]:
    """Compare the main draft's texts under each rule with plain texts, and explain differences."""
    given = [each for of_kind in real.prompts(prompts).values() for each in of_kind]
    plain = [continuation(real, prompt, tokens) for prompt in given]
    rows = []
    for rule, draft, decode in ways_of(real):
        if draft != MAIN[real.name]:
            continue
        texts = decode(given, tokens).sequences
        found = [
            compare_greedy(real.target, *each) for each in zip(given, plain, texts, strict=True)
        ]
        row = {
            "rule": rule,
            "draft": draft,
            "texts": len(found),
            "verdicts": dict(Counter(each.verdict for each in found)),
            "differences": [
                {"prompt": i, "position": x.position, "margin": x.margin, "rounding": x.rounding}
                for i, x in enumerate(found)
                if x.position is not None
            ],
        }
        rows.append(row)
        print(f"  {rule}: {row['verdicts']}", flush=True)
    return {"model": real.name, "dtype": str(real.model.dtype), "rows": rows}
