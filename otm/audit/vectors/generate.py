"""Write the file of test vectors; the same seed always gives the same file.

python -m otm.audit.vectors.generate [FILE]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from otm.audit.vectors import choices, path, problems
from otm.audit.vectors.expected import EXPECTED, smallest_factor

SEED = 1000

COUNTS = {
    "chain": 600,
    "block": 900,
    "k-Seq": 700,
    "recursive rejection": 400,
    "walk and keep": 400,
}
"""Number of problems of each rule."""

MAKERS: dict[str, Callable[[choices.Chooser, int], problems.Problem | None]] = {
    "chain": problems.chain,
    "block": problems.block,
    "k-Seq": partial(problems.k_seq, factor_of=smallest_factor),
    "recursive rejection": problems.recursive_rejection,
    "walk and keep": problems.walk_and_keep,
}

HEAD: dict[str, Any] = {
    "format": "otm-test-vectors",
    "version": 1,
    "licence": "MIT",
    "scales": {
        "probabilities": choices.PROBABILITIES,
        "uniforms": choices.UNIFORMS,
        "factor": choices.FACTOR,
    },
    "tolerance": 1e-5,
    "conventions": [
        "Divide the integers of target, draft and winner by scales.probabilities, uniforms by "
        "scales.uniforms, and factor by scales.factor.",
        "expected.next holds integers in proportion to the distribution of the next token: divide "
        "them by their sum.",
        "A uniform u is in [0, 1).  A test of probability a passes if u < a.  At u = a it fails: a "
        "draft x is accepted if u * draft[x] < target[x], and rejected at equality, also at u = 0.",
        'A problem with "tie" has a uniform exactly on a threshold.  All other uniforms are more '
        "than 0.001 away from every threshold.",
    ],
    "rules": {
        "chain": "target[i] and draft[i] are the rows at draft i; target has one more row.  Draft "
        "i has uniform i.  Accept drafts up to the first rejection.  accepted: their number.  "
        "next: proportional to max(target - draft, 0) at the rejected draft, or the last target "
        "row.",
        "block": "Rows as for chain.  w_0 = 1, w_i = min(1, w_(i-1) target/draft) at draft i; Z_i "
        "= sum over tokens of max(w_i target - draft, 0) in the rows after i drafts; h_i = Z_i / "
        "(Z_i + 1 - w_i), any number at 0/0, but h_n = w_n if n is the number of drafts.  The "
        "prefix of i drafts has the uniform with index i - 1.  accepted: the largest i with u < "
        "h_i, or 0.  next: proportional to max(w_i target - draft, 0), or the last target row.",
        "k-Seq": "One target row, one draft row, k drafts.  Accept the first draft x with u * "
        "factor * draft[x] < target[x].  index: number of this draft, from 0, or -1.  next: after "
        "k rejections, proportional to target - c * min(factor * draft, target), with b = sum of "
        "min(draft, target / factor) and c = (1 - (1 - b)^k) / (factor * b), or c = 0 if b = 0.",
        "recursive rejection": "One target row, one draft row, k drafts drawn with replacement.  "
        "Draft x is accepted with probability min(1, r[x] / draft[x]), with r = target at first; "
        "after a rejection r becomes proportional to max(r - draft, 0).  accept: the probability "
        "of each draft, given that the drafts before it were rejected, as [numerator, "
        "denominator]; the list ends at a probability of 1.  next: r after k rejections.",
        "walk and keep": "drafts is the path of a walk.  winner[i][z] is the probability that the "
        "walk goes from its node i to token z; an engine may choose its winner in its own way.  "
        "S = W = 1 at the root; at the next node W' = W winner[i][z], S' = min(S target[i][z], "
        "W').  Going up from the end, a node is kept with probability (S - s) / (W - s), with s = "
        "sum of S' over z; s = 0 at the end.  keep: this probability at each node, null where it "
        "is 0/0.  next: at each node that can be kept, proportional to S target[i] - S'.",
    },
}
"""Everything in the file except the problems."""


def vectors(rule: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield problems of a rule with their answers; the first ones do not depend on `count`."""
    chooser = choices.Chooser(SEED + [*COUNTS].index(rule))
    seen: set[str] = set()
    while len(seen) < count:
        problem = MAKERS[rule](chooser, len(seen))
        expected = problem and EXPECTED[rule](problem)
        key = json.dumps(problem)
        if problem and expected and key not in seen:
            seen.add(key)
            yield {"rule": rule, **problem, "expected": expected}


def document() -> str:
    """Return the whole file: its head, and one problem on each line."""
    every = (vector for rule, count in COUNTS.items() for vector in vectors(rule, count))
    lines = [
        json.dumps({"id": i, **vector}, separators=(",", ":")) for i, vector in enumerate(every)
    ]
    head = json.dumps(HEAD, indent=1).removesuffix("\n}")
    return head + ',\n "problems": [\n' + ",\n".join(lines) + "\n ]\n}\n"


if __name__ == "__main__":
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else path()
    file.write_text(document(), encoding="utf-8")
