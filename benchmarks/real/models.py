"""The two real models, the frozen prompts as tokens, and the drafts by name."""

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real.early_layers import answers, early_layers
from otm.decoding import (
    Drafter,
    ModelDrafter,
    PromptLookup,
    SamplingParameters,
    read_generation_config,
)
from otm.models import (
    HiddenStateModel,
    HuggingFaceModel,
    IntersectionModel,
    LanguageModel,
    NGramModel,
    Spelling,
    download,
    load,
)

__all__ = ["DRAFTS", "KINDS", "MAIN", "NAMES", "Real", "code", "fast_type", "load_real"]

NAMES = {"SmolLM2": "SmolLM2-135M", "Gemma": "gemma-3-270m"}
KINDS = ("chat", "summary", "code", "story")
CACHE = Path(__file__).resolve().parents[2] / "build" / "real"

DRAFTS = {
    "SmolLM2": ("trained layer", "early layers", "prompt lookup", "n-grams"),
    "Gemma": ("SmolLM2", "prompt lookup", "n-grams"),
}
"""The drafts of each target."""

MAIN = {name: drafts[0] for name, drafts in DRAFTS.items()}
"""The draft of each target that all rules verify."""

ORDER = 3
"""Length of the n-grams."""


@dataclass(eq=False)
class Real:
    """A model with its tokenizer, the prompts, and its drafts.

    A model with a chat template reads each prompt as the message of a user; another one reads it as
    plain text.
    """

    name: str
    target: HuggingFaceModel
    # Ways to sample, by name.
    samplings: dict[str, SamplingParameters]

    def __post_init__(self) -> None:
        self.model, self.tokenizer = self.target.model, self.target.tokenizer

    @property
    def end(self) -> int:
        """Token that ends a text."""
        end: int = self.model.generation_config.eos_token_id
        return end

    def encode(self, prompt: str) -> tuple[int, ...]:
        """Return the tokens that the model continues."""
        if self.tokenizer.chat_template is None:
            return tuple(self.tokenizer(prompt).input_ids)
        message = [{"role": "user", "content": prompt}]
        made = self.tokenizer.apply_chat_template(
            message, add_generation_prompt=True, return_dict=True
        )
        return tuple(made["input_ids"])

    def prompts(self, count: int) -> dict[str, list[tuple[int, ...]]]:
        """Return the tokens of the first prompts of each kind."""
        text = (Path(__file__).parent / "prompts.toml").read_text(encoding="utf-8")
        frozen = tomllib.loads(text)
        return {kind: [self.encode(prompt) for prompt in frozen[kind][:count]] for kind in KINDS}

    def drafter(self, draft: str, k: int, sampling: SamplingParameters) -> Drafter:
        """Return a drafter of K chains; prompt lookup always drafts one chain."""
        if draft == "prompt lookup":
            return PromptLookup()
        return ModelDrafter(self.draft_model(draft), k, sampling)

    def target_of(self, draft: str) -> HuggingFaceModel:
        """Return the target of a draft: only the trained layer needs one that remembers states."""
        return self._remembering if draft == "trained layer" else self.target

    def draft_model(self, draft: str) -> LanguageModel:
        """Return the language model of a draft."""
        if draft == "n-grams":
            return self._ngrams
        if draft == "trained layer":
            return HiddenStateModel(self.target_of(draft), NAMES[self.name])
        if draft == "early layers":
            return HuggingFaceModel(self.early_layers)
        small = self._small
        spellings = Spelling.of(small.tokenizer), Spelling.of(self.tokenizer)
        return IntersectionModel(small.target, *spellings, self.target.vocabulary)

    @cached_property
    def early_layers(self) -> Any:
        """First layers of the model with a fitted head: a whole causal model."""
        return early_layers(self.model, self.own_text)

    @cached_property
    def own_text(self) -> Sequence[Sequence[int]]:
        """Answers of the model to other prompts, from a cache."""
        file = CACHE / f"{self.name}-text.npz"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            np.savez(file, *map(np.array, answers(self.model, self.encode, self.end)))
        with np.load(file) as stored:
            return [stored[key].tolist() for key in stored.files]

    @cached_property
    def _remembering(self) -> HuggingFaceModel:
        return HuggingFaceModel(self.model, tokenizer=self.tokenizer)

    @cached_property
    def _ngrams(self) -> NGramModel:
        tokens = [token for row in self.own_text for token in row]
        return NGramModel.witten_bell(tokens, ORDER, self.target.vocabulary)

    @cached_property
    def _small(self) -> "Real":
        return load_real("SmolLM2", self.model.dtype)


def code() -> str:
    """Return a digest of this folder, which makes older records invalid."""
    whole = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.[pt]*")):
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def fast_type() -> Any:
    """Return bfloat16 if the processor has instructions for it, else float32, which is faster."""
    import torch

    has = torch.cpu.get_capabilities()
    native = any(has.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))
    return torch.bfloat16 if native else torch.float32


def load_real(name: str, dtype: Any) -> Real:
    """Load one of the two models in a type of numbers."""
    samplings = {
        "T 1": SamplingParameters(),
        "T 0.7": SamplingParameters(temperature=0.7),
        "own settings": read_generation_config(download(NAMES[name])),
    }
    return Real(name, load(NAMES[name], dtype=dtype), samplings)
