"""``otm report``: what drafts would gain for a pair of models, from their scores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otm.cli.output import print_facts, print_json, print_table
from otm.errors import InvalidInputError

if TYPE_CHECKING:
    from otm.gain import Latency, Summary
    from otm.gain.blocks import Progress


_FILES = "arrays in files"
_TEXT = "models that read a --text"
_LISTS = "lists of a .jsonl file, which are taken as they are and bound α_k alone"

_ONLY_FOR = {
    **dict.fromkeys(("kind", "draft_name", "target_name", "prompts", "tokens"), (_FILES,)),
    **dict.fromkeys(("window", "sampled", "device"), (_TEXT,)),
    "vocabulary": (_LISTS,),
    **dict.fromkeys(("rules", "temperature", "top_k", "top_p"), (_FILES, _TEXT)),
    **dict.fromkeys(("draft_temperatures", "gammas", "latency"), (_FILES, _TEXT)),
}
"""What an option has an effect on, by the option's name; the others have one on all."""


def report(
    context: typer.Context,
    draft: Annotated[
        str,
        typer.Argument(
            help="Scores of the draft model [N, V] (.npy, .npz, .safetensors), of both models, or "
            "lists of log-probabilities as servers return them (.jsonl); with --text a model of "
            "Hugging Face.",
        ),
    ],
    target: Annotated[
        str | None,
        typer.Argument(help="Scores of the target model, or the model.", show_default=False),
    ] = None,
    *,
    output: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder to write into; a run goes on where it stopped."),
    ] = Path("report"),
    kind: Annotated[
        str, typer.Option(help="logits, log-probabilities or probabilities.")
    ] = "logits",
    draft_name: Annotated[str, typer.Option(help="Name of the draft's array.")] = "draft",
    target_name: Annotated[str, typer.Option(help="Name of the target's array.")] = "target",
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompt of each position [N].")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Token drawn at each position [N].")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text that two models read.")
    ] = None,
    window: Annotated[int, typer.Option(help="Most tokens that models read at once.")] = 128,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="The target drew this text, at this temperature.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="Where the models run, such as cuda.")] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Size of the vocabulary behind lists of a .jsonl file.")
    ] = None,
    drafts: Annotated[
        list[int] | None, typer.Option("-k", "--k", help="Number of drafts; may be repeated.")
    ] = None,
    rules: Annotated[
        list[str] | None, typer.Option("--rule", help="Rule to compute; may be repeated.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the sampling.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Of the sampling.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of the sampling.")] = None,
    draft_temperatures: Annotated[
        list[float] | None,
        typer.Option("--draft-temperature", help="To compare; may be repeated."),
    ] = None,
    gammas: Annotated[
        list[int] | None, typer.Option("--gamma", help="Drafts of a path; may be repeated.")
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|C",
            help="Table of step times (JSON), or the draft model's time for a token over the "
            "target's; decides what is recommended.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.95,
    workers: Annotated[int, typer.Option(help="Number of processes; -1 for one a core.")] = -1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute what drafts would gain, and write report.json and report.html.

    What every rule accepts at every position, expected tokens of a step with intervals clustered by
    prompt, what rules that are not lossless would cost, and, with --latency, what to decode with.
    """
    from otm import gain
    from otm.decoding.sampling_parameters import SamplingParameters

    _refuse_unused(context, _source_of(draft, text))
    defaults = gain.Settings()
    sampling = SamplingParameters(temperature=temperature, top_k=top_k, top_p=top_p)
    settings = gain.Settings(
        ks=tuple(drafts or defaults.ks),
        rules=tuple(rules or defaults.rules),
        sampling=sampling,
        draft_temperatures=tuple(draft_temperatures or ()),
    )
    costs = None if latency is None else _latency(latency)
    source: Any  # from one of three functions
    if text is not None:
        if target is None:
            raise InvalidInputError("one model and a text; give the draft and the target model")
        source = gain.from_models(
            draft, target, text, window=window, sampled=sampled, device=device
        )
    elif draft.lower().endswith(".jsonl"):
        if target is not None:
            raise InvalidInputError("a .jsonl file has both models' lists; give one file")
        source = gain.from_top_logprobs(Path(draft), vocabulary=vocabulary)
    else:
        source = gain.from_files(
            Path(draft),
            None if target is None else Path(target),
            kind=kind,
            draft_name=draft_name,
            target_name=target_name,
            prompts=prompts,
            tokens=tokens,
        )
    more = {"gammas": tuple(gammas)} if gammas else {}
    with _progress() as progress:
        summary = gain.report(
            source,
            output,
            settings,
            latency=costs,
            level=level,
            workers=workers,
            progress=progress,
            **more,
        )
    if json:
        print_json(summary.as_json())
    else:
        _print(summary, output)


def _source_of(draft: str, text: Path | None) -> str:
    if text is not None:
        return _TEXT
    return _LISTS if draft.lower().endswith(".jsonl") else _FILES


def _refuse_unused(context: typer.Context, source: str) -> None:
    """Refuse options that were given and would be ignored."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if source not in _ONLY_FOR.get(parameter.name or "", (source,)) and (
            given is not None and given.name == "COMMANDLINE"
        ):
            raise InvalidInputError(
                f"{parameter.opts[0]} would have no effect on {source}; leave it out"
            )


def _latency(given: str) -> Latency:
    from otm.decoding.parameters import as_costs
    from otm.gain import Latency, read_latency

    try:
        ratio = float(given)
    except ValueError:
        return read_latency(Path(given))
    as_costs(ratio, "--latency")
    return Latency.constant(ratio)


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Show on a terminal how many blocks are finished."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), "blocks", TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("positions", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print(summary: Summary, folder: Path) -> None:
    known = summary.prompts_known
    print_facts(
        [
            ("source", summary.source),
            ("positions", f"{summary.positions:,}"),
            ("prompts", f"{summary.prompts:,}" if known else "not known: no intervals"),
            ("report", str(folder / "report.html")),
            ("numbers", str(folder / "report.json")),
        ]
    )
    if summary.bounds:
        print("\nα, between")
        print_table(
            ("k", "lower", "upper"),
            [
                (f"{row['k']}", _mean(row["lower"], known), _mean(row["upper"], known))
                for row in summary.bounds
            ],
        )
    if summary.acceptance:
        first = summary.settings.draft_temperatures[0]
        rows: dict[int, list[str]] = {}
        for row in summary.acceptance:
            if row["draft temperature"] == first:
                rows.setdefault(row["k"], []).append(_mean(row["mean"], known))
        print("\nacceptance probability")
        print_table(("k", *summary.settings.rules), [(f"{k}", *cells) for k, cells in rows.items()])
    if summary.recommendation is not None:
        print(f"\n{summary.recommendation}\n\n{summary.costs}")


def _mean(estimate: Any, known: bool) -> str:
    return str(estimate) if known else f"{estimate.mean:.3f}"
