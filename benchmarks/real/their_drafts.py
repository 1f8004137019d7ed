"""Audit the assisted decoding of transformers for two tokenizers, on two real models.

    python -m benchmarks.real.their_drafts [--quick] [--save]

Gemma drafts for SmolLM2 at temperature 1, by shared tokens.  The first audit is of transformers as
installed.  Version 5.23.0 reads the draft's logits in the order in which the tokenizer lists
its tokens, and writes them in the order of their ids; the second audit sorts both by id.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from benchmarks.command import command, keep, options_of
from benchmarks.layout import RESULTS
from benchmarks.machine import machine
from benchmarks.real.two_tokenizers import NAMES, frozen_prompts, methods_of, text_of
from otm.audit import record_generate, recorded
from otm.models import load

__all__ = ["audits"]

STEPS = 120
"""Number of recorded steps; each needs 2 MB."""


def audits(steps: int, tokens: int) -> list[dict[str, Any]]:
    """Audit transformers as installed, and with the draft's logits in order."""
    draft, target = (load(name) for name in NAMES)
    rows = []
    for name, change in (("as installed", nullcontext()), ("in the order of ids", in_order())):
        with change, record_generate(steps) as found:
            method = methods_of(target, draft, 1.0)["transformers"]
            for number, prompt in enumerate(frozen_prompts()):
                if len(found) < steps:
                    method(text_of(target, prompt), tokens, number)
        report = recorded(found, rounding=1e-3, name=f"transformers, {name}")
        print(report, flush=True)
        rows.append({"order": name, "report": report.to_dict()})
    return rows


@contextmanager
def in_order() -> Iterator[None]:
    """Sort the map from target tokens to draft tokens by draft tokens, as the logits are sorted."""
    from transformers.generation import candidate_generator as theirs

    translator, name = theirs.AssistantToTargetTranslator, "_get_assistant_to_target_input_ids"
    original = getattr(translator, name)

    def ordered(self: Any) -> Any:
        to_target, to_draft = original(self)
        return to_target, dict(sorted(to_draft.items(), key=lambda pair: pair[1]))

    # transformers caches the map of each pair of tokenizers, so start with an empty cache.
    cache = mock.patch.object(theirs.AssistantVocabTranslatorCache, "_cache", WeakKeyDictionary())
    with cache, mock.patch.object(translator, name, ordered):
        yield


def main() -> None:
    """Audit, print the reports, and save the record on request."""
    options = options_of(command(__doc__ or ""))
    begun = time.perf_counter()
    rows = audits(4, 8) if options.quick else audits(STEPS, 48)
    if options.save:
        about = machine("numpy", "torch", "transformers", "tokenizers")
        seconds = time.perf_counter() - begun
        keep({**about, "seconds": seconds, "rows": rows}, RESULTS / "real-their-drafts.json")


if __name__ == "__main__":
    main()
