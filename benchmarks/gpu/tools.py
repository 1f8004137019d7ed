"""Other programs: the kernels' tests on the GPU, and compute-sanitizer."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.gpu.environment import ROOT, Row
from benchmarks.gpu.inputs import by_kernels, by_numpy, make
from benchmarks.gpu.settings import TYPES, Setting

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
UNDER = "benchmarks.gpu.tools"
SECONDS = {"a file of tests": 420.0, "a tool": 240.0}
MOST = 20


def tests(setting: Setting) -> Iterator[Row]:
    """Run the kernels' tests on the GPU, one process per file, so that a crash ends only one."""
    missing = [name for name in ("pytest", "hypothesis") if find_spec(name) is None]
    if missing:
        yield {"case": "tests", "passed": None, "note": f"{' and '.join(missing)} not installed"}
        return
    for chosen in setting.tests or files():
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            options = ["-q", "-p", "no:cacheprovider", "-W", "default", f"--junitxml={report}"]
            if find_spec("xdist") and not setting.rehearsal:
                options += ["-n", "4", "--dist", "worksteal"]
            command = [sys.executable, "-m", "pytest", *options, *chosen]
            code, output, seconds = run(command, setting, SECONDS["a file of tests"])
            row: Row = {"case": chosen[0], "passed": code == 0, "seconds": seconds}
            if report.exists():
                row |= of_report(report)
            else:
                row |= {"note": f"exit code {code}", "output": output[-4_000:]}
        yield row


def files() -> list[tuple[str, ...]]:
    """Return arguments of pytest: GPU-only tests by file first, then all CPU tests at once."""
    folder = ROOT / "tests" / "kernels"
    all_files = [*folder.rglob("test_*.py"), *(ROOT / "tests/coupled/clocks").glob("test_*.py")]
    of_triton = [x for x in all_files if "triton" in x.stem or x.parent.name == "compiled"]
    of_triton.sort(key=lambda x: (x.stem != "test_on_gpu", x))
    each = [(path.relative_to(ROOT).as_posix(),) for path in of_triton]
    rest = sorted(x.relative_to(ROOT).as_posix() for x in {*all_files} - {*of_triton})
    return [*each, tuple(rest)]


def of_report(path: Path) -> Row:
    """Count the outcomes in pytest's report, and name the failed tests."""
    suites = ElementTree.parse(path).getroot().iter("testsuite")
    kinds = ("tests", "failures", "errors", "skipped")
    counts = dict.fromkeys(kinds, 0)
    wrong = []
    for suite in suites:
        for kind in kinds:
            counts[kind] += int(suite.get(kind, 0))
        for case in suite.iter("testcase"):
            for outcome in (*case.iter("failure"), *case.iter("error")):
                message = str(outcome.get("message"))[:400]
                wrong.append(f"{case.get('classname')}::{case.get('name')}: {message}")
    note = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return {"note": note, **counts, "wrong": wrong[:MOST]}


def sanitizer(setting: Setting) -> Iterator[Row]:
    """Run the kernels under each tool of compute-sanitizer, after a run that compiles them."""
    program, *rest = setting.sanitizer
    folders = [os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"]
    if home := os.environ.get("CUDA_HOME"):
        folders.append(f"{home}/bin")
    if (path := shutil.which(program, path=os.pathsep.join(folders))) is None:
        yield {"case": "compute-sanitizer", "passed": None, "note": "not installed"}
        return
    target = [sys.executable, "-m", UNDER]
    if not setting.rehearsal:
        code, output, seconds = run(target, setting, SECONDS["a tool"])
        yield {"case": "without it", "passed": code == 0, "output": output[-2_000:], "s": seconds}
    for tool in TOOLS:
        options = ["--tool", tool, "--print-limit", str(MOST), "--error-exitcode", "3"]
        options += ["--show-backtrace", "no"]
        code, output, seconds = run([path, *rest, *options, *target], setting, SECONDS["a tool"])
        marked = [line for line in output.splitlines() if line.startswith("=========")]
        summary = next((line for line in reversed(marked) if "SUMMARY" in line), "")
        unsupported = "not supported" in output and not summary
        row: Row = {"case": tool, "passed": code == 0 and bool(summary), "seconds": seconds}
        row["note"] = summary.strip("= ") or (marked or [f"exit code {code}"])[-1].strip("= ")
        if unsupported:
            row["passed"] = None
        if not row["passed"]:
            row["output"] = output[-8_000:]
        yield row


def run(command: list[str], setting: Setting, limit: float) -> tuple[int | None, str, float]:
    """Run a program in the checkout; return exit code (None at the limit), output and seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "TRITON_INTERPRET": "1" if setting.rehearsal else "0",
        # Every tensor has separate memory, so that the sanitizer detects a read beyond its end.
        **({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if UNDER in command else {}),
    }
    begun, code = time.perf_counter(), None
    with tempfile.TemporaryFile() as file:  # a pipe would wait for child processes
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            ).returncode
        file.seek(0)
        output = file.read().decode(errors="replace")
    return code, output, time.perf_counter() - begun


def once(setting: Setting) -> int:
    """Run every kernel on small inputs, and count the sequences with wrong decisions."""
    wrong, (batch, size) = 0, setting.checked
    shape = (batch, setting.chains, setting.gamma, size)
    for rule in setting.few:
        for logits in (False, True):
            inputs = make(rule, shape, TYPES["bf16"], setting.device, logits=logits)
            outcome, expected = by_kernels(rule, inputs), by_numpy(rule, inputs)
            wrong += int((outcome.tokens.cpu().numpy() != expected.tokens).any(1).sum())
    return wrong


if __name__ == "__main__":
    from benchmarks.gpu.settings import on_gpu

    sys.exit(once(on_gpu()) > 0)
