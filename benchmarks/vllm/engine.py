"""Local servers, started and stopped: vLLM's, and that of transformers."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 180
"""Maximum number of seconds for the start of a server."""

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",  # with tiny models, more threads are ten times slower
}

STEPS = 3
"""Number of drafts γ per step."""

NGRAM = {"method": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 1}


def draft_model(folder: Path) -> dict[str, Any]:
    """Return settings for a draft model that samples and keeps its probabilities."""
    kind = {"method": "draft_model", "draft_sample_method": "probabilistic"}
    return {**kind, "model": str(folder)}


@contextmanager
def vllm_server(
    target: Path, speculation: dict[str, Any] | None, rule: str | None
) -> Iterator[str]:
    """Serve a model by vLLM, with optional drafts and plug-in rule; yield the address."""
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(target)),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "64"),
        *("--max-num-seqs", "64", "--max-logprobs", "64", "--served-model-name", "target"),
    ]
    if speculation:
        config = {**speculation, "num_speculative_tokens": STEPS}
        command += ["--speculative-config", json.dumps(config)]
    with served(command, QUIET | ({"OTM_VLLM": rule} if rule else {})) as address:
        yield address


@contextmanager
def transformers_server() -> Iterator[str]:
    """Serve models by transformers, whose server has no speculation and no log-probabilities."""
    script = "from transformers.cli.transformers import main; main()"
    with served([sys.executable, "-c", script, "serve"], QUIET) as address:
        yield address


@contextmanager
def served(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Start a server on a free local port, wait until it answers, and end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env=os.environ | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its child processes end with it
        )
        try:
            if not answers(address, process):
                log.seek(0)
                raise RuntimeError(
                    f"the server did not start: {log.read()[-3000:].decode(errors='replace')}"
                )
            yield address
        finally:
            end_group(process)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its child processes, if some are still running."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(address: str, process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a server gets healthy before it ends or the time is over."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                if answer.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    return False


def post(address: str, path: str, body: dict[str, Any]) -> Any:
    """Send a request, and return the answer."""
    content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(address + path, content, kind)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def counters(address: str) -> dict[str, float]:
    """Return the counters of speculation: steps, drafted tokens, accepted tokens."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    names = {"drafts": "steps", "draft_tokens": "drafted", "accepted_tokens": "accepted"}
    found = re.findall(r"^vllm:spec_decode_num_(\w+?)_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
    return {names[name]: float(value) for name, value in found if name in names}
