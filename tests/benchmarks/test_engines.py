"""What `make vllm` does besides vLLM: servers are started and ended, requirements chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.engines import engine
from benchmarks.engines.install import LEFT_OUT, name_of

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


def test_the_guide_says_what_the_plug_in_takes() -> None:
    from otm.integrations.vllm import plugin

    guide = Path("docs/engines.md").read_text(encoding="utf-8")
    for rule in plugin.RULES:
        assert f"| `{rule}` |" in guide
    assert f"{plugin.VARIABLE}=block vllm serve" in guide
