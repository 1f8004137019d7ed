"""Programs that do not start, end, hang or write junk: one clear error, and no process is left."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otm.audit import lossless, process
from otm.audit.instances import INSTANCES
from otm.errors import InvalidInputError, OTMError, ProcessError
from tests.audit.programs.children import CHAIN, EACH, LOOP, RIGHT, is_running, python

FEW = [INSTANCES["rows differ"]]

PID = "import os, sys; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n')\n"


def audit(command: Sequence[str], **options: Any) -> Any:
    return lossless(process(command, **options), instances=FEW, examples=0, max_seconds=20)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("print('hello', flush=True); input()", "wrote 'hello', which is not a JSON object"),
        ("print('[1, 2]', flush=True); input()", r"wrote '\[1, 2\]', which is not a JSON object"),
        (EACH + "print('[' * 100_000, flush=True)", "which is not a JSON object"),
        (EACH + "os.write(1, bytes([255, 10]))", "which is not a JSON object"),
        (EACH + "answer(request['id'] - 1, [0])", "'id': 0.* in place of id 1; copy the id"),
        (EACH + "answer(str(request['id']), [0])", "'id': '1'.* in place of id 1"),
        (EACH + "answer(1, [0])", "'id': 1.* in place of id 2"),
        (EACH + "print('{\"tokens\": [0]}', flush=True)", "'tokens': .* in place of id 1"),
        (EACH + "answer(request['id'], 0)", "without a list of tokens"),
        (
            EACH + "sys.exit('line one\\nthe reason')",
            r"ended with exit status 1 without an answer; its last lines on standard error: "
            r'line one \| the reason; the request was {"id":1,"target":\[\[0.',
        ),
        ("input(); os.abort()", "was ended by the signal SIGABRT without an answer"),
        ("input(); print('par', end='')", "ended with exit status 0 .*; its last output was 'par'"),
        ("os.close(0); os.close(1); time.sleep(60)", "closed its standard output"),
        ("", "ended with exit status 0 without an answer"),
        ("print('busy', file=sys.stderr, flush=True); time.sleep(60)", "within 0.4 .*: busy; the"),
        (EACH + "time.sleep(60 * (request['id'] > 1)); answer(1, [0])", "within 0.3 .*--timeout"),
        ("os.write(1, b'{\"id\":'); time.sleep(60)", "it wrote .*id.* without a line end"),
    ],
)
def test_errors_of_a_program(code: str, says: str, tmp_path: Path) -> None:
    """Bugs: an endless wait, a verdict about a broken program, a zombie, a process that stays."""
    command = [*python(PID, CHAIN, code), str(tmp_path / "pid")]
    start = 0.4 if "busy" in code or "os.write(1, b'{" in code else 20
    with pytest.raises(ProcessError, match=f"^the program .*{says}"):
        audit(command, timeout=0.3, start_timeout=start)
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('model="draft"', "model=[]", 'the model is "target" or "draft"'),
        ('model="draft"', 'model="drafts"', 'the model is "target" or "draft"'),
        ("tokens=text, rows", "tokens=[5], rows", "the tokens are from 0 to 1"),
        ("rows=gamma + 1", "rows=gamma + 9", '"rows", if given, is from 1 to their number'),
        ("uniforms=2 * gamma + 1", "uniforms=0", '"uniforms": 3'),
        ("uniforms=2 * gamma + 1", "coins=1", '"uniforms": 3'),
        ('{"id": number, ', "{", '"uniforms": 3}, and ends with'),
        (
            "    text = list(prompt)",
            "    while True: ask(model='draft', tokens=[0])",
            "within 0.3 seconds",
        ),
    ],
)
def test_errors_of_a_loop(old: str, new: str, says: str) -> None:
    """Bugs: rows after tokens that do not exist; a loop that asks forever."""
    assert old in LOOP
    with pytest.raises(ProcessError, match=says):
        audit(python(LOOP.replace(old, new)), kind="loop", timeout=0.3, start_timeout=0.3)


def test_a_loop_that_needs_more_uniforms_than_a_run_may_have() -> None:
    """Bug: an answer to a run that was given up is taken for the answer to the next run."""
    endless = LOOP.replace("    text = list(prompt)", "    while True: ask(uniforms=4000)")
    with pytest.raises(InvalidInputError, match="a run needs 8,000 uniforms or more"):
        audit(python(endless), kind="loop")
    more = LOOP.replace("    text = list(prompt)", "    text = list(prompt); ask(uniforms=70)")
    verifier = process(python(more), kind="loop")
    report = lossless(verifier, instances=FEW, examples=0, method="Monte Carlo", max_runs=500)
    assert report.verdict == "undecided", report


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    """Bug: a traceback of `subprocess`."""
    with pytest.raises(ProcessError, match=r"'no-such-program' cannot be started: No such file"):
        audit(["no-such-program", "x"])
    with pytest.raises(ProcessError, match="cannot be started: Permission denied"):
        audit([str(tmp_path)])


def test_an_error_in_the_search_comes_once(tmp_path: Path) -> None:
    """Bug: Hypothesis shrinks the error, and starts the program again for each attempt."""
    starts = tmp_path / "starts"
    code = "open(sys.argv[1], 'a').write('x')\n" + EACH
    fails = 'assert max(map(max, request["target"])) < 1; '
    command = [*python(CHAIN, code, fails, RIGHT), str(starts)]
    with pytest.raises(ProcessError, match="AssertionError"):
        lossless(process(command), instances=FEW, examples=50)
    assert starts.read_text() == "x"


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ("[7]", "returned token 7, but the vocabulary has 2 tokens"),
        ("[-2]", "returned token -2, but the vocabulary has 2 tokens"),
        ("[0.0]", "returned 0.0 of type float as a token"),
        ("['a']", "returned 'a' of type str as a token"),
        ("[]", "returned no token"),
        ("[0] * 9", "returned 9 tokens; one run may return at most 2"),
    ],
)
def test_wrong_tokens_are_in_the_report_as_for_a_function(tokens: str, says: str) -> None:
    """Bug: a token outside the vocabulary ends the audit without a counterexample."""
    report = audit(python(CHAIN, EACH, f"answer(request['id'], {tokens})"))
    assert report.verdict == "not lossless"
    assert says in str(report)


def test_a_program_ends_with_the_audit_and_with_its_adapter(tmp_path: Path) -> None:
    """Bug: each audit leaves a process behind; a second audit of the same adapter fails."""
    command = [*python(PID, CHAIN, EACH, RIGHT), str(tmp_path / "pid")]
    verifier = process(command)
    for _ in range(2):
        assert lossless(verifier, instances=FEW, examples=0).lossless
        assert not is_running(int((tmp_path / "pid").read_text()))
    verifier.outputs(FEW[0], pytest.importorskip("numpy").full((1, 8), 0.5))
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    del verifier
    gc.collect()
    assert not is_running(pid)


def test_the_children_of_a_program_end_too(tmp_path: Path) -> None:
    """Bug: a wrapper such as `sh` ends, and the program that it has started stays."""
    start = "import subprocess\nchild = subprocess.Popen([sys.executable, '-c', 'while True: pass']"
    pid_file = "open(sys.argv[1], 'w').write(f'{child.pid}\\n')\n"
    command = python(CHAIN, start, ", stdin=-3, stdout=-3, stderr=-3)\n", pid_file, EACH, RIGHT)
    assert audit([*command, str(tmp_path / "pid")]).lossless
    pid = int((tmp_path / "pid").read_text())
    # An orphan may stay as a zombie, if nobody waits for it.
    state, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + 10
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        ("node verifier.js", {}, r"the command is 'node verifier.js'; give a list"),
        ([], {}, r"the command is \[\]; give a list"),
        ([""], {}, "give a list"),
        (["x", 3], {}, "give a list"),
        (["x"], {"timeout": 0}, "timeout = 0; it must be a number in"),
        (["x"], {"start_timeout": float("inf")}, "start_timeout = inf"),
        (
            ["x"],
            {"temperature": 0},
            "temperature = 0; it must be a number in .0.001, 1000.",
        ),
        (["x"], {"kind": "tree"}, "there is no kind of program 'tree'"),
        (["x"], {"randomness": "rng"}, "there is no randomness 'rng'"),
        (["x"], {"end": 1}, r"`max_tokens` and `end` are for loops, but the kind is 'chain'"),
        (["x"], {"kind": "loop", "max_tokens": 0}, "max_tokens = 0"),
        (["x"], {"kind": "loop", "end": -1}, "end = -1"),
    ],
)
def test_wrong_arguments(command: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OTMError, match=says):
        process(command, **options)


@pytest.mark.parametrize("output", ["None", "sp.DEVNULL"])
def test_children_of_a_program_that_ended_are_ended(output: str, tmp_path: Path) -> None:
    """Bugs: a child that stays; one that holds the output, so that the end looks like a wait."""
    code = f"""import subprocess as sp
child = sp.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout={output})
open(sys.argv[1], 'w').write(str(child.pid))
sys.exit(5)"""
    command = [*python(PID, code), str(tmp_path / "pid")]
    begun = time.monotonic()
    with pytest.raises(ProcessError, match="ended with exit status 5"):
        audit(command, start_timeout=20)
    assert time.monotonic() - begun < 10
    pid = int((tmp_path / "pid").read_text())
    while is_running(pid) and not is_zombie(pid):
        assert time.monotonic() - begun < 20
        time.sleep(0.02)


def is_zombie(pid: int) -> bool:
    """Whether a process has ended, but its new parent has not waited for it yet."""
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"
