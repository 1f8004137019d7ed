"""Write the results of the benchmarks into the pages of the documentation.

    python -m benchmarks.tables [--check]

On a page, a table stands between the lines `<!-- table NAME -->` and `<!-- end of table -->`.  The
program makes it from the JSON files in benchmarks/results/.  If these have no results for it, the
page keeps its table.  With --check the program does not write, and its exit code says whether the
pages show the results.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import real_tables
from benchmarks.kernel_tables import (
    compiled,
    cpu,
    gpu,
    lost,
    on_cpu,
    sigmoid,
    softmax,
    targets,
)
from benchmarks.layout import markdown, origin, record
from benchmarks.loop_tables import (
    coupled,
    drafters,
    efficiency,
    overhead,
    peers,
    speed,
    state,
    trees,
    watermark,
    watermark_statistics,
)

__all__ = ["PAGES", "TABLES", "filled"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(
    ROOT / "docs" / f"{name}.md"
    for name in (
        "comparison",
        "tables/core",
        "tables/decoding",
        "tables/trees-and-drafters",
        "tables/cpu",
        "tables/kernels",
        "theory/state",
        "tables/watermarks",
        "tables/real-models",
    )
)
PLACE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(page: str) -> str:
    """Return the text of a page with regenerated tables."""

    def made(place: re.Match[str]) -> str:
        text = table(place[2])
        return f"{place[1]}\n{text}\n{place[3]}" if text else place[0]

    return PLACE.sub(made, page)


def table(name: str) -> str:
    """Make a table by its name in a page; return an empty text without results."""
    if name not in TABLES:
        raise SystemExit(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]()


def acceptance() -> str:
    found = record("rules")
    drafts = sorted({k for by_k in found["acceptance"].values() for k in by_k}, key=int)
    ranked = sorted(found["acceptance"].items(), key=lambda item: -item[1].get("2", 0))
    rows = []
    for name, by_k in ranked:
        guessed = {str(k) for k in found["estimated"].get(name, ())}
        shown = {k: f"≈ {x:.3f}" if k in guessed else f"{x:.4f}" for k, x in by_k.items()}
        cells = (shown.get(k, "") for k in drafts)
        rows.append([name, *cells])
    positions = f"\n{found['contexts']} positions; `python -m benchmarks.rules --save`.\n"
    return markdown(["rule", *(f"k = {k}" for k in drafts)], rows, positions)


def cost() -> str:
    found = record("rules")
    columns = next(iter(found["cost"].values()))
    rows = [
        [name, *(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in row.values())]
        for name, row in found["cost"].items()
    ]
    return markdown(["rule", *columns], rows, origin(found, "rules --save"))


def solve() -> str:
    found = record("solve")
    columns = ("alpha", "plan", "certificate")
    rows = [
        [f"{row['laws']}, k = {row['k']}", *(f"{row[column]:.1f}" for column in columns)]
        for row in found["times"]
    ]
    return markdown(["distributions", *columns], rows, origin(found, "solve --save"))


def single() -> str:
    found = record("solve")
    sort = min(row["argsort ms"] for row in found["times"])
    lines = [
        [name, f"{value:.3g}", f"{value / sort:.3g}" if name.endswith(", ms") else ""]
        for name, value in found["single"].items()
    ]
    return markdown(["", "measured", "in sorts"], lines, origin(found, "solve --save"))


def exactness() -> str:
    found = record("exactness")
    lines = [
        [name, "exact", f"{errors['distribution']:.0e}", f"{errors['acceptance']:.0e}"]
        for name, errors in found["floats"]["worst"].items()
    ]
    heading = [
        "rule",
        f"{found['fractions']['instances']:,} instances in fractions",
        f"output distribution, {found['floats']['instances']:,} instances in floats",
        "acceptance above the optimum, same instances",
    ]
    return markdown(heading, lines, origin(found, "exactness --save"))


def general_solvers() -> str:
    found = record("linear_program")
    by_k = found["largest solved in time"]
    methods = next(iter(by_k.values()))
    rows = [[name, *(f"{best.get(name, 0):,}" for best in by_k.values())] for name in methods]
    heading = ["method", *(f"k = {k}" for k in by_k)]
    return markdown(heading, rows, origin(found, "linear_program"))


def blocks() -> str:
    found = record("block")
    lines = [
        [
            row["distributions"],
            f"{row['lower']:.6f}",
            f"{row['gap']:.0e}",
            f"{row['antichains']:,}",
            f"{row['solve s']:.0f}",
            f"{row['check s']:.1f}",
        ]
        for row in found["rows"]
    ]
    heading = ["distributions", "accepted", "gap", "antichains", "solve, s", "check, s"]
    return markdown(heading, lines, origin(found, "block --save"))


def rows() -> str:
    found = record("rows")
    columns = ("rows, checked", "rows", "torch", "torch, gradient")
    lines = [
        [
            f"{row['laws']}, [{row['batch']:,} × {row['n']:,}], k = {row['k']}",
            *(f"{row[column]:.2f}" for column in columns),
        ]
        for row in found["times"]
    ]
    heading = ["distributions", "`otm.alpha` of rows", "without checks", "torch", "torch, gradient"]
    return markdown(heading, lines, origin(found, "rows --save"))


def report() -> str:
    found = record("report")
    rows = [
        [
            f"{row['workers']} process{'es' * (row['workers'] > 1)}, "
            f"{row['lossy_settings']} lossy settings",
            f"{row['positions per second']:.0f}",
            f"{row['processor ms per position']:.1f}",
            f"{row['peak MiB']:.0f}",
        ]
        for row in found["results"]
    ]
    heading = ["", "positions/s", "processor ms/position", "peak MiB, all processes"]
    return markdown(heading, rows, origin(found, "report --save"))


TABLES: dict[str, Callable[[], str]] = {
    "acceptance": acceptance,
    "cost": cost,
    "compiled": compiled,
    "cpu": cpu,
    "efficiency": efficiency,
    "blocks": blocks,
    "exactness": exactness,
    "gpu": gpu,
    "lost": lost,
    "on-cpu": on_cpu,
    "overhead": overhead,
    "coupled": coupled,
    "drafters": drafters,
    "state": state,
    "trees": trees,
    "watermark": watermark,
    "watermark-laws": watermark_statistics,
    "peers": peers,
    "real-costs": real_tables.costs,
    "real-drafts": real_tables.drafts,
    "real-gains": real_tables.gains,
    "real-load": real_tables.load,
    "real-loops": real_tables.loops,
    "real-outside": real_tables.outside,
    "real-pairs": real_tables.pairs,
    "real-rounding": real_tables.rounding,
    "real-rules": real_tables.rules,
    "real-served-load": real_tables.served_load,
    "real-servers": real_tables.servers,
    "real-speed": real_tables.speed,
    "real-texts": real_tables.texts,
    "real-their-drafts": real_tables.their_drafts,
    "real-trees": real_tables.trees,
    "real-tokenizers": real_tables.tokenizers,
    "report": report,
    "rows": rows,
    "sigmoid": sigmoid,
    "single": single,
    "softmax": softmax,
    "solve": solve,
    "speed": speed,
    "targets": targets,
    "general-solvers": general_solvers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(page.name)
            if not check:
                page.write_text(new, encoding="utf-8")
    print(", ".join(stale) or "nothing", "differs" if check else "written")
    sys.exit(bool(stale and check))


if __name__ == "__main__":
    main()
