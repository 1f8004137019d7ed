"""Audit servers of SmolLM2-135M, a real model with a vocabulary of 49,152 tokens."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.engines.audits import Subject, audit_all, audit_transformers
from benchmarks.engines.engine import Size
from otm.decoding import SamplingParameters

MODEL = "SmolLM2-135M"

SIZE = Size(length=256, listed=20, threads=2)

PROMPTS = (
    "one two three four one two three four one two",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of",
    "To be, or not to be, that is the question: to be, or",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a",
)
"""Prompts with repetitions, in which n-grams find drafts."""

SAMPLING = (SamplingParameters(), SamplingParameters(temperature=0.7))
"""No top-k: with it, vLLM 0.32.0 on a CPU stops with an error at a step without drafts."""


def audit_real(folder: Path, requests: int) -> list[dict[str, Any]]:
    """Audit vLLM's servers, and the server of transformers with two settings of the model.

    The model's own settings do not name a sampling method, so the server of transformers uses its
    own parameters.  The neutral settings make it sample from the model.
    """
    subject = Subject(folder, None, PROMPTS, SAMPLING, SIZE)
    records = audit_all(subject, requests)
    name = "transformers, the model's settings"
    records.append(audit_transformers(subject, requests, name, lossless=False))
    with tempfile.TemporaryDirectory() as place:
        mended = subject._replace(target=with_plain_sampling(folder, Path(place) / folder.name))
        name = "transformers, neutral settings"
        # Answers are slow, and a distance of 0.1 needs a quarter of the tokens.
        return [*records, audit_transformers(mended, requests, name, tv=0.1)]


def with_plain_sampling(folder: Path, place: Path) -> Path:
    """Copy a model, with settings that make the server of transformers sample from it."""
    shutil.copytree(folder, place)
    path = place / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"do_sample": True, "top_k": 0, "top_p": 1.0}
    path.write_text(json.dumps(settings), encoding="utf-8")
    return place
