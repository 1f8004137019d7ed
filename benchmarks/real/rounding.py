"""Compare greedy texts in bfloat16 with `generate`; check if rounding explains differences.

A processor without instructions for bfloat16 needs minutes for each rule.  So the finished rules
stay in a file, and an interrupted run of the same code and size continues after them.
"""

import json
from collections import Counter
from typing import Any

from benchmarks.real.identities import continuation, ways_of
from benchmarks.real.models import CACHE, MAIN, Real, code
from otm.audit import compare_greedy

__all__ = ["rounding"]


def rounding(real: Real, prompts: int, tokens: int) -> dict[str, Any]:
    """Compare the main draft's texts under each rule with plain texts, and explain differences."""
    given = [each for of_kind in real.prompts(prompts).values() for each in of_kind]
    plain = [continuation(real, prompt, tokens) for prompt in given]
    file = CACHE / f"{real.name}-rounding-{prompts}-{tokens}-{code()}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    for rule, draft, decode in ways_of(real):
        if draft != MAIN[real.name] or rule in {row["rule"] for row in rows}:
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
        file.write_text(json.dumps(rows), encoding="utf-8")
    file.unlink(missing_ok=True)
    return {"model": real.name, "dtype": str(real.model.dtype), "rows": rows}
