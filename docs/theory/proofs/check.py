"""Check the proofs: compile them, compare what they compute with OTM, and look for assumptions.

Every `Definition NAME : Prop` of Statements.v must have a proof NAME_proved that assumes nothing.
Run by `make proofs`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import compare

HERE = Path(__file__).parent
PROOFS = (
    "Computable", "Statements", "Laws", "Residual", "Hall", "Cuts", "Prefixes", "Certificates",
    "KSeq", "Slots", "Computed", "Fractions", "Texts", "Blocks", "Best", "Examples",
    "TextExamples", "Compare",
)  # fmt: skip
EXAMPLES = ("Examples", "TextExamples")
CLOSED = "Closed under the global context"


def compiled(name: str) -> str:
    """Compile a file and return what it prints."""
    start = time.perf_counter()
    command = ["coqc", "-q", "-w", "none", "-Q", str(HERE), "OTM", str(HERE / f"{name}.v")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{name}.v does not compile:\n{result.stdout}{result.stderr}")
    print(f"{name}.v: {time.perf_counter() - start:.1f} s", flush=True)
    return result.stdout


def write_checked(statements: list[str]) -> None:
    """Write Checked.v, which prints what the proof of each statement assumes."""
    lines = [
        "(** Written by check.py: do not edit. *)",
        f"From OTM Require Import {' '.join(PROOFS)}.",
    ]
    for name in statements:
        lines += [f"Check ({name}_proved : {name}).", f"Print Assumptions {name}_proved."]
    lines += [f"Print Assumptions {name}." for name in examples()]
    (HERE / "Checked.v").write_text("\n".join(lines) + "\n", encoding="utf-8")


def examples() -> list[str]:
    """Names of the instances of the theorems."""
    text = "".join((HERE / f"{name}.v").read_text(encoding="utf-8") for name in EXAMPLES)
    return re.findall(r"^Example (\w+)", text, flags=re.MULTILINE)


def main() -> None:
    """Check all; the exit status says whether everything holds."""
    text = (HERE / "Statements.v").read_text(encoding="utf-8")
    statements = re.findall(r"^Definition (\w+) : Prop", text, flags=re.MULTILINE)
    for name in PROOFS:
        compiled(name)
    compare.main(HERE / "Instances.v")
    compiled("Instances")
    write_checked(statements)
    closed, expected = compiled("Checked").count(CLOSED), len(statements) + len(examples())
    if closed != expected:
        sys.exit(f"{expected - closed} proofs assume something: coqc Checked.v says what")
    print(f"{len(statements)} statements proved, {len(examples())} examples; none assumes anything")


if __name__ == "__main__":
    main()
