"""Command line: ``python -m otm.decoding`` decodes one prompt in many ways and compares them."""

from __future__ import annotations

import argparse
import io
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np

from otm._core.numbers import as_positive, check_name
from otm._core.optional import is_installed, optional
from otm.decoding.checks import as_prompts, check_room
from otm.decoding.generate import autoregressive, spectr, speculative
from otm.decoding.rendering import render_trace, statistics, trace_legend, wants_colour
from otm.decoding.sampling_parameters import SamplingParameters
from otm.decoding.trace import Generation
from otm.decoding.verifiers import tree_rules
from otm.errors import OTMError
from otm.models.base import LanguageModel
from otm.models.gpt.model import SHIPPED, decode, load
from otm.models.ngram import NGramModel
from otm.rules import names

_T = TypeVar("_T")

NGRAMS = tuple(f"ngram-{order}" for order in range(1, 8))
"""Models of the shipped text that need no torch, by their order."""

SMALL = (
    "With models this small drafts save runs, not time: a draft takes about half as long as a run "
    "of the target (docs/how-to-choose.md)."
)
"""Why the table shows no gain, for the models of this package."""

STEPS_SHOWN = 6
"""Steps of SpecTr that are traced; one takes as many lines as it has drafts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Decode, print traces and a table, and return the exit status."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where it has no Greek letters
    try:
        compare_ways(options)
        sys.stdout.flush()
    except OTMError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has seen enough; nor will Python flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def command_line() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m otm.decoding",
        description="Decode a prompt with and without drafts; show what was accepted, and what it "
        "saves.",
        epilog=f"models: {', '.join(SHIPPED)} (GPTs, which need torch), {NGRAMS[0]} to "
        f"{NGRAMS[-1]}; all know bytes, from the same text, seven books of the King James Bible",
    )
    add = parser.add_argument
    add("--prompt", default="And it came to pass", help="text to go on from (%(default)r)")
    add("--max-tokens", type=int, default=96, metavar="N", help="most new tokens (%(default)s)")
    add("--gamma", type=int, default=4, metavar="N", help="drafts of a path (%(default)s)")
    add("--k", type=int, nargs="+", default=[1, 4, 8], metavar="K", help="SpecTr's paths (1 4 8)")
    add(
        "--rule",
        nargs="+",
        default=["k-Seq", "optimal", "traversal"],
        metavar="RULE",
        help=f"SpecTr's rules: {', '.join(tree_rules())} (k-Seq optimal traversal)",
    )
    add("--temperature", type=float, default=1.0, metavar="T", help="of the sampling (%(default)s)")
    add("--target", metavar="MODEL", help="the target model (target; ngram-5 without torch)")
    add("--draft", metavar="MODEL", help="the draft model (small; ngram-3 without torch)")
    add("--seed", type=int, default=0, metavar="N", help="of the randomness (%(default)s)")
    add(
        "--colour",
        action=argparse.BooleanOptionalAction,
        help="colours (on a terminal, unless NO_COLOR is set)",
    )
    return parser


def compare_ways(options: argparse.Namespace) -> None:
    """Decode in all ways, then print."""
    target, draft = model_names(options)
    methods = ways_to_decode(options, load_model(target), load_model(draft))
    print(f"target: {target}, draft: {draft}, γ = {options.gamma}, ", end="")
    print(f"temperature {options.temperature:g}, seed {options.seed}", flush=True)
    generations = {
        name: method(max_tokens=options.max_tokens) for name, method in _progress(methods.items())
    }

    colour = wants_colour(sys.stdout) if options.colour is None else options.colour
    width = shutil.get_terminal_size((100, 24)).columns
    print(trace_legend(colour=colour))
    chain = _chain("chain")
    shown = {chain: generations[chain].steps}
    many = [k for k in options.k if k > 1]
    if many:
        name = _spectr(options.rule[0], many[0])
        shown[f"{name}, the first {STEPS_SHOWN} steps"] = generations[name].steps[:STEPS_SHOWN]
    for title, steps in shown.items():
        print(f"\n{title}\n")
        for line in render_trace(
            steps, generations[chain].prompts, decode, width=width, colour=colour
        ):
            print(line)
    print(
        f"\n{statistics(generations)}\n\nOne run of each, at one seed: another gives other numbers."
    )
    if target in NGRAMS:
        print("An n-gram model looks up every draft by itself: fewer runs of it save no time.")
    elif target in SHIPPED:
        print(SMALL)


def ways_to_decode(
    options: argparse.Namespace, target: LanguageModel, draft: LanguageModel
) -> dict[str, Callable[..., Generation]]:
    """All ways to decode, by name, as functions of the number of tokens; each has been tried."""
    prompts = as_prompts([_prompt(options)], target.vocabulary)
    check_room(target, draft, prompts, as_positive(options.max_tokens, "max_tokens"))
    common: Any = {"sampling": SamplingParameters(options.temperature), "seed": options.seed}
    drafts: Any = {"gamma": options.gamma, **common}
    methods: dict[str, Callable[..., Generation]] = {
        "autoregressive": partial(autoregressive, target, prompts, **common)
    }
    for how in names("verifier", several=False):
        methods[_chain(how)] = partial(speculative, target, draft, prompts, rule=how, **drafts)
    for rule, k in itertools.product(options.rule, options.k):
        methods[_spectr(rule, k)] = partial(
            spectr, target, draft, prompts, rule=rule, k=k, **drafts
        )
    for method in methods.values():
        method(max_tokens=2)  # refuses what is wrong before the work, and warms up
    return methods


def _prompt(options: argparse.Namespace) -> list[int]:
    return list(os.fsencode(options.prompt))  # the bytes that were typed, UTF-8 or not


def _chain(how: str) -> str:
    return f"speculative, {how}"


def _spectr(rule: str, k: int) -> str:
    return f"SpecTr, {rule}, K = {k}"


def model_names(options: argparse.Namespace) -> tuple[str, str]:
    """Names of the two models; those that are not given depend on what is installed."""
    if is_installed("torch") and is_installed("safetensors"):
        target, draft = "target", "small"
    else:
        target, draft = "ngram-5", "ngram-3"
        if None in (options.target, options.draft):
            print("torch is not installed: n-gram models of the shipped text stand in for GPTs")
    return (
        target if options.target is None else options.target,
        draft if options.draft is None else options.draft,
    )


def load_model(name: str) -> LanguageModel:
    """Load a shipped model, or fit an n-gram model to the shipped text."""
    if name in NGRAMS:
        text = files("otm.models") / "data" / "king_james_bible_excerpt.txt"
        tokens = np.frombuffer(text.read_bytes(), np.uint8)
        return NGramModel.witten_bell(tokens, order=1 + NGRAMS.index(name), vocabulary=256)
    model = load(check_name("model", name, SHIPPED + NGRAMS))
    import torch

    torch.set_num_threads(1)  # threads that wait for each other make models so small slower
    return model


def _progress(methods: Iterable[_T]) -> Iterable[_T]:
    """Show on a terminal how many methods have run, if tqdm is installed."""
    tqdm = optional("tqdm")
    if tqdm is None:
        return methods
    bar: Iterable[_T] = tqdm.tqdm(methods, disable=None, leave=False, unit="method")
    return bar


if __name__ == "__main__":
    sys.exit(main())
