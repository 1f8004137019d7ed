"""Local servers, started and stopped: those of vLLM, transformers and llama-cpp-python."""

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
from typing import Any, NamedTuple

PATIENCE = 600
"""Maximum number of seconds for the start of a server."""

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
}

STEPS = 3
"""Number of drafts γ per step."""


class Size(NamedTuple):
    """Limits of a server.

    Attributes
    ----------
    length : int
        Number of tokens of a prompt and its answer.
    listed : int
        Length of a list of log-probabilities.
    threads : int
        Number of threads.
    """

    length: int
    listed: int
    threads: int


TINY = Size(64, 64, 1)
"""Limits for tiny models, with which more threads are ten times slower."""

NGRAM = {"method": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 1}


def draft_model(folder: Path) -> dict[str, Any]:
    """Return settings for a draft model that samples and keeps its probabilities."""
    kind = {"method": "draft_model", "draft_sample_method": "probabilistic"}
    return {**kind, "model": str(folder)}


@contextmanager
def vllm_server(
    target: Path, speculation: dict[str, Any] | None, rule: str | None, size: Size = TINY
) -> Iterator[str]:
    """Serve a model by vLLM, with optional drafts and plug-in rule; yield the address."""
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(target)),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", str(size.length)),
        *("--max-num-seqs", "64", "--max-logprobs", str(size.listed)),
        *("--served-model-name", "target"),
    ]
    if speculation:
        config = {**speculation, "num_speculative_tokens": STEPS}
        command += ["--speculative-config", json.dumps(config)]
    environment = threads(size) | ({"OTM_VLLM": rule} if rule else {})
    with served(command, QUIET | environment) as address:
        yield address


@contextmanager
def transformers_server(size: Size = TINY) -> Iterator[str]:
    """Serve models in float32 by transformers, whose server gives neither drafts nor log-probs."""
    script = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", script, "serve", "--dtype", "float32"]
    with served(command, QUIET | threads(size)) as address:
        yield address


@contextmanager
def llama_server(python: Path, model: Path, size: Size, *, lookup: bool) -> Iterator[str]:
    """Serve a GGUF file by llama-cpp-python, with or without drafts from the text so far.

    The server is in another environment than this program, whose Python is `python`.
    """
    command = [
        *(str(python), "-m", "llama_cpp.server", "--model", str(model), "--logits_all", "true"),
        *("--n_ctx", str(size.length), "--n_threads", str(size.threads)),
        *("--n_threads_batch", str(size.threads), "--verbose", "false"),
    ]
    if lookup:
        command += ["--draft_model", "prompt-lookup-decoding"]
        command += ["--draft_model_num_pred_tokens", str(STEPS)]
    with served(command, {}, health="/v1/models") as address:
        yield address


def threads(size: Size) -> dict[str, str]:
    """Return the environment that limits the threads of a server with torch."""
    return {"OMP_NUM_THREADS": str(size.threads)}


@contextmanager
def served(
    command: list[str], environment: dict[str, str], health: str = "/health"
) -> Iterator[str]:
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
            if not answers(address + health, process):
                log.seek(0)
                raise RuntimeError(
                    f"the server did not start: {log.read()[-3000:].decode(errors='replace')}"
                )
            yield address
        except Exception as error:
            log.seek(0)
            error.add_note(f"the server wrote: {log.read()[-3000:].decode(errors='replace')}")
            raise
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
            with urllib.request.urlopen(address, timeout=5) as answer:
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


def metrics(address: str) -> dict[str, float]:
    """Return the metrics of a server of vLLM by name; those of several labels are summed."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for name, value in re.findall(r"^vllm:(\w+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def counters(address: str) -> dict[str, float]:
    """Return the counters of speculation: steps, drafted tokens, accepted tokens."""
    names = {"drafts": "steps", "draft_tokens": "drafted", "accepted_tokens": "accepted"}
    found = metrics(address)
    prefix, suffix = "spec_decode_num_", "_total"
    return {
        short: found[f"{prefix}{name}{suffix}"]
        for name, short in names.items()
        if f"{prefix}{name}{suffix}" in found
    }
