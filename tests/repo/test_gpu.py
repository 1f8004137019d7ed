"""`make gpu`: every stage is rehearsed on the CPU, and stages that crash or hang are recorded."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.chain import clocks  # noqa: E402
from benchmarks.gpu import __main__ as program  # noqa: E402
from benchmarks.gpu import decisions, loop, runner, settings, speed, stages, tools, tuning  # noqa: E402
from benchmarks.gpu.environment import Row, ask_driver, describe  # noqa: E402
from benchmarks.gpu.stages import BY_NAME, STAGES, Stage  # noqa: E402
from benchmarks.gpu.stand_in import stand_in  # noqa: E402
from otm.kernels.common import runtime  # noqa: E402

SETTING = settings.rehearsal()
HERE = {"device": "here", "code": "abc"}


def in_this_process(stage: Stage, part: Path, limit: float) -> None:
    with stand_in():
        runner.perform(stage, SETTING, part)


def stage_of(rows: Callable[[Any], Iterator[Row]]) -> Stage:
    return Stage("some", "a stage of a test", 60, rows)


def test_every_stage_runs_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: a slip that the first run on a GPU would end at, since nothing else runs these lines."""
    pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")
    if runtime.compiles():
        pytest.skip("needs TRITON_INTERPRET=1")
    machine = {name: describe(SETTING)[name] for name in ("device", "code")}
    results = program.run_all(STAGES, tmp_path, in_this_process, machine)
    assert {result["stage"]: result["status"] for result in results} == {
        stage.name: runner.PASSED for stage in STAGES
    }, runner.summary(results)
    assert not [row for result in results for row in result["rows"] if row["passed"] is False]
    with stand_in():
        assert tools.once(SETTING) == 0

    found = {result["stage"]: result for result in results}
    assert speed.merge(tmp_path, found, SETTING.device)
    (path,) = tmp_path.glob("kernels-*.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["rehearsal"]
    assert {row["tier"] for row in record["results"]} == {
        row["tier"] for row in record["gate"]["checks"]
    }
    table = tmp_path / "warps.json"
    table.write_text('{"sm_1": {"one_chain.draw": 4}}')
    assert tuning.adopt(found["tuning"], table).keys() == {"sm_1", "cpu"}

    capsys.readouterr()
    again = program.run_all(STAGES, tmp_path, in_this_process, machine)
    assert capsys.readouterr().out.count("done before") == len(STAGES)
    assert again == results


def test_a_crash_leaves_what_was_found_before(tmp_path: Path) -> None:
    def rows(_: Any) -> Iterator[Row]:
        yield {"case": "first", "passed": True, "seconds": float("nan")}
        raise RuntimeError("CUDA error: an illegal memory access")

    result = runner.run(stage_of(rows), tmp_path, in_this_process, 60)
    assert result["status"] == runner.FAILED
    first, second = result["rows"]
    assert first == {"case": "first", "passed": True, "seconds": None}
    assert "illegal memory access" in second["note"]
    assert "some: RuntimeError: CUDA error" in runner.summary([result])
    assert json.loads((tmp_path / "some.json").read_text(encoding="utf-8")) == result


def test_what_cannot_be_done_here_is_no_failure(tmp_path: Path) -> None:
    absent = stage_of(lambda _: iter([{"case": "a tool", "passed": None, "note": "missing"}]))
    assert runner.run(absent, tmp_path, in_this_process, 60)["status"] == runner.ABSENT
    nothing = runner.run(stage_of(lambda _: iter([])), tmp_path, in_this_process, 60)
    assert (nothing["status"], nothing["error"]) == (runner.FAILED, "it found nothing")


def test_a_process_that_is_killed_or_hangs_is_recorded(tmp_path: Path) -> None:
    """Bug: rows are lost with the process, or a stage that waits for the device waits for ever."""

    def launch(command: str, stage: Stage, part: Path, limit: float) -> str | None:
        part.write_text('{"machine": {}}\n{"case": "a", "passed": true}\n{"case": "b", "pas')
        return runner.in_time([sys.executable, "-S", "-c", command], limit, {})

    stage = stage_of(lambda _: iter([]))
    for command, limit, error in (
        ("import os; os.abort()", 60.0, "ended with exit code -6"),
        ("import time; time.sleep(600)", 0.2, "not done after 0 s"),
    ):
        result = runner.run(stage, tmp_path, partial(launch, command), limit)
        assert (result["status"], result["error"]) == (runner.FAILED, error)
        assert result["rows"] == [{"case": "a", "passed": True}]


def test_what_is_done_is_what_passed_on_this_device_with_this_code() -> None:
    result = {"status": runner.PASSED, "machine": {**HERE, "date": "today"}}
    assert runner.is_done(result, HERE)
    others: tuple[dict[str, Any], ...] = (
        {"status": runner.FAILED},
        {"status": runner.ABSENT},
        {"machine": {}},
        {"machine": {**HERE, "code": "b"}},
    )
    for other in others:
        assert not runner.is_done({**result, **other}, HERE)
    assert not runner.is_done(None, HERE)


def test_a_stage_for_which_no_time_is_left_is_for_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run_all(STAGES[:1], tmp_path, in_this_process, HERE, minutes=0.1) == []
    assert "no time left" in capsys.readouterr().out


def test_a_wrong_decision_fails_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a comparison that passes whatever the kernels return."""

    def wrong(rule: str, inputs: Any, workspace: Any = None) -> Any:
        outcome = decisions.by_torch(rule, inputs)
        return outcome._replace(tokens=outcome.tokens + 1)

    monkeypatch.setattr(decisions, "by_kernels", wrong)
    few = SETTING._replace(rules=("chain", "grid k-Seq"), few=("chain",))
    with stand_in():
        rows = [*decisions.small(few), *decisions.serving(few)]
    assert [row["passed"] for row in rows] == [False] * 6
    assert all(row["different"] == 1 for row in rows)


def test_an_error_in_one_case_is_a_row_and_the_next_case_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: one kernel that does not compile hides what the others do."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    for module, name in ((decisions, "by_kernels"), (tuning, "by_kernels"), (loop, "speculative")):
        monkeypatch.setattr(module, name, fails)
    few = SETTING._replace(rules=("chain",), few=("chain",), kernels=settings.ONE_CHAIN)
    for error, passed in ((RuntimeError("no"), False), (torch.OutOfMemoryError("none"), None)):
        with stand_in():
            checks = (decisions.small, decisions.serving, decisions.graphs)
            found = [row for check in checks for row in check(few)]
            tuned = list(tuning.tuning(few))
        assert [row["passed"] for row in found] == [passed] * 6
        assert all(str(error) in row["note"] for row in (*found, *tuned))
    passed = [True, *4 * [False], *4 * [True]]
    assert [row["passed"] for row in loop.loop(few)] == passed


def test_other_projects_may_fail_and_ours_may_not() -> None:
    result = {"contestant": "otm triton", "B": 1, "V": 2, "dtype": "float32"}
    times = {"wall s": 1e-6, "kernel s": None, "of floor": 0.5}
    for more, passed in (
        ({**times, "no graph": "it waits"}, False),
        ({**times, "no graph": "it waits", "contestant": "otm baseline"}, None),
        ({"failed": "no"}, False),
        ({"failed": "no", "contestant": "vllm v1"}, None),
        (times, True),
    ):
        assert speed.of_result({**result, **more})["passed"] is passed
    check = {"contestant": "flashinfer", "passed": False, "failed": "no"}
    assert speed.of_check(check)["passed"] is None
    assert speed.of_check({**check, "contestant": "otm triton"})["passed"] is False
    assert not speed.merge(program.Path(), {}, SETTING.device), "not all is measured"


def test_copies_of_rows_that_chains_share_share_them_too() -> None:
    rows = torch.arange(12.0).reshape(2, 1, 2, 3).expand(2, 4, 2, 3)
    copy = tuning.copy_of(rows)
    assert torch.equal(copy, rows)
    assert copy.untyped_storage().nbytes() == rows.untyped_storage().nbytes()
    assert copy.data_ptr() != rows.data_ptr()
    two = tuning.copied(SETTING._replace(effort=SETTING.effort._replace(copies=2)), [rows])
    assert len(two) == 2


def test_a_graph_that_does_nothing_fails_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what is compared with the calls is not what the graph wrote."""
    monkeypatch.setattr(decisions, "by_kernels", lambda rule, x, *_: decisions.by_torch(rule, x))
    few = SETTING._replace(few=("chain",))
    with stand_in():
        assert [row["passed"] for row in decisions.graphs(few)] == [True, True]
        monkeypatch.setattr(clocks.Graph, "seconds", lambda graph: 0.0)
        assert [row["passed"] for row in decisions.graphs(few)] == [False, False]


def test_the_command_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    inside = program.Path(speed.kernels.RESULTS / "gpu")
    for arguments, said in (
        (["--rehearse", "--only", "nothing"], "--list names them"),
        (["--rehearse", "--output", str(inside)], "no part of the repository"),
    ):
        assert program.main(arguments) == 2
        assert said in capsys.readouterr().out
    assert program.main(["--list"]) == 0
    assert capsys.readouterr().out.split("\n")[0].startswith(next(iter(BY_NAME)))
    if not torch.cuda.is_available():
        assert program.main([]) == 2
        assert "sees no GPU" in capsys.readouterr().out


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


def test_tools_that_are_missing_are_said_to_be() -> None:
    setting = SETTING._replace(sanitizer=("no-such-program",), nvidia_smi=("no-such-program",))
    (row,) = tools.sanitizer(setting)
    assert (row["passed"], row["note"]) == (None, "not installed")
    assert ask_driver(setting.nvidia_smi) == {}
    failing = (sys.executable, "-c", "print('========= ERROR SUMMARY: 2 errors'); exit(3)")
    rows = list(tools.sanitizer(SETTING._replace(sanitizer=failing)))
    assert {row["passed"] for row in rows} == {False}
    assert rows[0]["note"] == "ERROR SUMMARY: 2 errors"
    refused = (sys.executable, "-c", "print('========= Device not supported'); exit(1)")
    assert next(tools.sanitizer(SETTING._replace(sanitizer=refused)))["passed"] is None


def test_without_pytest_there_is_no_stage_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SETTING._replace(tests=(("no/such/test.py",),))
    (row,) = tools.tests(wrong)
    assert row["passed"] is False
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


def test_the_stages_name_every_kernel_that_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a new or renamed kernel whose warps are never measured."""
    from benchmarks.gpu.inputs import by_kernels, make

    seen: dict[str, set[tuple[str, str]]] = {}

    def record(kernel: Any, kind: str) -> int:
        seen.setdefault(runtime.name_of(kernel), set()).add(use)
        return runtime.WARPS

    pytest.importorskip("triton", minversion="3.7", reason="interprets kernels from Triton 3.7 on")
    if runtime.compiles():
        pytest.skip("needs TRITON_INTERPRET=1")
    monkeypatch.setattr(runtime, "warps", record)
    for rule in settings.RULES:
        for dtype, logits in tuning.FORMS.items():
            use = (rule, dtype)
            cpu = torch.device("cpu")
            by_kernels(rule, make(rule, (1, 1, 1, 3), settings.TYPES[dtype], cpu, logits=logits))
    kernels = settings.on_gpu().kernels
    assert seen == {name: set(tuning.launched_by(name, settings.RULES)) for name in kernels}


def test_the_table_of_warps_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from otm.kernels.common import one_chain

    monkeypatch.setitem(runtime.TUNED, "sm_90", {"one_chain.draw": 4})
    assert runtime.warps(one_chain.draw, "sm_90") == 4
    assert runtime.warps(one_chain.add_up, "sm_90") == runtime.WARPS
    assert runtime.warps(one_chain.draw, "sm_80") == runtime.WARPS
    assert runtime.capability(torch.device("cpu")) == "cpu"


def test_the_table_names_kernels_that_exist() -> None:
    known = set(settings.on_gpu().kernels)
    for of_kernels in runtime.TUNED.values():
        assert of_kernels.keys() <= known
        assert set(of_kernels.values()) <= {1, 2, 4, 8, 16, 32}


def test_stages_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(STAGES)
    assert stages.STAGES[0].name == "environment", "what was there is known in any case"
