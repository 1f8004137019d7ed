"""``otm report``: what drafts would gain for a pair of models, from their scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from otm.cli.output import JsonOption, print_headline, print_json, print_table
from otm.cli.sampling import GenerationConfig, MinP, Temperature, TopK, TopP, sampling_of
from otm.errors import InvalidInputError

if TYPE_CHECKING:
    from otm.gain import Latency, Source, Summary


_FILES = "arrays in files"
_TEXT = "models that read a --text"
_LISTS = "lists of log-probabilities, which are not rescaled and only bound α_k"

_ONLY_FOR = {
    **dict.fromkeys(("kind", "draft_name", "target_name", "tokens"), (_FILES,)),
    "prompts": (_FILES, _TEXT),
    **dict.fromkeys(("window", "sampled", "device"), (_TEXT,)),
    "vocabulary": (_FILES, _LISTS),
    "slack": (_LISTS,),
    **dict.fromkeys(("rules", "temperature", "top_k", "top_p", "min_p"), (_FILES, _TEXT)),
    "generation_config": (_FILES, _TEXT),
    **dict.fromkeys(("draft_temperatures", "gammas", "latency"), (_FILES, _TEXT)),
}
"""What an option has an effect on, by the option's name; the others have one on all."""


def report(
    context: Context,
    draft: Annotated[
        str,
        Argument(
            help="Scores [N, V] of the draft model or of both (.npy, .npz, .safetensors); lists of "
            "log-probabilities of both models (.jsonl); responses of the draft model's server "
            "(.json, .jsonl); with --text the name of a Hugging Face model.",
        ),
    ],
    target: Annotated[
        str | None, Argument(help="Scores or responses of the target model, or its name.")
    ] = None,
    *,
    output: Annotated[
        Path,
        Option(metavar="DIR", help="Folder to write into; an interrupted report is continued."),
    ] = Path("report"),
    kind: Annotated[str, Option(help="logits, log-probabilities or probabilities.")] = "logits",
    draft_name: Annotated[str, Option(help="Name of the draft model's array.")] = "draft",
    target_name: Annotated[str, Option(help="Name of the target model's array.")] = "target",
    prompts: Annotated[
        Path | None,
        Option(
            help="The prompt of each position, an array [N]; with --text the name of the prompt of "
            "each line, a text (the --text again: each line is a prompt)."
        ),
    ] = None,
    tokens: Annotated[Path | None, Option(help="The token sampled at each position [N].")] = None,
    text: Annotated[
        Path | None,
        Option(help="A text for the two models to read; its paragraphs are the prompts."),
    ] = None,
    window: Annotated[int, Option(help="Most tokens that the models read at once.")] = 128,
    sampled: Annotated[bool, Option("--sampled", help="The target sampled this text.")] = False,
    device: Annotated[str | None, Option(help="Where the models run, such as cuda.")] = None,
    vocabulary: Annotated[
        int | None,
        Option(
            help="Number of tokens: columns of files beyond it are cut off as padding, narrower "
            "files are filled up; for lists it narrows the bounds."
        ),
    ] = None,
    slack: Annotated[float, Option(help="Largest error of a log-probability in the lists.")] = 1e-5,
    drafts: Annotated[
        list[int] | None, Option("-k", "--k", help="Drafts; may be repeated.")
    ] = None,
    rules: Annotated[list[str] | None, Option("--rule", help="A rule; may be repeated.")] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    generation_config: GenerationConfig = None,
    draft_temperatures: Annotated[
        list[float] | None,
        Option("--draft-temperature", help="Of the draft model, to compare; may be repeated."),
    ] = None,
    gammas: Annotated[list[int] | None, Option("--gamma", help="Length; may be repeated.")] = None,
    latency: Annotated[
        str | None,
        Option(
            metavar="FILE|C",
            help="Table of step times (JSON), or the draft model's time for a token over the "
            "target's; needed for a recommendation.",
        ),
    ] = None,
    level: Annotated[float, Option(help="Confidence level of the intervals.")] = 0.95,
    workers: Annotated[int, Option(help="Number of processes; -1 for one per core.")] = -1,
    json: JsonOption = False,
) -> None:
    """Compute what drafts would gain, and write report.json and report.html.

    The report has the acceptance probability of the rules that are asked for (three if none is),
    the expected tokens of a step with intervals clustered by prompt, the cost of rules that are not
    lossless and, with --latency, a recommendation.
    """
    from otm import gain

    lists = text is None and draft.lower().endswith((".json", ".jsonl"))
    _refuse_unused(context, _LISTS if lists else _FILES if text is None else _TEXT)
    defaults = gain.Settings()
    sampling = sampling_of(temperature, top_k, top_p, min_p, generation_config)
    settings = gain.Settings(
        ks=tuple(drafts or defaults.ks),
        rules=tuple(rules or defaults.rules),
        sampling=sampling,
        draft_temperatures=tuple(draft_temperatures or ()),
    )
    costs = None if latency is None else _latency(latency)
    source: Source
    if text is not None:
        if target is None:
            raise InvalidInputError("one model and a text; give the draft and the target model")
        source = gain.from_models(
            draft, target, text, prompts=prompts, window=window, sampled=sampled, device=device
        )
    elif lists:
        alone = target is None and draft.lower().endswith(".json")
        if alone or (target is not None and not target.lower().endswith((".json", ".jsonl"))):
            raise InvalidInputError(
                "give one .jsonl file, which has both models' lists, or two files (.json, .jsonl), "
                "the responses of each model's server"
            )
        source = gain.from_top_logprobs(draft, target, vocabulary=vocabulary, slack=slack)
    else:
        for model in filter(None, (draft, target)):
            if Path(model).is_dir():
                raise InvalidInputError(
                    f"{model!r} is a folder; if it is a model of Hugging Face, give a text for "
                    "both models to read: --text FILE"
                )
        source = gain.from_files(
            draft,
            target,
            kind=kind,
            draft_name=draft_name,
            target_name=target_name,
            prompts=prompts,
            tokens=tokens,
            vocabulary=vocabulary,
        )
    more: dict[str, Any] = {"gammas": tuple(gammas)} if gammas else {}
    summary = gain.report(
        source, output, settings, latency=costs, level=level, workers=workers, **more
    )
    if json:
        print_json(summary.as_json())
    else:
        _print(summary, output)


def _refuse_unused(context: Context, source: str) -> None:
    """Refuse options on the command line that would be ignored."""
    for parameter in context.command.params:
        name = parameter.name or ""
        origin = context.get_parameter_source(name)
        stated = origin is not None and origin.name == "COMMANDLINE"
        if stated and source not in _ONLY_FOR.get(name, (source,)):
            raise InvalidInputError(
                f"{parameter.opts[0]} would have no effect on {source}; leave it out"
            )


def _latency(option: str) -> Latency:
    from otm.gain import Latency, read_latency
    from otm.gain.parameters import as_costs

    try:
        ratio = float(option)
    except ValueError:
        return read_latency(option)
    as_costs(ratio, "--latency")
    return Latency.constant(ratio)


def _print(summary: Summary, folder: Path) -> None:
    from otm.gain.reports.verdict import verdict

    answer = verdict(summary)
    print_headline(f"{answer.headline} {answer.detail}".rstrip())
    print(f"{answer.condition}\n")
    print_table(None, answer.numbers)
    print()
    known = summary.prompts_known
    facts = {
        "source": summary.source,
        "positions": f"{summary.positions:,}",
        "prompts": f"{summary.prompts:,}" if known else "unknown",
        "sampling": str(summary.settings.sampling),
        "report": str(folder / "report.html"),
        "numbers": str(folder / "report.json"),
    }
    print_table(None, list(facts.items()))
    print(f"\n{summary.intervals}")
    if summary.bounds:
        print("\nbounds on α")
        columns = ("k", "lower", "upper")
        rows = [[str(row[column]) for column in columns] for row in summary.bounds]
        print_table(columns, rows)
    settings, first = summary.settings, summary.settings.draft_temperatures[0]
    if summary.acceptance:
        shown = [row for row in summary.acceptance if row["draft temperature"] == first]
        means = {k: [str(row["mean"]) for row in shown if row["k"] == k] for k in settings.ks}
        print("\nacceptance probability")
        print_table(("k", *settings.rules), [[str(k), *cells] for k, cells in means.items()])
    if summary.efficiency_bounds:
        shown = [row for row in summary.efficiency_bounds if row["draft temperature"] == first]
        gammas = dict.fromkeys(row["gamma"] for row in shown)
        most = {k: [str(row["bound"]) for row in shown if row["K"] == k] for k in settings.ks}
        print(
            "\nupper bound on tokens per step, for every memoryless lossless verifier of K chains"
        )
        heading = ("K", *(f"γ = {gamma}" for gamma in gammas))
        print_table(heading, [[str(k), *cells] for k, cells in most.items()])
    if summary.recommendation is not None:
        print(f"\n{summary.recommendation}")
    if summary.not_recommended:
        print(f"\n{summary.not_recommended}")
