"""Acceptance of the rules on the shipped pairs, computed from recorded distributions."""

from typing import Any

from figures.shipped_pairs import prompts_of_text
from otm.decoding import ModelDrafter, spectr
from otm.gain import block_efficiency, contexts_from, first_step_acceptance, record
from otm.models import load

__all__ = ["efficiency"]

GAMMA = 5
CHAINS = 8
KS = (1, 2, 4, CHAINS)
RULES = ("optimal", "k-Seq", "recursive rejection")


def efficiency(prompts: int, tokens: int) -> dict[str, Any]:
    """Compare the rules on contexts of a loop, with intervals over prompts."""
    target = load("target")
    results = {}
    for name in ("large", "medium", "small"):
        draft = load(name)
        given = prompts_of_text(prompts, 64)
        options: dict[str, Any] = {"k": 4, "gamma": GAMMA, "rule": "k-Seq", "max_tokens": tokens}
        loop = spectr(target, draft, given, **options, seed=0)
        contexts = contexts_from(loop)
        recordings = record(target, ModelDrafter(draft, CHAINS), contexts, GAMMA, seed=1)
        first = first_step_acceptance(recordings, RULES, KS)
        made = block_efficiency(recordings, (*RULES, "traversal"), KS, (GAMMA,))
        print(f"draft model: {name}\n{first}\n{made}")
        differences = {}
        for rule in ("optimal", "recursive rejection", "traversal"):
            found = made.difference((rule, CHAINS, GAMMA), ("k-Seq", CHAINS, GAMMA))
            differences[rule] = found._asdict()
            print(f"{rule} minus k-Seq, K = {CHAINS}, paired: {found}", flush=True)
        results[name] = {
            "contexts": len(recordings),
            "first_step": [{**setup._asdict(), **first[setup]._asdict()} for setup in first],
            "tokens": [{**setup._asdict(), **made[setup]._asdict()} for setup in made],
            "less_k_seq": differences,
        }
    return results
