"""Tables of the kernels: compiled resources, distances of distributions, times on devices.

Times come from each benchmarks/results/kernels-<device>.json.  Without such a file of a GPU there
is no table of GPU times.
"""

from pathlib import Path
from typing import Any

from benchmarks import layout
from benchmarks.layout import markdown, origin, record

__all__ = [
    "compiled",
    "cpu",
    "gpu",
    "gpu_records",
    "lost",
    "on_cpu",
    "panels",
    "sigmoid",
    "softmax",
    "targets",
]

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"


TARGETS = ("sm80", "sm90", "sm100", "gfx942")


def compiled() -> str:
    """Make a table of each kernel's registers by data type, as the maximum over its uses."""
    found = record("kernels-sm90")
    by_kernel = _by_kernel(found)
    first, *others = by_kernel.values()
    types = [dtype for dtype in first if all(dtype in by_type for by_type in others)]
    rows = []
    for (use, name), by_type in by_kernel.items():
        registers = [str(by_type[dtype]["registers"]) for dtype in types]
        maxima = ("spilled bytes", "shared bytes")
        largest = [f"{max(each[x] for each in by_type.values()):,}" for x in maxima]
        rows.append([f"{use}: `{name}`", *registers, *largest])
    heading = ["kernel", *(f"registers, {x}" for x in types), "spilled bytes", "shared bytes"]
    where = f"{found['target']}, triton {found['triton']}"
    return markdown(heading, rows, f"\n`python -m benchmarks.compile_kernels`; {where}.\n")


def targets() -> str:
    """Make a table of each kernel's registers by target, for fp32, with spilled bytes."""
    records = [record(f"kernels-{name}") for name in TARGETS]
    found = [_by_kernel(each) for each in records]
    rows = []
    for kernel in found[0]:
        each = [by_kernel[kernel]["fp32"] for by_kernel in found]
        registers = [str(most["registers"]) for most in each]
        spilled = max(most["spilled bytes"] for most in each)
        rows.append([f"{kernel[0]}: `{kernel[1]}`", *registers, str(spilled)])
    heading = ["kernel", *(each["target"] for each in records), "spilled bytes"]
    where = f"triton {records[0]['triton']}"
    return markdown(heading, rows, f"\n`python -m benchmarks.compile_kernels`; {where}.\n")


def _by_kernel(found: Any) -> dict[tuple[str, str], dict[str, dict[str, int]]]:
    """Return each kernel's maxima over its uses, by type, without vocabularies of one token."""
    by_kernel: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    for row in found["results"]:
        use, size = row["use"].split(", V = ")
        if size == "1":
            continue
        rule, form, _, dtype = use.split(", ")
        kernel = by_kernel.setdefault((f"{rule}, {form}", row["kernel"]), {})
        most = kernel.setdefault(dtype, {})
        for name in ("registers", "spilled bytes", "shared bytes"):
            most[name] = max(most.get(name, 0), row[name])
    return by_kernel


def softmax() -> str:
    found = record("distances")
    columns = ("token", "in the place of a draft")
    rows = [
        [
            f"{row['logits']}, temperature {row['temperature']:g}",
            *(f"{row[x]:.0e}" for x in columns),
        ]
        for row in found["softmax"]
    ]
    heading = ["logits", "token drawn from the target", "token in place of a draft"]
    return markdown(heading, rows, origin(found, "distances --save"))


def sigmoid() -> str:
    found = record("distances")
    by_power = found["sigmoid"]["by power of ten"]
    rows = [[f"±10^{power}", f"{value:.4f}"] for power, value in by_power.items()]
    rows.append(["the draft model's distribution", f"{found['sigmoid']['draft distribution']:.4f}"])
    return markdown(["scales a, b", "TV"], rows, origin(found, "distances --save"))


def lost() -> str:
    found = record("distances")

    def shown(value: float) -> str:
        return f"{value:.1e}" if value > 1e-12 else "< 1e-12"

    steps = next(iter(found["lost"]))["bins"]
    rows = [
        [
            f"{row['pair']}, k = {row['k']}",
            f"{row['optimum']:.4f}",
            *map(shown, row["bins"].values()),
            f"{row['k-Seq']:.4f}",
            f"{row['k-Seq at ρ*']:.4f}",
        ]
        for row in found["lost"]
    ]
    columns = (*(f"bins, {x} per octave" for x in steps), "k-Seq of the kernels", "k-Seq at ρ*")
    heading = ["distributions, drafts", "optimum", *columns]
    return markdown(heading, rows, origin(found, "distances --save"))


def gpu_records() -> dict[str, Any]:
    """Return the results of `benchmarks.kernels` on GPUs, by the name of their file."""
    return {name: found for name, found in _timed().items() if not _is_cpu(found)}


def gpu() -> str:
    return "\n".join(of_device(name, found) for name, found in gpu_records().items())


def cpu() -> str:
    return "\n".join(of_device(name, found) for name, found in _timed().items() if _is_cpu(found))


def on_cpu() -> str:
    """Make a table of the times of one chain on a CPU, with ratios to other contestants."""
    found = record("on_cpu")
    cases: dict[tuple[Any, ...], dict[int, dict[str, float]]] = {}
    for row in found["times"]:
        case = tuple(row[name] for name in ("rule", "from", "V", "dtype", "B"))
        cases.setdefault(case, {})[row["threads"]] = row["s"]
    rows = []
    for (rule, rows_of, size, dtype, batch), by_threads in sorted(
        cases.items(), key=lambda item: (item[0][0] != "chain", *item[0][1:3], item[0][4])
    ):
        own, name = by_threads[1]["torch"], f"{rule}, {rows_of}, V = {size:,}, {dtype}, B = {batch}"
        ratios = [
            f"{times['torch'] / times[other]:.2f}" if other in times else ""
            for other in ("plain", "transformers")
            for times in by_threads.values()
        ]
        numpy = by_threads[1].get("numpy")
        ratios.append(f"{numpy / by_threads[1]['plain']:.2f}" if numpy else "")
        ratios.append(f"{by_threads[1]['torch, checked'] / own:.2f}")
        rows.append([name, f"{own * 1e6:,.0f}", *ratios])
    others = [
        f"/ {other}{threads}"
        for other in ("plain torch", "transformers")
        for threads in ("", ", 2 threads")
    ]
    heading = ["", "µs", *others, "NumPy / plain torch", "checked / not"]
    return markdown(heading, rows, origin(found, "on_cpu --save"))


def _timed() -> dict[str, Any]:
    paths = sorted(layout.RESULTS.glob("kernels-*.json"))
    files = {path.stem: record(path.stem) for path in paths}
    return {name: found for name, found in files.items() if "device" in found}


def _is_cpu(found: Any) -> bool:
    return bool(found["device"].startswith("CPU"))


def of_device(name: str, found: Any) -> str:
    """Return one device's tables and pictures, for typical rejections and the largest V."""
    parts = [f"### {found['device']}"]
    # On a CPU there are never graphs, so its times need no mark.
    mark = "" if _is_cpu(found) else " (call)"
    for title, rows in panels(found).items():
        contestants, batches = (
            list(dict.fromkeys(r[x] for r in rows)) for x in ("contestant", "B")
        )
        cells = {(row["contestant"], row["B"]): time_of(row, mark) for row in rows}
        lines = [[c, *(cells.get((c, b), "") for b in batches)] for c in contestants]
        heading = [f"{title}, V = {rows[0]['V']:,}", *(f"B = {b}" for b in batches)]
        parts.append(markdown(heading, lines).rstrip())
    failed = {check["contestant"] for check in found["gate"]["checks"] if not check["passed"]}
    if failed:
        names = ", ".join(sorted(failed))
        parts.append(f"Not timed, because the check of the output distribution failed: {names}.")
    if found["absent"]:
        parts.append(f"Not installed or not working there: {', '.join(found['absent'])}.")
    versions = [
        f"{package} {x}" for package, x in found["versions"].items() if x not in ("absent", "None")
    ]
    rate = f"copy rate {found['copy bytes/s'] / 1e9:,.0f} GB/s"
    where = ", ".join([found["device"], found["date"], rate, *versions])
    parts.append(f"`python -m benchmarks.kernels`; {where}.")
    if "note" in found:
        parts.append(found["note"].replace("  ", " "))
    for suffix, chains in (("chain", "one chain"), ("chains", "several chains")):
        if (PICTURES / f"{name}-{suffix}.png").exists():
            picture = f"../pictures/{name}-{suffix}.png"
            parts.append(f"![Times of {chains} on {found['device']}]({picture})")
    return "\n\n".join(parts) + "\n"


def panels(found: Any) -> dict[str, list[Any]]:
    """Group the displayed rows of one device by tier and by data type or number of chains."""
    shown: dict[str, list[Any]] = {}
    for row in found["results"]:
        largest = max(x["V"] for x in found["results"] if x["tier"] == row["tier"])
        if row["V"] == largest and row.get("rejection", "typical") == "typical":
            detail = f"K = {row['K']}" if "K" in row else row["dtype"]
            shown.setdefault(f"{row['tier'].replace('->', '→')}, {detail}", []).append(row)
    return shown


def time_of(row: Any, mark: str = " (call)") -> str:
    """Format the microseconds of a graph replay, or of a call, with a mark, without a graph."""
    if "failed" in row:
        return "failed"
    time = f"{row['kernel s'] * 1e6:.1f}" if row["kernel s"] else f"{row['wall s'] * 1e6:.0f}{mark}"
    if "times one chain" in row:
        return f"{time}, {row['accepted']:.2f} accepted"
    return f"{time}, {row['of floor']:.0%}" if "of floor" in row else time
