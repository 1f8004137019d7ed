"""Run all checks and measurements of the kernels that need a GPU, in resumable stages.

    make gpu [ARGS="..."]       or       python -m benchmarks.gpu [options]

The program needs a GPU, and NumPy, torch and Triton in its Python; it needs no network.  `--list`
names all stages.  They run one after another, each in a separate process; a failure is recorded,
and the next stage runs.  Each result is a file in benchmarks/results/gpu/<device>/.  A stage that
passed on this device with this code does not run again, so an interrupted run continues where it
stopped.  With --minutes the run stops by itself.  Exit code 0 means that all stages ran and passed.

The times of the stages for speed are also written to kernels-<device>.json in that folder, in
the form that `benchmarks.tables` and `benchmarks.pictures` read from benchmarks/results/.  With
--adopt the kernels use the best measured numbers of warps.

`--rehearse` runs small versions of all stages on a CPU.  The kernels run in Triton's interpreter,
and a stand-in replaces CUDA, so that a simple mistake does not end the first run on a GPU.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--list", action="store_true", help="list the stages")
    parser.add_argument("--rehearse", action="store_true", help="test all stages on a CPU")
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="run only these stages")
    parser.add_argument("--force", action="store_true", help="also run stages that are done")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="end after this number of minutes"
    )
    parser.add_argument("--output", type=Path, help="another folder for the results")
    parser.add_argument(
        "--adopt", action="store_true", help="let the kernels use the tuned numbers of warps"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return 0 if all stages passed, and 2 if no stage could run."""
    options = options_of(arguments)
    os.environ.setdefault("TRITON_INTERPRET", "1" if options.rehearse else "0")
    if find_spec("torch") is None:
        print("torch is missing: the stages need NumPy, torch (for CUDA) and Triton")
        return 2
    from benchmarks.gpu import stages

    if options.list:
        for stage in stages.STAGES:
            print(f"{stage.name:<22}{stage.title}")
        return 0
    if reason := refusal(options, stages.BY_NAME):
        print(reason)
        return 2
    if options.child:
        return child(options)
    return parent(options)


def refusal(options: argparse.Namespace, names: Collection[str]) -> str | None:
    """Return the reason why the stages cannot run, or None if they can."""
    import torch

    from benchmarks.kernels import RESULTS

    if unknown := set(options.only or ()) - set(names):
        return f"unknown stage {', '.join(sorted(unknown))}; --list names them"
    if not options.rehearse and not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU; --rehearse tests the stages on a CPU"
    if options.rehearse and options.output and is_in(options.output, RESULTS):
        return (
            "a rehearsal has no valid times; give an --output outside of the repository's results"
        )
    return None


def child(options: argparse.Namespace) -> int:
    """Run one stage in this process."""
    from benchmarks.gpu import runner, settings, stages
    from benchmarks.gpu.stand_in import stand_in

    stage = stages.BY_NAME[options.child]
    if not options.rehearse:
        runner.perform(stage, settings.on_gpu(), options.part)
        return 0
    with stand_in():
        runner.perform(stage, settings.rehearsal(), options.part)
    return 0


def parent(options: argparse.Namespace) -> int:
    """Run the stages in turn, each in a separate process, and print their outcomes."""
    from benchmarks.gpu import runner, settings, speed, stages, tuning
    from benchmarks.gpu.environment import code, device_of

    # Exit by an exception, so that the running stage also ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [stage for stage in stages.STAGES if stage.name in (options.only or stages.BY_NAME)]
    setting = settings.rehearsal() if options.rehearse else settings.on_gpu()
    folder = (options.output or folder_of(setting)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = run_all(
        chosen,
        folder,
        runner.in_child(["--rehearse"] if options.rehearse else [], interpreted=options.rehearse),
        machine={"device": device_of(setting), "code": code()},
        force=options.force,
        minutes=options.minutes,
    )
    print(runner.summary(results))
    kept = {stage.name: runner.kept(stage, folder) for stage in stages.STAGES}
    speed.merge(folder, {name: found for name, found in kept.items() if found}, setting.device)
    if options.adopt and not options.rehearse and kept["tuning"]:
        print(f"the kernels use {tuning.adopt(kept['tuning'])}")
    print(f"results: {folder}")
    if left := len(chosen) - len(results):
        print(f"{left} stages remain for the next run")
    return int(left > 0 or any(result["status"] == runner.FAILED for result in results))


def is_in(folder: Path, other: Path) -> bool:
    return folder.resolve().is_relative_to(other.resolve())


def folder_of(setting: Any) -> Path:
    """Return the folder of the results; those of a rehearsal never go into the repository."""
    from benchmarks import kernels

    if setting.rehearsal:
        return Path(tempfile.mkdtemp(prefix="otm-rehearsal-"))
    return kernels.RESULTS / "gpu" / kernels.slug(setting.device)


def run_all(
    chosen: Any,
    folder: Path,
    launch: Any,
    machine: dict[str, str],
    *,
    force: bool = False,
    minutes: float = float("inf"),
) -> list[dict[str, Any]]:
    """Run the stages that are not done, within the time limit, and return all results."""
    from benchmarks.gpu import runner

    end, results = time.monotonic() + 60 * minutes, []
    for number, stage in enumerate(chosen, 1):
        heading = f"[{number}/{len(chosen)}] {stage.name}: {stage.title}"
        result, left = runner.kept(stage, folder), end - time.monotonic()
        if runner.is_done(result, machine) and not force:
            print(f"{heading}: done before", flush=True)
        elif left < 30:
            print(f"{heading}: no time left", flush=True)
            continue
        else:
            print(heading, flush=True)
            result = runner.run(stage, folder, launch, min(stage.limit, left))
        results.append(result)
    return results


if __name__ == "__main__":
    sys.exit(main())
