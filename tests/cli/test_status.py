"""The whole program: statuses, pipes, terminals, Ctrl-C, what is not installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otm.cli import main
from otm.cli.status import status_of
from otm.errors import InvalidInputError

OTM = [sys.executable, "-m", "otm"]
SOLVE = ["solve", "--draft", "0.5,0.5", "--target", "0.3,0.7", "-k", "2"]


def test_help_goes_to_the_output_and_a_bare_command_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: a script that forgets the command goes on as if all were well."""
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert main([]) == 2
    assert capsys.readouterr().out == text
    for command in ("solve", "audit", "report", "decode"):
        assert command in text
        assert main([command, "--help"]) == 0
        assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["audit", "server"], ["audit-server"]])
def test_the_audit_of_a_server_has_one_name(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a help that says one name, and an error or a page that says another."""
    assert main([*words, "--help"]) == 0
    assert "Usage: otm audit server " in capsys.readouterr().out
    assert main(words) == 2
    assert "see otm audit server --help" in capsys.readouterr().err
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "audit server  " in text
    assert "audit-server" not in text


def test_version_and_unknown_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("otm ")
    assert main(["slove"]) == 2
    err = capsys.readouterr().err
    assert "slove" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InvalidInputError("two\nlines\x1b[31m"), 2, "otm: two lines\\x1b[31m\n"),
        (FileNotFoundError(2, "No such file", "a\nb"), 2, "otm: a b: No such file\n"),
        (MemoryError(), 2, "otm: out of memory\n"),
        (KeyboardInterrupt(), 130, "otm: interrupted\n"),
    ],
)
def test_errors_are_one_line_and_a_status(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: a message of several lines, or one that colours the terminal."""

    def fail() -> None:
        raise error

    assert status_of(fail) == status
    assert capsys.readouterr().err == line


def test_a_bug_of_our_own_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: a net so wide that nobody hears of what is broken."""
    assert status_of(lambda: 1 // 0) == 70  # nor 1 and 3, which are verdicts of an audit
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith(
        "otm: internal error: ZeroDivisionError: integer division or modulo by zero; please report "
        "it\n"
    )


def test_in_a_pipe_the_program_prints_plain_text_and_json() -> None:
    plain = subprocess.run([*OTM, *SOLVE, "--compare"], capture_output=True, check=True)
    assert b"\x1b" not in plain.stdout
    assert not plain.stderr
    done = subprocess.run([*OTM, *SOLVE, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout)["k"] == 2


def test_a_pipe_without_greek_letters() -> None:
    """Bug: a traceback for want of an α."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*OTM, *SOLVE], capture_output=True, check=True, env=environment)
    assert rb"\u03b1" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="pipes end in another way there")
def test_whoever_stops_reading_is_no_error() -> None:
    """Bug: `otm ... | head -1` ends in a traceback."""
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [*OTM, *SOLVE],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        env=environment,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes files")
def test_a_closed_output_is_no_error() -> None:
    """Bug: a traceback, with the status that means "not lossless" after an audit."""
    command = f"{sys.executable} -m otm solve --draft 0.5,0.5 --target 0.25,0.75 -k 2 >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def on_a_terminal(arguments: list[str], **environment: str) -> str:
    """Output of the program on a pseudo-terminal."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    cleared = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [*OTM, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=cleared | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # what Linux says at the end
            break
        if not part:
            break
        found += part
    os.close(ours)
    assert process.wait() == 0
    return found.decode()


def test_a_terminal_gets_tables_and_colours_unless_it_does_not_want_them() -> None:
    """Bug: NO_COLOR not respected, or tables nowhere."""
    coloured = on_a_terminal([*SOLVE, "--compare"])
    assert "─" in coloured
    assert "\x1b[1m" in coloured
    plain = on_a_terminal([*SOLVE, "--compare"], NO_COLOR="1", TERM="dumb")
    assert "\x1b" not in plain
    assert "optimal" in plain


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_is_one_line_and_status_130(tmp_path: Path) -> None:
    """Bug: a traceback of forty lines."""
    (tmp_path / "slow.py").write_text(
        "import time\nopen('started', 'w').close()\ntime.sleep(60)\nf = None\n"
    )
    process = subprocess.Popen(
        [*OTM, "audit", "slow:f"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while not (tmp_path / "started").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"otm: interrupted\n")


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_what_is_not_installed_is_named_with_what_to_install(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from otm.cli import main; "
    code += "sys.stdout.isatty = lambda: True; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *SOLVE]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        f'{package} is not installed; to use the command line: pip install "otm[cli]"'
        in done.stderr
    )
    assert done.stderr.count("\n") == 1


def test_importing_the_program_loads_neither_typer_nor_rich() -> None:
    code = "import sys, otm.cli, otm.__main__; print({'typer', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_help_loads_nothing_heavy() -> None:
    """Bug: a help that takes seconds, since every command loads what it works with."""
    heavy = ["torch", "matplotlib", "scipy", "highspy", "hypothesis", "joblib", "transformers"]
    code = f"""
import sys
from otm.cli import main
status = main(["--help"])
print(status, set({heavy!r}) & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.strip() == "0 set()"
