"""Steps as an engine would record them: of the audit's verifiers, right ones and known bugs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from otm.audit.adapter import Adapter, Instance, Source
from otm.audit.known_bugs.steps import Chain
from otm.models import TableModel
from otm.testing.symbolic import MAX_UNIFORMS

RNG = np.random.default_rng(20)

MODELS = {
    gamma: Instance(TableModel.random(5, 2, RNG), TableModel.random(5, 2, RNG), gamma)
    for gamma in (1, 2, 3)
}


def steps_of(
    adapter: Adapter, instance: Instance, count: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Decode a text in steps; those of a chain have drafts, others rows along the output alone."""
    rng = np.random.default_rng(seed)
    target, draft = instance.target, instance.draft
    drafts: list[tuple[int, ...]] = []
    if isinstance(adapter, Chain):
        verify = adapter.verify

        def record(rows: Any, uniforms: Any) -> Any:
            drafts.append(tuple(rows.tokens))
            return verify(rows, uniforms)

        adapter = dataclasses.replace(adapter)
        object.__setattr__(adapter, "verify", record)
    prompt = instance.prompt
    for _ in range(count):
        here = dataclasses.replace(instance, prompt=prompt)
        output = adapter.output(here, Source(rng.random(MAX_UNIFORMS)))
        path = drafts.pop() if drafts else output[:-1]
        rows = [target.probs(prompt + path[:i]).astype(float) for i in range(len(path) + 1)]
        step = {"target_probs": rows, "output": output}
        if isinstance(adapter, Chain):
            of_draft = [draft.probs(prompt + path[:i]).astype(float) for i in range(len(path))]
            step |= {"drafts": path, "draft_probs": of_draft}
        yield step
        prompt = (prompt + output)[-4:]
