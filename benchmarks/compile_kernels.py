"""Compile every Triton kernel without a GPU, and report registers, spills and shared memory.

    python -m benchmarks.compile_kernels [--targets NAME ...] [--uses NAME ...] [--output FOLDER]
                                         [--add]

The program calls the verifiers on tensors without memory (torch's device "meta").  It does not
launch their kernels, but compiles them with the types, constants and alignments of a launch.  Each
number is for one thread or one program.  Triton's own ptxas reports the numbers, and LLVM those of
gfx942.  All types are compiled for sm_90, and only fp32 for the other targets.

`--add` replaces only the rows of `--uses` in the saved results, if the same Triton compiled them.

Even if registers are free, ptxas may spill a few values so that one more program fits on a
multiprocessor; its versions differ in this.  So a kernel that spills is compiled again with the
largest allowed number of registers, which shows whether its values fit.

All kernels make the decisions of the references bit for bit, so the compiled code must round
exactly as written.  The program fails if the PTX of a kernel has a fused multiply-add, an
approximate operation, or an operation that flushes small numbers to 0.  Code for gfx942 is not
checked, because its divisions consist of such operations.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

# The interpreter does not compile, so it must be off before Triton is imported.
os.environ["TRITON_INTERPRET"] = "0"

try:
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
except ImportError as error:
    print(f"cannot compile without torch and Triton ({error})")
    sys.exit()

from otm.coupled.clocks import triton as clocks
from otm.kernels import (
    SparseDrafts,
    verify_logits,
    verify_probs,
    verify_tree_logits,
    verify_tree_probs,
)
from otm.kernels.chain import triton as chain
from otm.kernels.common import one_chain, runtime
from otm.kernels.common.distributions import triton as distributions
from otm.kernels.multi_draft import triton as multi_draft
from otm.kernels.registry import uniforms_per_position
from otm.kernels.tree import triton as tree
from otm.kernels.tree import triton_rows
from otm.kernels.tree.verify import WALK, WALK_UNIFORMS
from otm.kernels.tree_walk import triton as tree_walk
from otm.kernels.walk_and_keep import triton as grid_walk_and_keep
from otm.rules import names

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# For this target all types are compiled, and a negative control tests the check of rounding.
ALL_TYPES = "sm_90"
RESULTS = Path(__file__).parent / "results"
SHAPE = (8, 4, 128_256)  # B, γ and V
CHAINS, MOST_CHAINS = 4, 64  # K
LISTED = 50  # m, of sparse drafts
SMALLEST = (1, 1, 1)  # Triton makes sizes of 1 constants; the interpreter does not
TYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}
MOST_REGISTERS = 255  # per thread, on every architecture
FLOAT_OPERATION = re.compile(r"^\s+(?:@\S+\s+)?([a-z]\w*(?:\.\w+)*\.f(?:16|32|64))\s", re.MULTILINE)
INEXACT = re.compile(r"^(fma|mad)\.|\.(approx|full|ftz)\b")
NAMES = {
    **{dtype: f"*{name}" for name, dtype in TYPES.items()},
    torch.int64: "*i64",
    torch.uint8: "*u8",
}
COMPILED: dict[tuple[str, str, bool, int | None], dict[str, Any]] = {}
"""Resources of compiled programs; several launches share a program."""


class Launch(NamedTuple):
    """A kernel and its arguments."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


@contextlib.contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Record kernel launches instead of running them."""
    launches: list[Launch] = []

    def record(kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
        launches.append(Launch(kernel, arguments, constants))

    with contextlib.ExitStack() as stack:
        verifying = (clocks, grid_walk_and_keep, multi_draft, one_chain, tree, tree_walk)
        for module in (distributions, triton_rows, *verifying):
            stack.enter_context(mock.patch.object(module, "launch", record))
        for module in (clocks, multi_draft, one_chain, tree, tree_walk):
            stack.enter_context(mock.patch.object(module, "check_device"))
        yield launches


def all_uses(types: tuple[str, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each use of the verifiers: its name, the verifier and its arguments."""
    for shape, of_shape in ((SHAPE, types), (SMALLEST, ("fp32",))):
        for name in of_shape:
            each = (of(shape, TYPES[name]) for of in (uses, uses_of_clocks, uses_of_trees))
            for use, verify, arguments in itertools.chain.from_iterable(each):
                yield f"{use}, {name}, V = {shape[2]:,}", verify, arguments


def specialisations(
    only: list[str] | None, types: tuple[str, ...]
) -> Iterator[tuple[str, list[Launch]]]:
    """Yield each use by name with its launches; `only` selects names or their first parts."""
    for use, verify, arguments in all_uses(types):
        if only is None or any(f"{use},".startswith(f"{name},") for name in only):
            with recorded() as launches:
                verify(*arguments)
            yield use, launches


def uses(shape: tuple[int, int, int], dtype: torch.dtype) -> Iterator[tuple[str, Any, Any]]:
    """Yield calls of the verifiers by name, with arguments of the shape (B, γ, V)."""

    def on_meta(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    batch, gamma, size = shape
    options: dict[str, Any] = {"backend": "triton", "validate": False}
    temperature = on_meta(batch, dtype=torch.float32)
    tokens = on_meta(batch, gamma, dtype=torch.int64)
    uniforms = on_meta(batch, gamma + 2, dtype=torch.float64)
    target = on_meta(batch, gamma + 1, size, dtype=dtype)
    draft = on_meta(batch, gamma, size, dtype=dtype)
    one_chain = names("kernel", several=False, backend="triton")
    for drafts, rows in (("drawn", draft), ("one-hot", None)):
        arguments: Any = (target, rows, tokens, uniforms)
        for rule in one_chain:
            verify = partial(verify_probs, rule=rule, **options)
            yield f"{rule}, probabilities, {drafts}", verify, arguments
        for rule in one_chain:
            verify = partial(verify_logits, rule=rule, temperature=temperature, **options)
            yield f"{rule}, logits, {drafts}", verify, arguments
    offsets = on_meta(batch + 1, dtype=torch.int64)
    total = batch * gamma
    lists = on_meta(total, LISTED, dtype=torch.int64), on_meta(total, LISTED, dtype=dtype)
    packed = tokens.flatten(), uniforms
    arguments = (on_meta(total + batch, size, dtype=dtype), SparseDrafts(*lists), *packed)
    for rule in one_chain:
        verify = partial(verify_probs, rule=rule, offsets=offsets, **options)
        yield f"{rule}, probabilities, sparse and packed", verify, arguments
        further = {"temperature": temperature, "offsets": offsets}
        verify = partial(verify_logits, rule=rule, **further, **options)
        yield f"{rule}, logits, sparse and packed", verify, arguments
    arguments = (target, draft, tokens, uniforms)
    sigmoids = partial(chain.verify, kind="sigmoid", scales=(-1e4, 1e4))
    yield "chain, sigmoid, drawn", sigmoids, arguments

    for count, drafts in ((min(CHAINS, batch), "drawn"), (MOST_CHAINS, f"{MOST_CHAINS} chains")):
        if batch < CHAINS < count:
            continue
        rows = (
            on_meta(batch, count, gamma + 1, size, dtype=dtype),
            on_meta(batch, count, gamma, size, dtype=dtype),
            on_meta(batch, count, gamma, dtype=torch.int64),
        )
        for rule in names("kernel", several=True, backend="triton"):
            number = gamma * uniforms_per_position(rule, count) + 2
            arguments = (*rows, on_meta(batch, number, dtype=torch.float64))
            verify = partial(verify_probs, rule=rule, **options)
            yield f"{rule}, probabilities, {drafts}", verify, arguments
            verify = partial(verify_logits, rule=rule, temperature=temperature, **options)
            yield f"{rule}, logits, {drafts}", verify, arguments
            if drafts != "drawn":
                continue
            of_lists = (*rows[2].shape, LISTED)
            lists = on_meta(*of_lists, dtype=torch.int64), on_meta(*of_lists, dtype=dtype)
            arguments = (rows[0], SparseDrafts(*lists), *arguments[2:])
            counted = on_meta(*rows[2].shape, dtype=torch.bool)
            verify = partial(verify_probs, rule=rule, counted=counted, **options)
            yield f"{rule}, probabilities, sparse tree", verify, arguments
            further = {"temperature": temperature, "counted": counted}
            verify = partial(verify_logits, rule=rule, **further, **options)
            yield f"{rule}, logits, sparse tree", verify, arguments


def uses_of_clocks(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> Iterator[tuple[str, Any, Any]]:
    """Yield calls for the first rings of one list and of several, for the shape (B, γ, V)."""
    batch, gamma, size = shape
    target = torch.empty((batch, gamma + 1, size), dtype=dtype, device="meta")
    positions = torch.empty((batch, gamma + 1), dtype=torch.int64, device="meta")
    for count, lists in ((1, "one list"), (MOST_CHAINS, f"{MOST_CHAINS} lists")):
        if batch > 1 or count == 1:
            rings = partial(clocks.first_rings, count=count)
            arguments = (target, positions[:, 0].contiguous(), positions, positions)
            yield f"clocks, probabilities, {lists}", rings, arguments


def uses_of_trees(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> Iterator[tuple[str, Any, Any]]:
    """Yield calls of the tree verifiers for γ nodes, one certain or two sampled drafts a level."""
    batch, nodes, size = shape

    def on_meta(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    drafts, parents = on_meta(batch, nodes), on_meta(batch, nodes)
    target = on_meta(batch, nodes + 1, size, dtype=dtype)
    options: dict[str, Any] = {"backend": "triton", "validate": False}
    warm = partial(verify_tree_logits, temperature=on_meta(batch, dtype=torch.float32), **options)
    for name, draft, tests in (("certain", None, 1), ("sampled", target, 2)):
        uniforms = on_meta(batch, 1 if draft is None else 2, tests, dtype=torch.float64)
        arguments = (target, draft, drafts, parents, uniforms)
        yield f"tree, probabilities, {name}", partial(verify_tree_probs, **options), arguments
        yield f"tree, logits, {name}", warm, arguments
    for name, draft in (("certain", None), ("sampled", target)):
        uniforms = on_meta(batch, 2, WALK_UNIFORMS, dtype=torch.float64)
        arguments = (target, draft, drafts, parents, uniforms)
        verify = partial(verify_tree_probs, rule=WALK, **options)
        yield f"tree walk and keep, probabilities, {name}", verify, arguments
        yield f"tree walk and keep, logits, {name}", partial(warm, rule=WALK), arguments


def compile_launch(
    launch: Launch, target: str, *, fusion: bool = False, most: int | None = None
) -> dict[str, Any]:
    """Compile as the launch would, optionally with fusion or with at most `most` registers.

    Return the registers, spills and shared memory of the program.
    """
    names = launch.kernel.arg_names
    values = dict(zip(names, launch.arguments, strict=False)) | launch.constants
    signature, constants, attributes = {}, {}, {}
    for index, name in enumerate(names):
        value, kind = values[name], "constexpr"
        parameter = launch.kernel.params[index]
        if isinstance(value, torch.Tensor):
            kind = NAMES[value.dtype]
        elif isinstance(value, float):
            kind = "fp32"
        elif parameter.is_constexpr or (value == 1 and not parameter.do_not_specialize):
            constants[(index,)] = value  # Triton itself treats a 1 as a constant
        else:
            kind = "i32" if abs(value) < 2**31 else "i64"
        signature[name] = kind
        aligned = kind in {"i32", "i64"} and value % 16 == 0 and not parameter.do_not_specialize
        if kind.startswith("*") or aligned:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(launch.kernel, signature, constants, attributes)
    warps = runtime.warps(launch.kernel, target)
    options = {"num_warps": warps, "enable_fp_fusion": fusion}
    if most is not None:
        options["maxnreg"] = most
    key = (target, source.hash(), fusion, most)
    if key in COMPILED:
        return COMPILED[key]
    compiled = triton.compile(source, target=TARGETS[target], options=options)
    found: dict[str, Any] = {
        "kernel": launch.kernel.__name__,
        "threads": TARGETS[target].warp_size * warps,
    }
    if "cubin" in compiled.asm:
        found |= resources(compiled.asm["cubin"]) | {"inexact": inexact(compiled.asm["ptx"])}
    else:
        found |= resources_amd(compiled.asm["amdgcn"])
    found["shared bytes"] = max(found["shared bytes"], compiled.metadata.shared)
    if found["spilled bytes"] and "cubin" in compiled.asm and most is None:
        roomy = compile_launch(launch, target, fusion=fusion, most=MOST_REGISTERS)
        found["with all registers"] = {x: roomy[x] for x in ("registers", "spilled bytes")}
    COMPILED[key] = found
    return found


def inexact(ptx: str) -> list[str]:
    """Return the floating-point operations of PTX code that do not round as written.

    ptxas does not add such operations, because Triton also turns off its fusion.
    """
    found = set(FLOAT_OPERATION.findall(ptx))
    return sorted(name for name in found if INEXACT.search(name))


def check(rows: list[dict[str, Any]], fused: dict[str, Any]) -> None:
    """Exit if a kernel is inexact, or if the check does not detect the control with fusion."""
    if fused and not any(name.startswith("fma.") for name in fused["inexact"]):
        raise SystemExit(f"the check cannot detect fusion: {fused['kernel']} has no fma")
    looked_at = [row for row in rows if "inexact" in row]
    wrong = [row for row in looked_at if row["inexact"]]
    for row in wrong:
        print("not exact: {kernel} of {use}: {inexact}".format(**row))
    if wrong:
        raise SystemExit(f"{len(wrong)} kernels do not round as they are written")
    print(f"{len(looked_at)} kernels round as they are written")


def resources(cubin: bytes) -> dict[str, int]:
    """Return registers and spilled bytes of a thread, and shared memory of a program."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        command = [tool, "--dump-resource-usage", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"(\w+):(\d+)", text))
    return {
        "registers": int(found["REG"]),
        "spilled bytes": int(found["STACK"]) + int(found["LOCAL"]),
        "shared bytes": int(found["SHARED"]),
    }


def resources_amd(assembly: str) -> dict[str, int]:
    """Return the resources of an AMD program: vector registers, and the memory of a thread.

    A register spilled to a register of another kind also counts, as four bytes.
    """
    found = {x: int(n) for x, n in re.findall(r"\.(\w+):\s+(\d+)$", assembly, re.MULTILINE)}
    spilled = 4 * (found["vgpr_spill_count"] + found["sgpr_spill_count"])
    return {
        "registers": found["vgpr_count"],
        "spilled bytes": max(spilled, found["private_segment_fixed_size"]),
        "shared bytes": found["group_segment_fixed_size"],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument(
        "--uses",
        nargs="+",
        metavar="NAME",
        help="only these uses, by name or first part; not saved",
    )
    parser.add_argument("--add", action="store_true", help="save the rows of --uses")
    parser.add_argument("--output", type=Path, help="folder for the results")
    options = parser.parse_args(arguments)
    folder = options.output or (None if options.uses and not options.add else RESULTS)
    for target in options.targets:
        rows = compile_for(target, options.uses)
        if folder:
            record = {
                "target": target,
                "triton": version("triton"),
                "B": SHAPE[0],
                "gamma": SHAPE[1],
                "block": runtime.BLOCK,
                "results": rows,
            }
            path = folder / f"kernels-{target.replace('_', '')}.json"
            if options.add:
                record["results"] = merged(record, path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"written to {path}")


def merged(record: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return the rows of a saved record, with new rows in the place of old ones of these uses."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    old, new = saved.pop("results"), record["results"]
    if saved != {name: value for name, value in record.items() if name != "results"}:
        raise SystemExit(f"cannot add to {path}: {saved} differs; compile all uses instead")
    added = {row["use"] for row in new}
    rows = [row for row in old if row["use"] not in added] + new
    order = {use: place for place, (use, _, _) in enumerate(all_uses(tuple(TYPES)))}
    return sorted(rows, key=lambda row: order[row["use"]])


def compile_for(target: str, only: list[str] | None) -> list[dict[str, Any]]:
    """Compile all uses, or only some, for a target, and check how they round."""
    rows: list[dict[str, Any]] = []
    fused = next((row for key, row in COMPILED.items() if key[2]), {})  # one control is enough
    types = tuple(TYPES) if target == ALL_TYPES else ("fp32",)
    for use, launches in specialisations(only, types):
        print(f"{use}, {target}")
        for launch in launches:
            row = compile_launch(launch, target)
            print(
                "  {kernel:<20}{registers:>4} registers{spilled bytes:>5} B spilled".format(**row)
            )
            rows.append({"use": use, **row})
            if launch.kernel.__name__ == "make_tables" and target == ALL_TYPES and not fused:
                fused = compile_launch(launch, target, fusion=True)
    check(rows, fused)
    return rows


if __name__ == "__main__":
    main()
