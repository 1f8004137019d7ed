"""What `make vllm` does besides vLLM: servers are started and ended, requirements chosen."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.engines import engine
from benchmarks.engines.install import LEFT_OUT, name_of

GUIDE = Path("docs/engines.md").read_text(encoding="utf-8")

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
METRICS = '''# HELP ...
vllm:spec_decode_num_drafts_total{engine="0",model_name="target"} 12.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="target"} 36.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="target"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 4.0
'''
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(METRICS.encode() if self.path == '/metrics' else b'')
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_a_server_is_started_read_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a process that is left behind, and counters that are read by another name."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def keep(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(engine.subprocess, "Popen", keep)
    with engine.served([sys.executable, "-c", SERVER], {}) as address:
        assert engine.counters(address) == {"steps": 12, "drafted": 36, "accepted": 7}
    assert started[0].poll() is not None


def test_a_server_that_ends_says_why() -> None:
    with (
        pytest.raises(RuntimeError, match="no such model"),
        engine.served([sys.executable, "-c", "raise SystemExit('no such model')"], {}),
    ):
        pass


def test_names_of_requirements() -> None:
    """Catches a package that is left out by half of its name, or torch that comes back in."""
    for line in ("torchvision; platform_machine != 's390x'", "Torchaudio==2.0", "torch>=2"):
        assert name_of(line) in LEFT_OUT
    for line in ("torch-memory-saver", "transformers<5.20,>=5.16", "fastapi[standard]>=0.1"):
        assert name_of(line) not in LEFT_OUT
    assert name_of("fastapi[standard]>=0.1") == "fastapi"


def test_the_guide_shows_its_record() -> None:
    """Bug: verdicts and times of another run, or times that name no processor."""
    found = json.loads(Path("benchmarks/results/vllm.json").read_text(encoding="utf-8"))
    assert "On {cores} cores of {cpu}, vLLM ".format(**found["machine"]) in GUIDE
    for served in found["servers"]:
        report, name = served["report"], served["server"].replace("transformers", "transformers, ")
        line = next(line for line in GUIDE.splitlines() if line.startswith(f"| {name}"))
        assert f"| {report['verdict']} | {report['requests']:,} |" in line
        if report["verdict"] == "not lossless":
            value = re.search(r"e-value (\d)·10\^(\d+)", line)
            assert value
            assert 0 <= report["log10_e_value"] - math.log10(int(value[1])) - int(value[2]) < 1
        else:
            assert f"| {report['tv_bound']:.3f} |" in line
    for step in found["step"]:
        measured = (step[of] for of in ("vLLM", "chain", "block"))
        times = [f"{each['ms']:.0f} ({each['tokens']:.2f})" for each in measured]
        assert GUIDE.count(f"\n| {' | '.join([step['drafts'], *times])} |") == 1


def test_the_guide_says_what_the_plug_in_takes() -> None:
    from otm.integrations.vllm import plugin

    for rule in plugin.RULES:
        assert f"| `{rule}` |" in GUIDE
    assert f"{plugin.VARIABLE}=block vllm serve" in GUIDE
