"""``otm report``: estimate the gain from drafts for two models, from their scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from otm.cli.output import JsonOption, print_headline, print_json, print_table
from otm.cli.sampling import GenerationConfig, MinP, Temperature, TopK, TopP, sampling_of
from otm.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otm.gain import Latency, Source, Summary
    from otm.gain.reports.sampled_tables import TableRow


KS, GAMMAS = (1, 2, 4), (1, 2, 4, 8)
"""Numbers of drafts with --text, whose rules of paths take time for each K and γ."""

_FILES = "arrays in files"
_TEXT = "models that read a --text"
_LISTS = "lists of log-probabilities, which give only bounds on α_k"

_ONLY_FOR = {
    **dict.fromkeys(("kind", "draft_name", "target_name", "tokens"), (_FILES,)),
    "prompts": (_FILES, _TEXT),
    **dict.fromkeys(("window", "sampled", "device", "chat", "seed", "contexts", "nodes"), (_TEXT,)),
    "vocabulary": (_FILES, _LISTS),
    "slack": (_LISTS,),
    **dict.fromkeys(("rules", "temperature", "top_k", "top_p", "min_p"), (_FILES, _TEXT)),
    "generation_config": (_FILES, _TEXT),
    **dict.fromkeys(("draft_temperatures", "gammas", "latency"), (_FILES, _TEXT)),
}
"""Sources on which an option has an effect; an option without an entry affects all sources."""


def report(
    context: Context,
    draft: Annotated[
        str,
        Argument(
            help="Scores [N, V] of the draft model or of both models (.npy, .npz, .safetensors); "
            "lists of log-probabilities of both models (.jsonl); responses of the draft model's "
            "server (.json, .jsonl); or, with --text, a Hugging Face model.",
        ),
    ],
    target: Annotated[
        str | None, Argument(help="Scores or responses of the target model, or the model.")
    ] = None,
    *,
    output: Annotated[
        Path,
        Option(metavar="DIR", help="Output folder; an interrupted report continues there."),
    ] = Path("report"),
    kind: Annotated[
        str, Option(help="Kind of scores: logits, log-probabilities or probabilities.")
    ] = "logits",
    draft_name: Annotated[str, Option(help="Name of the draft model's array.")] = "draft",
    target_name: Annotated[str, Option(help="Name of the target model's array.")] = "target",
    prompts: Annotated[
        Path | None,
        Option(
            help="Array [N] with the prompt of each position. With --text: a text with the prompt "
            "name of each line; give the --text file again if each line is a prompt."
        ),
    ] = None,
    tokens: Annotated[
        Path | None, Option(help="Array [N] with the token sampled at each position.")
    ] = None,
    text: Annotated[
        Path | None,
        Option(help="Text that both models read; its paragraphs are the prompts."),
    ] = None,
    chat: Annotated[
        bool | None,
        Option(
            "--chat/--no-chat",
            help="Whether the prompts of --text go through the target's chat template, and the "
            "target answers them. Default: if its tokenizer has a template.",
        ),
    ] = None,
    window: Annotated[
        int,
        Option(
            help="Largest number of tokens that the models read at once; with a chat template, of "
            "an answer."
        ),
    ] = 128,
    sampled: Annotated[
        bool, Option("--sampled", help="State that the target sampled this text.")
    ] = False,
    seed: Annotated[int, Option(help="Seed of the target's answers.")] = 0,
    contexts: Annotated[
        int,
        Option(help="Largest number of contexts at which drafts are sampled for rules of paths."),
    ] = 100,
    device: Annotated[str | None, Option(help="Device of the models, such as cuda.")] = None,
    vocabulary: Annotated[
        int | None,
        Option(
            help="Number of tokens. Columns of files beyond it are cut off as padding, and "
            "narrower files are filled up. For lists it narrows the bounds."
        ),
    ] = None,
    slack: Annotated[float, Option(help="Largest error of a log-probability in the lists.")] = 1e-5,
    drafts: Annotated[
        list[int] | None, Option("-k", "--k", help="Number of drafts; may be repeated.")
    ] = None,
    rules: Annotated[
        list[str] | None, Option("--rule", help="Rule to compare; may be repeated.")
    ] = None,
    nodes: Annotated[
        list[int] | None,
        Option(
            help="Largest number of drafts of a best-first tree, at the same contexts; may be "
            "repeated. Each --gamma needs trees of its own, which take time."
        ),
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    generation_config: GenerationConfig = None,
    draft_temperatures: Annotated[
        list[float] | None,
        Option("--draft-temperature", help="Draft model's temperature; may be repeated."),
    ] = None,
    gammas: Annotated[
        list[int] | None, Option("--gamma", help="Drafts γ of a path; may be repeated.")
    ] = None,
    latency: Annotated[
        str | None,
        Option(
            metavar="FILE|C",
            help="Table of step times (JSON), or the draft model's time per token divided by the "
            "target's. Needed for speeds and a recommendation.",
        ),
    ] = None,
    level: Annotated[float, Option(help="Confidence level of the intervals.")] = 0.95,
    workers: Annotated[int, Option(help="Number of processes; -1: one per core.")] = -1,
    json: JsonOption = False,
) -> None:
    """Estimate how much two models gain from drafts.

    The command writes report.json and report.html. The report has the acceptance probability of
    each --rule (by default three rules), the expected tokens per step, and the cost of rules that
    are not lossless. Intervals are clustered by prompt. With --latency the report also recommends a
    rule and numbers of drafts.
    """
    from otm import gain
    from otm.gain.reports.sampled_drafts import memory_in_words
    from otm.gain.reports.settings import PATH_RULES

    lists = text is None and draft.lower().endswith((".json", ".jsonl"))
    _reject_unused_options(context, _LISTS if lists else _FILES if text is None else _TEXT)
    defaults = gain.Settings() if text is None else gain.Settings(ks=KS, path_rules=PATH_RULES)
    sampling = sampling_of(temperature, top_k, top_p, min_p, generation_config)
    settings = gain.Settings(
        ks=tuple(drafts or defaults.ks),
        rules=tuple(rules or defaults.rules),
        sampling=sampling,
        draft_temperatures=tuple(draft_temperatures or ()),
        path_rules=() if rules else defaults.path_rules,
        contexts=contexts,
        nodes=tuple(nodes or ()),
    )
    more: dict[str, Any] = {"gammas": tuple(gammas)} if gammas else {}
    costs = None if latency is None else _latency(latency)
    source: Source
    if text is not None:
        if target is None:
            raise InvalidInputError("--text needs two models; give the draft and the target model")
        source = gain.from_models(
            draft,
            target,
            text,
            prompts=prompts,
            window=window,
            sampled=sampled,
            device=device,
            chat=chat,
            sampling=sampling,
            seed=seed,
        )
        if settings.path_rules or settings.nodes:
            more.setdefault("gammas", GAMMAS)
            print(memory_in_words(source.vocabulary, settings, more["gammas"]), file=sys.stderr)
    elif lists:
        alone = target is None and draft.lower().endswith(".json")
        if alone or (target is not None and not target.lower().endswith((".json", ".jsonl"))):
            raise InvalidInputError(
                "give one .jsonl file, which has both models' lists, or two files (.json, .jsonl) "
                "with the responses of each model's server"
            )
        source = gain.from_top_logprobs(draft, target, vocabulary=vocabulary, slack=slack)
    else:
        for model in filter(None, (draft, target)):
            if Path(model).is_dir():
                raise InvalidInputError(
                    f"{model!r} is a folder; if it is a Hugging Face model, give a text that both "
                    "models read: --text FILE"
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
    summary = gain.report(
        source, output, settings, latency=costs, level=level, workers=workers, **more
    )
    if json:
        print_json(summary.as_json())
    else:
        _print(summary, output)


def _reject_unused_options(context: Context, source: str) -> None:
    """Raise if an option on the command line has no effect on this source."""
    for parameter in context.command.params:
        name = parameter.name or ""
        origin = context.get_parameter_source(name)
        stated = origin is not None and origin.name == "COMMANDLINE"
        if stated and source not in _ONLY_FOR.get(name, (source,)):
            raise InvalidInputError(f"{parameter.opts[0]} has no effect on {source}; omit it")


def _latency(option: str) -> Latency:
    """Read a latency table from a file, or make a constant latency from a number."""
    from otm.gain import Latency, read_latency
    from otm.gain.parameters import as_costs

    try:
        ratio = float(option)
    except ValueError:
        return read_latency(option)
    as_costs(ratio, "--latency")
    return Latency.constant(ratio)


def _print(summary: Summary, folder: Path) -> None:
    """Print the verdict, then the facts and tables of a report."""
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
    exact = [row for row in summary.block_efficiency if row["draft temperature"] == first]
    tables = (
        ("tokens per step along the text; for K > 1 chains, at least", exact, "chains"),
        (
            "tokens per step, from drafts sampled where steps begin",
            summary.sampled_drafts,
            "mean",
        ),
        (
            "upper bound where steps begin, for every memoryless lossless verifier of K chains; it "
            "is estimated from the same drafts, so chance can put it below a rule",
            summary.sampled_bounds,
            "bound",
        ),
        (
            "tokens per step of trees where steps begin; a tree has at most this number of nodes",
            summary.sampled_trees,
            "mean",
        ),
        (
            "paired differences: tokens per step of trees minus those of another tree, or of the "
            "most chains above with at most as many drafts",
            summary.tree_differences,
            "mean",
        ),
        (
            "upper bound over all positions of the text, not only where steps begin, for every "
            "memoryless lossless verifier of K chains",
            [row for row in summary.efficiency_bounds if row["draft temperature"] == first],
            "bound",
        ),
    )
    for title, rows_of_table, value in tables:
        if rows_of_table:
            print(f"\n{title}")
            _print_by_gamma(rows_of_table, value)
    if summary.recommendation is not None:
        # the verdict above has the first line of the recommendation already
        print(f"\n{str(summary.recommendation).partition(chr(10))[2]}")
    if summary.not_recommended:
        print(f"\n{summary.not_recommended}")


def _print_by_gamma(rows: Sequence[TableRow], value: str) -> None:
    """Print a table with a column for each γ, and a line for each combination of other labels."""
    gammas = dict.fromkeys(row["gamma"] for row in rows)
    labels = ("of", "nodes", "less") if "less" in rows[0] else ("rule", "K", "nodes")
    names = [name for name in labels if name in rows[0]]
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        lines.setdefault(tuple(str(row[name]) for name in names), []).append(str(row[value]))
    heading = (*names, *(f"γ = {gamma}" for gamma in gammas))
    print_table(heading, [[*line, *cells] for line, cells in lines.items()])
