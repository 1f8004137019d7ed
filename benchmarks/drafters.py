"""Measure tokens per step by drafter: models, heads, copies, and models of another vocabulary.

    python -m benchmarks.drafters [--quick] [--save]

The target is the shipped one.  The contexts are those where the steps of a loop begin.  Each
drafter drafts one chain of at most five tokens, verified by the best rule for it.  Heads draft all
tokens at once.  The heads from counts are n-gram models of the text at several distances.  The
other heads are computed from texts that a model draws at the context: the mean of its
distributions, and the best independent distributions (`otm.gain.factorised_draft`).  The n-gram
models of words have 256 words and the 256 bytes.  The mean over the verifier's coins is computed;
intervals are over prompts.

With --save the results go to benchmarks/results/drafters.json.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, keep, options_of
from benchmarks.machine import machine
from figures.shipped_pairs import prompts_of_text
from otm import SparseProbs
from otm._core.means import PairedMeans, Setup
from otm.decoding import (
    Drafter,
    ModelDrafter,
    NonAutoregressiveDrafter,
    PromptLookup,
    SamplingParameters,
    StringDrafter,
    skip_gram_heads,
    spectr,
)
from otm.gain import block_efficiency, contexts_from, factorised_draft, record
from otm.models import GPT, IntersectionModel, NGramModel, Spelling, load
from otm.models.gpt.train import default_text, split

RESULTS = Path(__file__).parent / "results" / "drafters.json"
GAMMA, ORDER, WORDS = 5, 4, 256
BEST = "small model"
BYTES = Spelling([chr(i) for i in range(256)])
GREEDY = SamplingParameters(temperature=0)

Heads = Callable[[Sequence[tuple[int, ...]], int], list[list[SparseProbs]]]


def heads_of(model: GPT, sampling: SamplingParameters, texts: int) -> tuple[Heads, Heads]:
    """Return two kinds of heads, computed from a model's texts at the context: means, and best."""

    @cache
    def laws(context: tuple[int, ...]) -> tuple[list[SparseProbs], list[SparseProbs]]:
        rng = np.random.default_rng(zlib.crc32(bytes(context)))
        session = model.start(1)
        session.read(np.array([context[:-1]]))
        session.keep(np.zeros(texts, np.int64), np.full(texts, len(context) - 1))
        rows, drawn, last = [], [], np.full(texts, context[-1])
        for _ in range(GAMMA):
            rows.append(sampling(session.append(last[:, None])[:, 0].numpy().astype(np.float64)))
            ends = rows[-1].cumsum(1)
            last = (ends <= rng.random((texts, 1)) * ends[:, -1:]).sum(1)
            drawn.append(last)
        of_texts = np.stack(rows, 1)
        best = factorised_draft(of_texts, np.stack(drawn, 1))
        of_means, of_best = (
            [SparseProbs.from_dense(law / law.sum()) for law in found]
            for found in (of_texts.mean(0), best)
        )
        return of_means, of_best

    def heads(best: bool) -> Heads:
        return lambda contexts, gamma: [laws(context)[best][:gamma] for context in contexts]

    return heads(best=False), heads(best=True)


def words_of(text: str) -> Spelling:
    """Make a vocabulary of all bytes and the most common words, each with the space before it."""
    counts = Counter(re.findall(r" [A-Za-z]{2,}", text))
    return Spelling([*BYTES.texts, *(word for word, _ in counts.most_common(WORDS))])


def drafters(
    target: GPT, sampling: SamplingParameters, texts: int
) -> dict[str, tuple[Drafter, str]]:
    """Return each drafter with the rule that verifies it."""
    text = bytes(split(default_text())[0].tolist()).decode("latin-1")
    words = words_of(text)
    ids = words.encode(text)
    of_words = NGramModel.witten_bell(ids, ORDER, len(words.texts))
    of_bytes = NGramModel.witten_bell(BYTES.encode(text), ORDER, 256)
    counted = skip_gram_heads(BYTES.encode(text), ORDER, 256, GAMMA)
    half = SamplingParameters(temperature=0.5)
    ways: dict[str, tuple[Drafter, str]] = {
        BEST: (ModelDrafter(load("small"), 1, sampling), "traversal"),
        f"{ORDER}-grams of bytes": (ModelDrafter(of_bytes, 1, sampling), "traversal"),
        "copies of the context": (PromptLookup(), "traversal"),
    }
    of_small, best_of_small = heads_of(load("small"), sampling, texts)
    of_target, best_of_target = heads_of(target, sampling, texts)
    for name, heads in (
        ("heads from counts", counted),
        ("heads of the small model, means", of_small),
        ("heads of the small model, best", best_of_small),
        ("heads of the target itself, means", of_target),
        ("heads of the target itself, best", best_of_target),
    ):
        kinds = {"drawn": None, "sharpened": half, "the most probable": GREEDY}
        for kind, how in kinds.items():
            if how is None or not name.endswith("best"):
                drafter = NonAutoregressiveDrafter(heads, 256, sampling=how)
                ways[f"{name}, {kind}"] = drafter, "traversal"
    shared = IntersectionModel(of_words, words, BYTES)
    ways |= {
        f"{ORDER}-grams of words, shared tokens": (ModelDrafter(shared, 1, sampling), "traversal"),
        f"{ORDER}-grams of words, strings": (
            StringDrafter(of_words, words, BYTES, sampling), "target-only"
        ),
        f"{ORDER}-grams of words, most probable strings": (
            StringDrafter(of_words, words, BYTES, GREEDY), "target-only"
        ),
        f"{ORDER}-grams of bytes, most probable": (
            ModelDrafter(of_bytes, 1, draft_kind="Top"), "target-only"
        ),
    }  # fmt: skip
    return ways


def measured(temperature: float, prompts: int, tokens: int, texts: int) -> list[dict[str, Any]]:
    """Measure tokens per step of each drafter, and the paired difference to the small model."""
    target, sampling = load("target"), SamplingParameters(temperature=temperature)
    options: dict[str, Any] = {"k": 1, "gamma": GAMMA, "rule": "k-Seq", "max_tokens": tokens}
    loop = spectr(
        target, load("small"), prompts_of_text(prompts), sampling=sampling, seed=0, **options
    )
    contexts = contexts_from(loop)
    values = {}
    for name, (drafter, rule) in drafters(target, sampling, texts).items():
        recordings = record(target, drafter, contexts, GAMMA, sampling=sampling, seed=0)
        found = block_efficiency(recordings, [rule])
        (values[Setup(name, 1, GAMMA)],) = found.values.values()
    means = PairedMeans("tokens of a step", values, found.prompts)
    rows = []
    for setup in means:
        less = means.difference(setup, Setup(BEST, 1, GAMMA))
        rows.append({"way": setup.rule, **means[setup]._asdict(), "less": less._asdict()})
        print(f"T {temperature}, {setup.rule}: {means[setup]}; minus {BEST}: {less}", flush=True)
    return rows


def main() -> None:
    """Run the benchmark from the command line."""
    arguments = options_of(command(__doc__))
    prompts, tokens, texts = (2, 3, 4) if arguments.quick else (40, 64, 64)
    results = {
        f"T {temperature}": measured(temperature, prompts, tokens, texts)
        for temperature in ((1,) if arguments.quick else (1, 0.5))
    }
    if arguments.save:
        record_of = {"prompts": prompts, "gamma": GAMMA, "texts": texts, "tokens": results}
        keep({**machine("numpy", "torch"), **record_of}, RESULTS)


if __name__ == "__main__":
    main()
