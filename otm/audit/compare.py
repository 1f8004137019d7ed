"""Compare the output of a verifier with the target, and choose a counterexample."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from otm._core.arithmetic import Number
from otm._core.interval import Interval
from otm.audit.adapters.base import Adapter, Failure, Instance, Source
from otm.audit.evidence import Counterexample, Isolated
from otm.audit.instances import rows_of, shape_of
from otm.audit.observe.observation import MAX_RATIO, Observation, Observed
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED
from otm.audit.runs import CRASHES


@dataclass(frozen=True)
class Comparison:
    """Verdict about a verifier, its distance from the target, and the evidence."""

    verdict: str
    # Largest distance on all instances.
    tv_distance: Number
    tv_interval: Interval
    # Smallest observation with a large deviation; None without a deviation.
    example: Observation | None
    # The same example in the form of the report.
    counterexample: Counterexample | None = None
    isolated: Isolated | None = None


def compare(observed: Observed) -> Comparison:
    """Compare the observed output distributions with the target."""
    worst = max(observed.seen, key=lambda seen: seen.tv_distance)
    interval = Interval(worst.tv_distance, worst.tv_distance)
    if error := observed.radius + worst.error:
        tv = float(worst.tv_distance)
        interval = Interval(max(tv - error, 0.0), min(tv + error, 1.0))
    example = _choose_example(observed)
    if example is None:
        enough = observed.enough and not (observed.left_out or observed.later_runs)
        return Comparison(LOSSLESS if enough else UNDECIDED, worst.tv_distance, interval, None)
    is_off = example.is_off(observed.tolerance)
    return Comparison(
        NOT_LOSSLESS,
        worst.tv_distance,
        interval,
        example,
        _counterexample(observed.runner.adapter, example, is_off),
        # Without a larger deviation, the isolated outputs are the counterexample.
        _isolated(observed, example) if is_off else None,
    )


def _choose_example(observed: Observed) -> Observation | None:
    """Choose the smallest instance with a large deviation; prefer the instance from the search."""
    deviating = observed.deviating
    most = max((float(seen.tv_distance) for seen in deviating), default=0.0)
    telling = [
        seen
        for seen in deviating
        if seen.is_off(observed.tolerance) and float(seen.tv_distance) >= most / MAX_RATIO
    ]

    def sort_key(seen: Observation) -> tuple[tuple[int, ...], bool, float]:
        return size(seen.instance), seen is not observed.smallest, -float(seen.tv_distance)

    return min(telling or deviating, key=sort_key, default=None)


def _counterexample(adapter: Adapter, seen: Observation, is_off: bool) -> Counterexample:
    """Build the counterexample from an impossible output, or from the largest excess.

    An impossible output is chosen only if it is frequent enough.
    """
    impossible = seen.impossible
    if impossible is not None and is_off:
        enough = 0.0 if isinstance(impossible, Failure) else float(seen.tv_distance) / MAX_RATIO
        impossible = impossible if float(seen.probs[impossible]) > enough else None
    output = seen.largest_excess() if impossible is None else impossible
    uniforms, drafts = seen.examples.get(output), None
    if uniforms is not None:
        # The verifier may crash before it has drafts.
        with suppress(*CRASHES):
            drafts = adapter.drafted(seen.instance, Source(np.array(uniforms)))
    return Counterexample(
        seen.instance,
        seen.tv_distance,
        output,
        seen.probs[output],
        impossible=impossible is not None,
        drafts=drafts,
        uniforms=uniforms,
    )


def _isolated(observed: Observed, example: Observation) -> Isolated | None:
    """Find impossible outputs of negligible probability; try `example` before the others."""
    deviating = (seen for seen in observed.deviating if seen is not observed.smallest)
    for seen in [example, *sorted(deviating, key=lambda seen: size(seen.instance))]:
        if outcomes := seen.isolated():
            probability = sum((seen.probs[each] for each in outcomes), start=Fraction(0))
            examples = seen.examples.get(outcomes[0])
            return Isolated(seen.instance, tuple(outcomes), probability, examples)
    return None


@lru_cache(maxsize=4096)
def size(instance: Instance) -> tuple[int, ...]:
    """Return a key that sorts instances by how easy they are to read.

    The key has the number of positive probabilities, the shape and the length of the prompt.
    """
    rows = rows_of(instance)
    positive = sum(int((probs > 0).sum()) for each in rows for probs in each.values())
    return positive, *shape_of(instance), len(instance.prompt)
