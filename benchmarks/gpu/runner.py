"""Runs stages, each in a separate process, and keeps their results.

A stage writes each row at once as a line of `<stage>.part`, so that a crash or a time limit does
not lose earlier rows.  In the end, `<stage>.json` holds all rows, the machine, the code's digest
and the outcome.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.chain.measure import in_short
from benchmarks.gpu.environment import ROOT, Row, describe
from benchmarks.gpu.settings import Setting
from benchmarks.gpu.stages import Stage

Launch = Callable[[Stage, Path, float], str | None]
"""Runs a stage within a number of seconds and writes its rows to a file.

It returns an error, or None.
"""

PASSED, FAILED, ABSENT = "passed", "failed", "not possible here"
MARKS = {True: "ok", False: "FAILED", None: "-"}


def perform(stage: Stage, setting: Setting, part: Path) -> None:
    """Run a stage in this process; write its rows to a file, and a summary to the terminal."""
    with part.open("w", encoding="utf-8") as file:

        def write(line: Any) -> None:
            file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            file.flush()

        def add(row: Row) -> None:
            write(row)
            print(f"  {MARKS[row['passed']]:<7}{row['case']}  {row.get('note', '')}", flush=True)

        write({"machine": describe(setting)})
        try:
            for row in stage.rows(setting):
                add(row)
        except (Exception, SystemExit) as error:
            trace = traceback.format_exc()[-4_000:]
            add({"case": stage.name, "passed": False, "note": in_short(error), "trace": trace})


def finite(value: Any) -> Any:
    """Replace infinities and NaN by None, since JSON lacks them."""
    if isinstance(value, dict):
        return {key: finite(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def in_child(options: Iterable[str], interpreted: bool) -> Launch:
    """Run stages in child processes, so that a crash of the device ends only one stage."""

    def launch(stage: Stage, part: Path, limit: float) -> str | None:
        command = [sys.executable, "-m", "benchmarks.gpu", *options]
        command += ["--child", stage.name, "--part", str(part)]
        return in_time(command, limit, {"TRITON_INTERPRET": "1" if interpreted else "0"})

    return launch


def in_time(command: list[str], limit: float, variables: dict[str, str]) -> str | None:
    """Run a program in the checkout; at the time limit, end it and its child processes."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, process_group=0)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"not done after {limit:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if code == 0 else f"ended with exit code {code}"


def run(stage: Stage, folder: Path, launch: Launch, limit: float) -> dict[str, Any]:
    """Run a stage, and keep its result."""
    part = folder / f"{stage.name}.part"
    part.unlink(missing_ok=True)
    begun = time.perf_counter()
    error = launch(stage, part, limit)
    seconds = time.perf_counter() - begun
    lines = part.read_text(encoding="utf-8").splitlines() if part.exists() else []
    found = [row for row in map(parsed, lines) if row]
    machine = found.pop(0)["machine"] if found else {}
    outcomes = {row["passed"] for row in found}
    status = FAILED if error or False in outcomes or not found else PASSED
    if outcomes == {None} and not error:
        status = ABSENT
    result = {
        "stage": stage.name,
        "title": stage.title,
        "status": status,
        "error": error or (None if found else "it found nothing"),
        "seconds": seconds,
        "machine": machine,
        "rows": found,
    }
    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / f"{stage.name}.json").write_text(text + "\n", encoding="utf-8")
    part.unlink(missing_ok=True)
    return result


def parsed(line: str) -> Row | None:
    """Parse a line into a row; return None for the incomplete last line of a killed process."""
    try:
        row: Row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row


def kept(stage: Stage, folder: Path) -> dict[str, Any] | None:
    """Return the result of a stage, if there is one."""
    path = folder / f"{stage.name}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def is_done(result: dict[str, Any] | None, machine: Row) -> bool:
    """Whether a stage has already passed on this device with this code."""
    if result is None or result["status"] != PASSED:
        return False
    return all(result["machine"].get(name) == machine[name] for name in ("device", "code"))


def summary(results: list[dict[str, Any]]) -> str:
    """Format all stages with their failures."""
    lines = [f"\n{'stage':<22}{'outcome':<19}{'rows':>5}{'failed':>8}{'s':>7}"]
    for result in results:
        wrong = [row for row in result["rows"] if row["passed"] is False]
        seconds = result["seconds"]
        lines.append(
            f"{result['stage']:<22}{result['status']:<19}{len(result['rows']):>5}{len(wrong):>8}"
            f"{seconds:>7.0f}  {result['error'] or ''}".rstrip()
        )
        lines += [f"    {row['case']}: {row.get('note', '')}" for row in wrong[:5]]
        if len(wrong) > 5:
            lines.append(f"    and {len(wrong) - 5} more")
    return "\n".join(lines)
