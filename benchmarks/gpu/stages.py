"""The stages in order; the most informative stages come first."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from benchmarks.gpu import decisions, environment, loop, speed, tools, tuning
from benchmarks.gpu.environment import Row
from benchmarks.gpu.settings import Setting


class Stage(NamedTuple):
    """A stage: its name, its title, its time limit in seconds, and a function that yields rows."""

    name: str
    title: str
    limit: float
    rows: Callable[[Setting], Iterator[Row]]


STAGES = (
    Stage("environment", "what is installed", 120, environment.environment),
    Stage("copies", "the rate of copies, the cost of launches", 120, environment.copies),
    Stage("decisions", "kernels and torch against NumPy, small vocabularies", 900, decisions.small),
    Stage(
        "self-checks", 'the backend of "auto", and the time of its check', 540, decisions.checked
    ),
    Stage("serving", "kernels against torch and NumPy, large batches", 540, decisions.serving),
    Stage("graphs", "replays with new inputs against calls", 540, decisions.graphs),
    Stage("loop", "the decoding loop with models on the device", 300, loop.loop),
    *(
        Stage(name, f"times of one chain, {tier}", 900, partial(speed.one_chain, tier=tier))
        for name, tier in speed.TIERS.items()
    ),
    Stage(speed.CHAINS, "times of several chains", 900, speed.chains),
    Stage("tests", "tests/kernels on the device", 3_000, tools.tests),
    Stage("sanitizer", "compute-sanitizer: memory and races", 1_200, tools.sanitizer),
    Stage("tuning", "warps of each kernel", 900, tuning.tuning),
)
BY_NAME = {stage.name: stage for stage in STAGES}
