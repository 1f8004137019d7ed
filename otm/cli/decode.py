"""``otm decode``: the demo of `otm.decoding`, which reads its options itself."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from typing import Any, NoReturn

import typer

from otm.cli.output import print_json
from otm.errors import InvalidInputError


def decode(context: typer.Context) -> None:
    """Decode a prompt with and without drafts; show what was accepted, and what it saves."""
    from otm.decoding import __main__ as demo

    parser = demo.command_line()
    parser.prog = "otm decode"
    parser.add_argument("--json", action="store_true", help="print JSON")

    def refuse(message: str) -> NoReturn:
        raise InvalidInputError(f"{message} (see otm decode --help)")

    parser.error = refuse  # type: ignore[method-assign]  # one line, like every other error
    try:
        options = parser.parse_args(context.args)
    except SystemExit:  # it has printed its help
        return
    if options.json:
        print_json(_document(options))
    else:
        demo.compare_ways(options)


def _document(options: Any) -> dict[str, Any]:
    """Decode in every way; the table of the demo as numbers."""
    from otm.decoding import __main__ as demo
    from otm.models.gpt.model import decode as text_of

    with contextlib.redirect_stdout(sys.stderr):  # it may say that torch is missing
        target, draft = demo.model_names(options)
    methods = demo.ways_to_decode(options, demo.load_model(target), demo.load_model(draft))
    generations = {name: method(max_tokens=options.max_tokens) for name, method in methods.items()}
    ways = [
        {
            "way": name,
            "tokens": generation.tokens,
            "target_runs": len({step.call for step in generation.steps}),
            "block_efficiency": generation.block_efficiency,
            "acceptance_rate": _number(generation.acceptance_rate),
            "seconds": dataclasses.asdict(generation.seconds),
            "text": text_of(generation.sequences[0]),
        }
        for name, generation in generations.items()
    ]
    return {"target": target, "draft": draft, "seed": options.seed, "ways": ways}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
