"""Tables of the decoding loops."""

from typing import Any

from benchmarks.layout import markdown, origin, record

__all__ = [
    "coupled",
    "drafters",
    "efficiency",
    "overhead",
    "peers",
    "speed",
    "state",
    "trees",
    "watermark",
    "watermark_statistics",
]

COMMAND = "decoding --save"
PAIRS = {
    "overhead_16": "random, 16 layers",
    "overhead_48": "random, 48 layers",
    "overhead_shipped": "shipped bytes",
}


def overhead() -> str:
    found = record("decoding")
    lines = []
    for key, pair in PAIRS.items():
        for row in found[key]:
            numbers = [f"{row[name]:.2f}" for name in ("draft_ms", "target_ms", "other_ms")]
            lines.append([f"{pair}: {row['rule']}", str(row["k"]), *numbers, percent(row["share"])])
    heading = ["pair: rule", "K", "draft, ms", "target, ms", "other, ms", "share of other"]
    return markdown(heading, lines, origin(found, COMMAND))


def efficiency() -> str:
    found = record("decoding")
    lines = []
    for draft, results in found["efficiency"].items():
        first = {(row["rule"], row["k"]): row for row in results["first_step"]}
        for row in results["tokens"]:
            accepted = first.get((row["rule"], row["k"]))
            cell = f"{accepted['mean']:.3f}" if accepted else ""
            lines.append([f"{draft}: {row['rule']}", str(row["k"]), cell, interval(row)])
        for rule, row in results["less_k_seq"].items():
            lines.append([f"{draft}: {rule} minus k-Seq, paired", "8", "", interval(row)])
    heading = ["draft model: rule", "K", "acceptance, first draft", "tokens per step, γ = 5"]
    return markdown(heading, lines, origin(found, COMMAND))


def speed() -> str:
    found = record("decoding")
    lines = []
    for row in found["speed"]:
        paper = "" if row["theorem_3_8"] is None else f"{row['theorem_3_8']:.2f}"
        shown = [f"{row[name]:.2f}" for name in ("c", "block_efficiency", "measured", "cost_model")]
        lines.append([row["draft"], str(row["gamma"]), str(row["k"]), *shown, paper])
    heading = [
        "draft model",
        "γ",
        "K",
        "c",
        "tokens per step",
        "speed-up",
        "cost model",
        "Theorem 3.8",
    ]
    return markdown(heading, lines, origin(found, COMMAND))


def peers() -> str:
    found = record("decoding")
    names = ["transformers, alone", "transformers, assisted", "otm, in generate", "otm, own models"]
    ratios = ["otm, in generate, ratio", "otm, own models, ratio"]
    lines = []
    for row in found.get("transformers", []):
        cells = [f"{row[name]:.0f}" if name in row else "" for name in names]
        cells += [f"{row[name]:.2f}" if name in row else "" for name in ratios]
        lines.append([f"{row['pair']}, {'sampled' if row['sampled'] else 'greedy'}", *cells])
    heading = ["pair", *names, "in generate / assisted", "own models / assisted"]
    return markdown(heading, lines, origin(found, COMMAND)) if lines else ""


def coupled() -> str:
    found = record("coupled")
    drafts = list(found["accepted"])
    lines = []
    for rows in zip(*found["accepted"].values(), strict=True):
        cells = [cell for row in rows for cell in (interval(row), interval(row["less_chain"]))]
        lines.append([rows[0]["way"], f"{rows[0]['bytes']:,}", *cells])
    heading = ["", "bytes of a step"]
    for name in drafts:
        heading += [f"tokens of a step, {name} draft", "less chain, paired"]
    return markdown(heading, lines, origin(found, "coupled --save"))


def trees() -> str:
    found = record("trees")
    settings = list(found["tokens"])
    lines = []
    for rows in zip(*found["tokens"].values(), strict=True):
        lines.append([rows[0]["way"], str(max(row["nodes"] for row in rows)), *map(interval, rows)])
    heading = ["", "drafts", *settings]
    return markdown(heading, lines, origin(found, "trees --save"))


def watermark() -> str:
    found = record("watermark")
    settings = [setting.split(", ") for setting in found["texts"]]
    temperatures = list(dict.fromkeys(temperature for _, temperature in settings))
    heading = [""]
    for temperature in temperatures:
        heading += [
            f"tokens of a step, {temperature}",
            f"−log10 p, {found['tokens'] // 2} and {found['tokens']} tokens",
            "p < 1e-4",
        ]
    lines = []
    for draft in dict.fromkeys(draft for draft, _ in settings):
        of_draft = (found["texts"][f"{draft}, {temperature}"] for temperature in temperatures)
        for rows in zip(*of_draft, strict=True):
            cells = []
            for row in rows:
                shares = (
                    f"{100 * row[name]['mean']:.0f} %" for name in ("clear_short", "clear_long")
                )
                means = (interval(row[name], 2) for name in ("short", "long"))
                cells += [interval(row["tokens"]), "; ".join(means), "; ".join(shares)]
            lines.append([f"{draft}: {rows[0]['way']}", *cells])
    return markdown(heading, lines, origin(found, "watermark --save"))


def watermark_statistics() -> str:
    found = record("watermark")
    lines = []
    for setting, of_setting in found["laws"].items():
        for way, law in of_setting["laws"].items():
            cells = [f"{law[name]:.3f}" for name in ("acceptance", "strength", "score")]
            lines.append(
                [f"{setting}: {way}", *cells, f"{law['clocks']:.0f}", f"{law['signal']:.3f}"]
            )
    heading = ["", "acceptance", "strength, nats", "score", "without key", "signal"]
    return markdown(heading, lines, origin(found, "watermark --save"))


def drafters() -> str:
    found = record("drafters")
    lines = [
        [rows[0]["way"], *(cell for row in rows for cell in (interval(row), interval(row["less"])))]
        for rows in zip(*found["tokens"].values(), strict=True)
    ]
    heading = [""]
    for name in found["tokens"]:
        heading += [name, "less small model, paired"]
    return markdown(heading, lines, origin(found, "drafters --save"))


def state() -> str:
    found = record("state")
    rules = ("block", "greedy block", "less")
    lines = [
        [row["pair"], str(row["gamma"]), *(interval(row[rule]) for rule in rules)]
        for row in found["results"]
    ]
    heading = ["pair", "γ", "block", "greedy block", "greedy less block, paired"]
    return markdown(heading, lines, origin(found, "state --save"))


def interval(row: dict[str, Any], digits: int = 3) -> str:
    return f"{row['mean']:.{digits}f} ± {row['high'] - row['mean']:.{digits}f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
