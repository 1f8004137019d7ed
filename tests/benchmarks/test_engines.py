"""What `make vllm` and `make llama` do besides their engines: servers, settings, records."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.engines import __main__ as program
from benchmarks.engines import audits, engine, real
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


def test_the_servers_of_a_model_without_a_draft_model() -> None:
    """Catches a draft model that does not exist, and a rule that no server has."""
    subject = audits.Subject(Path("model"), None, real.PROMPTS, real.SAMPLING, real.SIZE)
    assert [str(server) for server in subject.servers] == [
        "no speculation",
        "n-grams, vLLM itself",
        "n-grams, OTM chain",
        "n-grams, OTM block",
    ]
    assert [server.should_be_lossless for server in subject.servers] == [True, False, True, True]


def test_only_the_server_with_lookup_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches two servers without drafts, and a check of health at an address that has none."""
    commands: list[list[str]] = []

    @contextmanager
    def keep(command: list[str], environment: dict[str, str], health: str) -> Iterator[str]:
        commands.append(command)
        yield health

    monkeypatch.setattr(engine, "served", keep)
    for lookup in (False, True):
        with engine.llama_server(Path("python"), Path("x.gguf"), real.SIZE, lookup=lookup) as path:
            assert path == "/v1/models"
    assert ["--draft_model" in command for command in commands] == [False, True]
    assert all("--logits_all" in command for command in commands)


def test_a_copy_with_neutral_settings(tmp_path: Path) -> None:
    """Catches settings that are written over the user's model, and lost end tokens."""
    folder = tmp_path / "model"
    folder.mkdir()
    settings = folder / "generation_config.json"
    settings.write_text('{"eos_token_id": 2}')
    copy = real.with_plain_sampling(folder, tmp_path / "copy")
    assert json.loads(settings.read_text()) == {"eos_token_id": 2}
    changed = json.loads((copy / "generation_config.json").read_text())
    assert changed == {"eos_token_id": 2, "do_sample": True, "top_k": 0, "top_p": 1.0}


def test_the_record_of_the_real_model_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches one part of `make vllm` that deletes the records of the others."""
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    program.save({"real": []}, 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["vllm-real.json"]
    program.save({"step": []}, 1.0)
    assert "real" not in json.loads((tmp_path / "vllm.json").read_text(encoding="utf-8"))


def test_a_server_that_stops_answering_has_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches an error of the last server that loses the records of all."""
    record = audits.audited("gone", "http://127.0.0.1:9", lossless=True, retries=0)
    assert (record["server"], record["right"]) == ("gone", False)
    assert "cannot be reached" in record["error"]
    assert record["error"] in capsys.readouterr().out


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
    assert "on {cores} cores of {cpu} with vLLM ".format(**found["machine"]) in GUIDE
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
