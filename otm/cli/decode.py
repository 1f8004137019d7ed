"""``otm decode``: decode one prompt with many methods, and print a table and traces."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from otm._core.display.progress import watching
from otm._core.display.text import text_table
from otm._core.numbers import as_positive, check_name
from otm._core.optional import is_installed
from otm.cli.demo import TEXT, Loaded, demonstrate, load_models
from otm.cli.output import JsonOption, print_headline, print_json, wants_colour
from otm.cli.sampling import GenerationConfig, MinP, Temperature, TopK, TopP, sampling_of
from otm.decoding import (
    Generation,
    autoregressive,
    render_trace,
    spectr,
    speculative,
    trace_legend,
    tree_rules,
)
from otm.decoding.checks import check_task
from otm.decoding.policies import as_gamma
from otm.decoding.rendering import Decode
from otm.errors import InvalidInputError
from otm.models import LanguageModel, NGramModel, load
from otm.models import decode as bytes_as_text
from otm.models.downloads.catalogue import is_downloadable
from otm.models.gpt.model import SHIPPED
from otm.models.gpt.train import default_text
from otm.rules import names

NGRAMS = tuple(f"ngram-{order}" for order in range(1, 8))
"""N-gram models of the shipped text, by order; they work without torch."""

CHAINS = [1, 4, 8]
RULES = ["k-Seq", "optimal", "traversal"]
DTYPES = ("float32", "bfloat16", "float16")

COLUMNS = (
    "method",
    "tokens",
    "calls",
    "tokens/call",
    "accepted",
    "draft s",
    "target s",
    "other s",
    "tokens/s",
    "speed-up",
)

STEPS_SHOWN = 6
"""Number of traced SpecTr steps; each takes one line per draft."""


def decode(
    *,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Text to continue, or message to an instruct model.  [default: And it came to "
            "pass; for an instruct model a message]"
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Largest number of new tokens.")] = 96,
    gamma: Annotated[int, typer.Option(help="Number of drafts in a path.")] = 4,
    k: Annotated[
        list[int] | None,
        typer.Option(
            "-k", "--k", help="Number of chains for SpecTr; may be repeated.  [default: 1, 4, 8]"
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Rule for SpecTr, one of {', '.join(tree_rules())}; may be repeated.  [default: "
            f"{', '.join(RULES)}]"
        ),
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    generation_config: GenerationConfig = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Target model: a shipped name, a name that `otm models` lists, or the folder or "
            "name/on-the-hub of a Hugging Face model.  [default: target; without torch ngram-5]"
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            help="Draft model of the same kind.  [default: small; without torch ngram-3; for a "
            "Hugging Face model prompt lookup]"
        ),
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--no-chat",
            help="Whether the prompt goes through the chat template of a Hugging Face model. "
            "Default: if its tokenizer has one.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help=f"Type of a Hugging Face model's weights, one of {', '.join(DTYPES)}.  [default: "
            "the stored type]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    colour: Annotated[
        bool | None,
        typer.Option(
            "--colour/--no-colour",
            help="Use colours. Default: on a terminal, unless NO_COLOR is set.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Decode a prompt with and without drafts.

    The command compares speeds, and shows the accepted drafts. Shipped models are the GPTs target,
    large, medium and small, which need torch, and ngram-1 to ngram-7. All shipped models have bytes
    as tokens, and were fitted to seven books of the King James Bible. Two Hugging Face models must
    have the same tokenizer. The text of a Hugging Face model appears while it is decoded, first
    without and then with drafts; with -k or --rule, the command compares rules as for shipped
    models.
    """
    if dtype is not None:
        check_name("dtype", dtype, DTYPES)
    sampling = sampling_of(temperature, top_k, top_p, min_p, generation_config)
    compares_rules = rule is not None or k is not None
    given = [name for name in (target, draft) if name is not None]
    if target is not None and not compares_rules and _are_outside(*given):
        as_gamma(gamma)
        as_positive(max_tokens, "max_tokens")
        return _show(
            target,
            draft,
            load_models(target, draft, prompt, chat=chat, dtype=dtype),
            json=json,
            gamma=gamma,
            max_tokens=max_tokens,
            sampling=sampling,
            seed=seed,
            colour=wants_colour(sys.stdout) if colour is None else colour,
        )
    rule, k = RULES if rule is None else rule, CHAINS if k is None else k
    with_torch = is_installed("torch") and is_installed("safetensors")
    if not with_torch and None in (target, draft):
        print("torch is not installed: n-gram models replace the GPTs", file=sys.stderr)
    target = ("target" if with_torch else "ngram-5") if target is None else target
    draft = ("small" if with_torch else "ngram-3") if draft is None else draft
    for name in (target, draft):
        if name in (*SHIPPED, *NGRAMS) and Path(name).is_dir():
            print(f"{name} is the model shipped with OTM, not the folder ./{name}", file=sys.stderr)
    models, tokens, text_of = _load_both(target, draft, prompt, chat=chat, dtype=dtype)
    prompts, _ = check_task(*models, [tokens], max_tokens, LanguageModel)
    methods = _methods(models, prompts, rule, k, gamma=gamma, sampling=sampling, seed=seed)
    generations: dict[str, Generation] = {}
    with watching(None, "decoding") as watch:
        for number, (name, method) in enumerate(methods.items(), 1):
            watch.tell(f"{name}; method", number, len(methods))
            generations[name] = method(max_tokens=max_tokens)
    if json:
        documents = [
            _document(name, generation, text_of) for name, generation in generations.items()
        ]
        print_json({"target": target, "draft": draft, "seed": seed, "ways": documents})
        return
    colour = wants_colour(sys.stdout) if colour is None else colour
    print_headline(_answer(generations))
    print("Each method ran once with one seed; other seeds give other numbers.")
    if target in NGRAMS:
        print("Drafts usually save no time here: an n-gram target looks up each draft separately.")
    elif target in SHIPPED:
        print(
            "With models this small drafts often save only calls: a draft token takes about half "
            "the time of a target call (docs/how-to-choose.md)."
        )
    print(f"target: {target}, draft: {draft}, γ = {gamma}, {sampling}, seed {seed}")
    print(f"\n{statistics(generations)}\n")
    print(trace_legend(colour=colour))
    show = partial(_print_trace, generations, text_of, colour=colour)
    show("speculative, chain", None)
    if several := [count for count in k if count > 1]:
        show(_spectr(rule[0], several[0]), STEPS_SHOWN)


def _answer(generations: Mapping[str, Generation]) -> str:
    """Write a line with the fastest method and the method with the fewest target calls."""
    plain, *drafting = generations
    speeds = {name: _speed(generation) for name, generation in generations.items()}
    fewest = max(drafting, key=lambda name: generations[name].block_efficiency)
    fastest = max(generations, key=lambda name: speeds[name])

    def result(name: str) -> str:
        tokens = f"{generations[name].block_efficiency:.2f} tokens per target call"
        return f"{name} ({tokens}, {speeds[name] / speeds[plain]:.2f} times plain speed)"

    if generations[fewest].block_efficiency <= generations[plain].block_efficiency:
        return "No method saved target calls; differences in speed are noise."
    if fastest == plain:
        return f"Plain decoding was the fastest. Fewest target calls: {result(fewest)}."
    if fastest == fewest:
        return f"Fastest, and fewest target calls: {result(fastest)}."
    return f"Fastest: {result(fastest)}. Fewest target calls: {result(fewest)}."


def _speed(generation: Generation) -> float:
    """Return the tokens per second; NaN if there are no steps."""
    return generation.tokens / generation.seconds.total if generation.steps else math.nan


def _methods(
    models: tuple[LanguageModel, LanguageModel],
    prompts: Any,
    rules: Sequence[str],
    counts: Sequence[int],
    **options: Any,
) -> dict[str, Callable[..., Generation]]:
    """Try all decoding methods on two tokens; return them by name, as functions of `max_tokens`."""
    plain = {name: value for name, value in options.items() if name != "gamma"}
    methods: dict[str, Callable[..., Generation]] = {
        "autoregressive": partial(autoregressive, models[0], prompts, **plain)
    }
    for rule in names("verifier", several=False):
        methods[f"speculative, {rule}"] = partial(
            speculative, *models, prompts, rule=rule, **options
        )
    for rule, k in itertools.product(rules, counts):
        methods[_spectr(rule, k)] = partial(spectr, *models, prompts, rule=rule, k=k, **options)
    for method in methods.values():
        # a short trial raises errors before the work, and warms up the models
        method(max_tokens=2)
    return methods


def _spectr(rule: str, k: int) -> str:
    return f"SpecTr, {rule}, K = {k}"


def _show(
    target: str, draft: str | None, loaded: Loaded, *, json: bool, colour: bool, **options: Any
) -> None:
    """Decode with a Hugging Face model while its text appears, then print the numbers."""
    if not json:
        how = "in its chat template" if loaded.chat else "without a chat template"
        drafts = draft or "prompt lookup"
        print(f"target: {target}, draft: {drafts}, γ = {options['gamma']}, {options['sampling']}")
        print(f"prompt {how}, seed {options['seed']}")
        if colour:
            print("accepted drafts are green")
    generations = demonstrate(loaded, show=not json, colour=colour, **options)
    if json:
        ways = [_document(name, each, loaded.text_of) for name, each in generations.items()]
        print_json({"target": target, "draft": draft, "seed": options["seed"], "ways": ways})
        return
    print(f"\n{statistics(generations)}\n")
    print_headline(_answer(generations))


def _is_outside(name: str) -> bool:
    """Return whether this names a Hugging Face model; a shipped name wins over a folder."""
    ours = name in (*SHIPPED, *NGRAMS, "")
    return not ours and (is_downloadable(name) or "/" in name or Path(name).is_dir())


def _are_outside(*names: str) -> bool:
    """Return whether these are Hugging Face models; raise if only some of them are."""
    outside = [name for name in names if _is_outside(name)]
    for name in names:
        if outside and name not in outside:
            raise InvalidInputError(
                f"{outside[0]!r} is a Hugging Face model and {name!r} is not; give two models with "
                "the same tokenizer by --target and --draft"
            )
    return bool(outside)


def _load_both(
    target: str, draft: str, prompt: str | None, *, chat: bool | None, dtype: str | None
) -> tuple[tuple[LanguageModel, LanguageModel], list[int], Decode]:
    """Return both models, the tokens of the prompt, and a function from tokens to text."""
    if not _are_outside(target, draft):
        if chat is not None or dtype is not None:
            raise InvalidInputError(
                "--chat and --dtype have no effect on shipped models; omit them"
            )
        # keep the typed bytes, even if they are not UTF-8
        text = TEXT if prompt is None else prompt
        return (_load(target), _load(draft)), list(os.fsencode(text)), bytes_as_text
    loaded = load_models(target, draft, prompt, chat=chat, dtype=dtype)
    assert loaded.draft is not None
    return (loaded.target, loaded.draft), loaded.prompt, loaded.tokenizer.decode


def _load(name: str) -> LanguageModel:
    """Load a shipped model, or fit an n-gram model to the shipped text."""
    if name in NGRAMS:
        tokens = np.frombuffer(default_text(), np.uint8)
        return NGramModel.witten_bell(tokens, order=1 + NGRAMS.index(name), vocabulary=256)
    folders = "or give the folders of two Hugging Face models by --target and --draft"
    model = load(check_name("model", name, SHIPPED + NGRAMS, advice=folders))
    import torch

    # for models this small, threads lose more time waiting than they save
    torch.set_num_threads(1)
    return model


def _print_trace(
    generations: Mapping[str, Generation],
    text_of: Decode,
    name: str,
    first: int | None,
    *,
    colour: bool,
) -> None:
    """Print the trace of a method's steps, or of the first few steps."""
    generation, width = generations[name], shutil.get_terminal_size((100, 24)).columns
    print(f"\n{name}" + (f", the first {first} steps" if first else "") + "\n")
    steps = generation.steps[:first]
    for line in render_trace(steps, generation.prompts, text_of, width=width, colour=colour):
        print(line)


def statistics(generations: Mapping[str, Generation]) -> str:
    """Write a table that compares decoding methods; speed-ups are relative to the first method.

    "tokens/call" is the block efficiency, and "accepted" is the share of accepted drafts among the
    verified drafts. A dash marks a mean without data.
    """
    if not generations:
        raise InvalidInputError("there are no generations to compare; give at least one")
    rows: list[list[str]] = []
    first = math.nan
    for name, generation in generations.items():
        speed = _speed(generation)
        first = first if rows else speed
        ratios = generation.block_efficiency, generation.acceptance_rate
        numbers = *ratios, *dataclasses.astuple(generation.seconds), speed, speed / first
        texts = ("–" if math.isnan(number) else f"{number:.2f}" for number in numbers)
        rows.append([name, f"{generation.tokens}", f"{_calls(generation)}", *texts])
    return text_table(COLUMNS, rows)


def _document(name: str, generation: Generation, text_of: Decode) -> dict[str, Any]:
    """Return the JSON object of a decoding method."""
    rate = generation.acceptance_rate
    return {
        "way": name,
        "tokens": generation.tokens,
        "target_calls": _calls(generation),
        "block_efficiency": generation.block_efficiency,
        "acceptance_rate": None if math.isnan(rate) else rate,
        "seconds": dataclasses.asdict(generation.seconds),
        "text": text_of(generation.sequences[0]),
    }


def _calls(generation: Generation) -> int:
    """Return the number of target model calls."""
    return len({step.call for step in generation.steps})
