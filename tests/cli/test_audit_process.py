"""``otm audit process``: verdicts as statuses, options of the program, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otm.cli import main
from tests.audit.programs.children import CHAIN, EACH, RIGHT, is_running, python, wait_for_pid

pytest.importorskip("hypothesis")

QUICK = ["audit", "process", "--slow"]
ACCEPTS_ALL = python(CHAIN, EACH, "answer(request['id'], [*request['tokens'], 0])")


def test_verdicts_are_statuses(capfd: pytest.CaptureFixture[str]) -> None:
    """Bug: what the program writes to standard error ends up on the terminal, line by line."""
    noise = "sys.stderr.write('noise\\n'); "
    assert main([*QUICK, "--", *python(CHAIN, EACH, noise, RIGHT)]) == 0
    out, err = capfd.readouterr()
    assert "lossless on everything tried" in out
    assert "noise" not in out + err
    assert main([*QUICK, "--json", *ACCEPTS_ALL]) == 1
    assert json.loads(capfd.readouterr().out)["verdict"] == "not lossless"
    assert main([*QUICK, "--max-runs", "10", *python(CHAIN, EACH, RIGHT)]) in {2, 3}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-program"], "'no-such-program' cannot be started"),
        (python("print('hello')"), "wrote 'hello', which is not a JSON object"),
        (["--kind", "tree", "x"], "there is no kind of program 'tree'"),
        (["--timeout", "0", "x"], "timeout = 0"),
        ([], "Missing argument 'COMMAND"),
    ],
)
def test_errors_are_one_line_and_status_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a broken program counts as a verifier that is not lossless."""
    assert main([*QUICK, *words]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_words_after_the_program_belong_to_it(dashes: list[str], tmp_path: Path) -> None:
    """Bug: the command reads an option of the program as its own, or as a word for a shell."""
    code = "import json, sys\njson.dump(sys.argv[1:], open(sys.argv[1], 'w'))"
    words = [str(tmp_path / "words"), "--kind", "loop", "--json", "-h", "$HOME; exit 1", "--"]
    assert main([*QUICK, *dashes, *python(code), *words]) == 2
    assert json.loads((tmp_path / "words").read_text()) == words


def test_the_names_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["audit", "process"], ["audit-process"]):
        assert main([*words, "--help"]) == 0
        text = capsys.readouterr().out
        assert "Usage: otm audit process [OPTIONS]" in text
        assert '{"id":7,"tokens":[0,1]}\n' in text


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_program_too(sent: signal.Signals, tmp_path: Path) -> None:
    """Bug: the program goes on after Ctrl-C or `timeout`, or writes its own traceback."""
    code = "open(sys.argv[1], 'w').write(f'{os.getpid()}\\n')\nwhile True: time.sleep(1)"
    command = [*python(CHAIN, code), str(tmp_path / "pid")]
    words = [sys.executable, "-m", "otm", "audit", "process", *command]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as otm:
        pid = wait_for_pid(tmp_path / "pid", 60)
        # Give the audit time to send its first request.
        time.sleep(0.2)
        otm.send_signal(sent)
        _, err = otm.communicate(timeout=60)
    assert otm.returncode == 130
    assert err.endswith("otm: interrupted\n")
    assert not is_running(pid)
