"""`make gpu`: every stage is rehearsed on the CPU, and stages that crash or hang are recorded."""

from __future__ import annotations

import json
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.chain import clocks  # noqa: E402
from benchmarks.gpu import __main__ as program  # noqa: E402
from benchmarks.gpu import decisions, inputs, loop, runner, settings, speed, tools, tuning  # noqa: E402
from benchmarks.gpu.environment import Row, ask_driver, describe  # noqa: E402
from benchmarks.gpu.stages import BY_NAME, STAGES, Stage  # noqa: E402
from benchmarks.gpu.stand_in import stand_in  # noqa: E402
from otm.kernels.common import runtime  # noqa: E402

SETTING = settings.rehearsal()
FEW = SETTING._replace(rules=("chain",), few=("chain",), kernels=settings.ONE_CHAIN)
HERE = {"device": "here", "code": "abc"}


def in_this_process(stage: Stage, part: Path, limit: float) -> None:
    with stand_in():
        runner.perform(stage, SETTING, part)


def run(folder: Path, rows: Callable[[Any], Iterator[Row]]) -> Any:
    """Run a stage that finds these rows."""
    return runner.run(Stage("some", "a stage of a test", 60, rows), folder, in_this_process, 60)


def passed(rows: Iterator[Row]) -> list[bool | None]:
    with stand_in():
        return [row["passed"] for row in rows]


@pytest.fixture
def interpreted() -> None:
    """Skip where the interpreter of Triton does not run the kernels."""
    pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")
    if runtime.compiles():
        pytest.skip("needs TRITON_INTERPRET=1")


@pytest.mark.usefixtures("interpreted")
def test_every_stage_runs_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: a slip that the first run on a GPU would end at, since nothing else runs these lines."""
    machine = {name: describe(SETTING)[name] for name in ("device", "code")}
    results = program.run_all(STAGES, tmp_path, in_this_process, machine)
    found = {result["stage"]: result for result in results}
    assert [*found] == [*BY_NAME]
    assert {result["status"] for result in results} == {runner.PASSED}, runner.summary(results)
    assert not [row for result in results for row in result["rows"] if row["passed"] is False]
    with stand_in():
        assert tools.once(SETTING) == 0

    assert speed.merge(tmp_path, found, SETTING.device)
    (path,) = tmp_path.glob("kernels-*.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["rehearsal"]
    tiers = [
        {row["tier"] for row in rows} for rows in (record["results"], record["gate"]["checks"])
    ]
    assert tiers[0] == tiers[1]
    assert record["not measured"] == []
    without = {**found, speed.CHAINS: {**found[speed.CHAINS], "status": runner.FAILED}}
    assert speed.merge(tmp_path, without, SETTING.device)
    part = json.loads(path.read_text(encoding="utf-8"))
    assert part["not measured"] == [speed.CHAINS]
    assert {row["tier"] for row in part["results"]} == tiers[0] - set(speed.several.TIERS)
    table = tmp_path / "warps.json"
    table.write_text('{"sm_1": {"common.one_chain.draw": 4}}')
    assert tuning.adopt(found["tuning"], table).keys() == {"sm_1", "cpu"}

    capsys.readouterr()
    assert program.run_all(STAGES, tmp_path, in_this_process, machine) == results
    assert capsys.readouterr().out.count("done before") == len(STAGES)
    assert program.run_all(STAGES[:1], tmp_path, in_this_process, HERE, minutes=0.1) == []
    assert "no time left" in capsys.readouterr().out, "it is for the next run"


def test_a_crash_leaves_what_was_found_before(tmp_path: Path) -> None:
    """A stage that cannot run here does not fail, but a stage without any result fails."""

    def rows(_: Any) -> Iterator[Row]:
        yield {"case": "first", "passed": True, "seconds": float("nan")}
        raise RuntimeError("CUDA error: an illegal memory access")

    result = run(tmp_path, rows)
    assert result["status"] == runner.FAILED
    first, second = result["rows"]
    assert first == {"case": "first", "passed": True, "seconds": None}
    assert "illegal memory access" in second["note"]
    assert "some: RuntimeError: CUDA error" in runner.summary([result])
    assert json.loads((tmp_path / "some.json").read_text(encoding="utf-8")) == result
    absent = [{"case": "a tool", "passed": None, "note": "missing"}]
    assert run(tmp_path, lambda _: iter(absent))["status"] == runner.ABSENT
    nothing = run(tmp_path, lambda _: iter([]))
    assert (nothing["status"], nothing["error"]) == (runner.FAILED, "it found nothing")


@pytest.mark.parametrize(
    ("command", "limit", "error"),
    [
        ("import os; os.abort()", 60.0, "ended with exit code -6"),
        ("import time; time.sleep(600)", 0.2, "not done after 0 s"),
    ],
)
def test_a_process_that_is_killed_or_hangs_is_recorded(
    command: str, limit: float, error: str, tmp_path: Path
) -> None:
    """Bug: rows are lost with the process, or a stage waits for the device forever."""

    def launch(stage: Stage, part: Path, limit: float) -> str | None:
        part.write_text('{"machine": {}}\n{"case": "a", "passed": true}\n{"case": "b", "pas')
        return runner.in_time([sys.executable, "-S", "-c", command], limit, {})

    result = runner.run(Stage("some", "", 60, lambda _: iter([])), tmp_path, launch, limit)
    assert (result["status"], result["error"]) == (runner.FAILED, error)
    assert result["rows"] == [{"case": "a", "passed": True}]


def test_what_is_done_is_what_passed_on_this_device_with_this_code() -> None:
    result = {"status": runner.PASSED, "machine": {**HERE, "date": "today"}}
    assert runner.is_done(result, HERE)
    assert not runner.is_done(None, HERE)
    for status in (runner.FAILED, runner.ABSENT):
        assert not runner.is_done({**result, "status": status}, HERE)
    for machine in ({}, {**HERE, "code": "b"}):
        assert not runner.is_done({**result, "machine": machine}, HERE)


def test_a_wrong_decision_fails_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a comparison that passes even if the kernels return wrong tokens."""

    def wrong(rule: str, inputs: Any, workspace: Any = None) -> Any:
        outcome = decisions.by_torch(rule, inputs)
        return outcome._replace(tokens=outcome.tokens + 1)

    monkeypatch.setattr(decisions, "by_kernels", wrong)
    two = FEW._replace(rules=("chain", "grid k-Seq"))
    with stand_in():
        rows = [*decisions.small(two), *decisions.serving(two)]
    assert [(row["passed"], row["different"]) for row in rows] == [(False, 1)] * 6


def test_a_graph_that_does_nothing_fails_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what is compared with the calls is not what the graph wrote."""
    monkeypatch.setattr(decisions, "by_kernels", lambda rule, x, *_: decisions.by_torch(rule, x))
    assert passed(decisions.graphs(FEW)) == [True, True]
    monkeypatch.setattr(clocks.Graph, "seconds", lambda graph: 0.0)
    assert passed(decisions.graphs(FEW)) == [False, False]


@pytest.mark.parametrize(
    ("error", "is_passed"), [(RuntimeError("no"), False), (torch.OutOfMemoryError("none"), None)]
)
def test_an_error_in_one_case_is_a_row_and_the_next_case_runs(
    error: Exception, is_passed: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: one kernel that does not compile hides what the others do."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    for module, name in ((decisions, "by_kernels"), (tuning, "by_kernels"), (loop, "speculative")):
        monkeypatch.setattr(module, name, fails)
    checks = (decisions.small, decisions.serving, decisions.graphs)
    with stand_in():
        found = [row for check in checks for row in check(FEW)]
        tuned = list(tuning.tuning(FEW))
    assert [row["passed"] for row in found] == [is_passed] * 6
    assert all(str(error) in row["note"] for row in (*found, *tuned))
    if isinstance(error, torch.OutOfMemoryError):
        assert passed(loop.loop(FEW)) == [True, *4 * [False], *7 * [True]]


def test_other_projects_may_fail_and_ours_may_not() -> None:
    ours: dict[str, Any] = {"contestant": "otm triton", "B": 1, "V": 2, "dtype": "float32"}
    times = {**ours, "wall s": 1e-6, "kernel s": None, "of floor": 0.5}
    waits, fails = {**times, "no graph": "it waits"}, {**ours, "failed": "no"}
    for row, result in (
        (waits, False),
        ({**waits, "contestant": "otm baseline"}, None),
        (fails, False),
        ({**fails, "contestant": "vllm v1"}, None),
        (times, True),
    ):
        assert speed.of_result(row)["passed"] is result
    check = {"contestant": "flashinfer", "passed": False, "failed": "no"}
    assert speed.of_check(check)["passed"] is None
    assert speed.of_check({**check, "contestant": "otm triton"})["passed"] is False
    assert not speed.merge(program.Path(), {}, SETTING.device), "nothing is measured"


def test_copies_of_rows_that_chains_share_share_them_too() -> None:
    rows = torch.arange(12.0).reshape(2, 1, 2, 3).expand(2, 4, 2, 3)
    copy = tuning.copy_of(rows)
    assert torch.equal(copy, rows)
    assert copy.untyped_storage().nbytes() == rows.untyped_storage().nbytes()
    assert copy.data_ptr() != rows.data_ptr()
    two = tuning.copied(SETTING._replace(effort=SETTING.effort._replace(copies=2)), [rows])
    assert len(two) == 2


def test_the_command_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    inside = str(speed.kernels.RESULTS / "gpu")
    for arguments, said in (
        (["--rehearse", "--only", "nothing"], "--list names them"),
        (["--rehearse", "--output", inside], "a rehearsal has no valid times"),
        *([] if torch.cuda.is_available() else [([], "sees no GPU")]),
    ):
        assert program.main(arguments) == 2
        assert said in capsys.readouterr().out
    assert program.main(["--list"]) == 0
    assert capsys.readouterr().out.startswith("environment"), "known in any case"
    assert len(BY_NAME) == len(STAGES)


def test_the_command_runs_a_stage_in_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: options that the process of a stage does not get, and so runs something else."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    command = ["--rehearse", "--only", "environment", "--output", str(tmp_path)]
    assert program.main(command) == 0
    assert f"results: {tmp_path.resolve()}" in capsys.readouterr().out
    found = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert (found["status"], found["machine"]["rehearsal"]) == (runner.PASSED, True)
    assert {"torch", "triton"} <= {row["case"] for row in found["rows"]}
    assert program.folder_of(SETTING._replace(rehearsal=False)).parent.name == "gpu"
    assert program.main([*command, "--minutes", "0", "--force"]) == 1, "a stage is left"


def test_tools_that_are_missing_or_fail_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def sanitized(*command: str) -> list[tuple[bool | None, str]]:
        rows = tools.sanitizer(SETTING._replace(sanitizer=command))
        return [(row["passed"], row["note"]) for row in rows]

    assert sanitized("no-such-program") == [(None, "not installed")]
    assert ask_driver(("no-such-program",)) == {}
    code = "print('========= {}'); exit(1)"
    failing = sanitized(sys.executable, "-c", code.format("ERROR SUMMARY: 2 errors"))
    assert set(failing) == {(False, "ERROR SUMMARY: 2 errors")}
    assert sanitized(sys.executable, "-c", code.format("Device not supported"))[0][0] is None
    wrong = SETTING._replace(tests=(("no/such/test.py",),))
    assert [row["passed"] for row in tools.tests(wrong)] == [False]
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    (row,) = tools.tests(wrong)
    assert (row["passed"], row["note"]) == (None, "pytest and hypothesis not installed")


def test_failed_tests_are_named(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(
        '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">'
        '<testcase classname="a" name="b"><failure message="1 != 2"/></testcase>'
        '<testcase classname="a" name="c"/></testsuite></testsuites>'
    )
    row = tools.of_report(path)
    assert row["note"] == "3 tests, 1 failures, 0 errors, 1 skipped"
    assert row["wrong"] == ["a::b: 1 != 2"]
    assert tools.files()[0] == ("tests/kernels/compiled/test_on_gpu.py",)


@pytest.mark.usefixtures("interpreted")
def test_the_stages_name_every_kernel_that_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a new or renamed kernel whose warps are never measured."""
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def record(use: tuple[str, str], kernel: Any, kind: str) -> int:
        seen[runtime.name_of(kernel)].add(use)
        return runtime.WARPS

    for rule in settings.RULES:
        for dtype, logits in tuning.FORMS.items():
            monkeypatch.setattr(runtime, "warps", partial(record, (rule, dtype)))
            form = (1, 1, 1, 3), settings.TYPES[dtype], torch.device("cpu")
            inputs.by_kernels(rule, inputs.make(rule, *form, logits=logits))
    kernels = settings.on_gpu().kernels
    assert seen == {name: set(tuning.launched_by(name, settings.RULES)) for name in kernels}


def test_the_table_of_warps_is_read_and_names_kernels_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from otm.kernels.common import one_chain

    for of_kernels in runtime.TUNED.values():
        assert of_kernels.keys() <= set(settings.on_gpu().kernels)
        assert set(of_kernels.values()) <= {1, 2, 4, 8, 16, 32}
    monkeypatch.setitem(runtime.TUNED, "sm_90", {"common.one_chain.draw": 4})
    assert runtime.warps(one_chain.draw, "sm_90") == 4
    assert runtime.warps(one_chain.add_up, "sm_90") == runtime.WARPS
    assert runtime.warps(one_chain.draw, "sm_80") == runtime.WARPS
    assert runtime.capability(torch.device("cpu")) == "cpu"
