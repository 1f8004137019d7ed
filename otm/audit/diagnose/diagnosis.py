"""Find the known mistakes whose output distribution equals, or nearly equals, a verifier's."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from otm._core.arithmetic import total
from otm.audit.adapters.base import Adapter, Failure, Instance
from otm.audit.adapters.batched_loops import loops
from otm.audit.adapters.neighbours import DEPENDENT, TwinRows
from otm.audit.diagnose.known_bugs import KNOWN_BUGS, KnownBug
from otm.audit.diagnose.known_bugs.bonus import BONUS
from otm.audit.diagnose.known_bugs.drafting import RANDOMNESS
from otm.audit.diagnose.known_bugs.processing import ENDINGS, PROCESSED
from otm.audit.diagnose.known_bugs.rows import EARLIER, READS, ROWS, in_loop
from otm.audit.diagnose.known_bugs.size_and_place import SIZED
from otm.audit.diagnose.known_bugs.steps import Loop, Repeated, both
from otm.audit.diagnose.known_bugs.verification import ACCEPTANCE, RESIDUAL
from otm.audit.diagnose.loop_diagnosis import AT_ZERO, accepts_at_zero, draws_twice
from otm.audit.diagnose.mistake_sizes import parametrized_suspects
from otm.audit.diagnose.processor_diagnosis import wrong_use
from otm.audit.diagnose.self_drafting import SECOND_SAMPLE, samples_twice
from otm.audit.evidence import Diagnosis, Nearest
from otm.audit.intercept.interception import InterceptedRng
from otm.audit.observe.exact import observe_by_paths
from otm.audit.observe.observation import ISOLATED, Observation, Observed, UnsuitedError, distance
from otm.audit.runs import Runner
from otm.audit.scope import TimeIsUpError, check_time
from otm.decoding.reading import Path
from otm.errors import ProblemTooLargeError
from otm.testing.sequences import sequence_distribution

PAIRS, STEPS = 150, 1000
"""Largest costs of instances on which pairs of mistakes, or mistakes of one step, are tried."""

SINGLE = 8 * ISOLATED
"""Largest distance that isolated uniforms of a few drafts can cause."""

ROUNDING = 1e-12
"""Tolerance for distributions of exact paths, which may contain some floats."""

NEAR, FEW = 2, 4
"""A mistake `NEAR` times nearer than the target is near; `FEW` pairs of models are compared."""

SAMPLED, CLOSE = 0.05, 1e-6
"""Tolerated excess of outputs (TV): for frequencies, and for computed probabilities."""

Same = Callable[[Observation, Observation], bool]
"""Predicate: can a verifier, observed on an instance, have a known mistake's distribution?"""


def same_distribution(tolerance: float, *, apart: bool = False) -> Same:
    """Return a predicate: whether two distributions agree within errors and `tolerance`.

    Outcomes that are impossible under the target must occur in both distributions, even at isolated
    uniforms, unless `apart` ignores them.
    """

    def same(seen: Observation, known: Observation) -> bool:
        rounding = tolerance if seen.error or seen.pieces else ROUNDING
        near = _tv_between(seen, known) <= seen.error + known.error + rounding
        return near and (apart or seen.impossible_outcomes() == known.impossible_outcomes())

    return same


@dataclass(frozen=True)
class Explanation:
    """The known mistakes that explain a deviation, or the nearest one."""

    diagnoses: tuple[Diagnosis, ...] = ()
    nearest: Nearest | None = None
    # Whether time sufficed to compare the output with all known mistakes.
    compared: bool = True


NO_EXPLANATION = Explanation()
"""Explanation if no deviation was observed."""


def explain(observed: Observed, example: Observation, until: float) -> Explanation:
    """Name the mistakes that explain the observations, until a time of `time.monotonic`."""
    ways: Sequence[Same] = (
        [same_distribution(observed.tolerance, apart=apart) for apart in (False, True)]
        if observed.fits is None
        else [observed.fits]
    )
    ways = ways if example.is_off(observed.tolerance) else ways[:1]
    searched = [example] if example is observed.smallest else []
    loop = observed.runner if observed.runner.adapter.loops else None
    try:
        diagnoses = diagnose([*observed.observations, *searched], ways, loop, until)
        near = None if diagnoses else nearest(observed.observations, loop, until)
    except TimeIsUpError:
        return Explanation(compared=False)
    return Explanation(diagnoses, near)


def diagnose(
    observations: Sequence[Observation],
    ways: Sequence[Same],
    loop: Runner | None = None,
    until: float = math.inf,
) -> tuple[Diagnosis, ...]:
    """Name the known mistakes that explain the observations of one verifier.

    The function names all mistakes that the instances cannot distinguish.  Among mistakes with
    sizes estimated from the output, the function names only the first that fits.  If `ways` has a
    second comparison, this comparison ignores isolated outcomes, and pairs of mistakes are tried
    too.  For a loop, the function also tries the mistakes of a single step.  Raises `TimeIsUpError`
    after the time `until` of `time.monotonic`.
    """
    if (named := _diagnose_directly(observations, loop)) or _hidden(observations, loop):
        return named
    observations = [o for o in observations if not isinstance(o.instance.target, TwinRows)]
    # Cheap observations rule out most mistakes early.
    observations = sorted(observations, key=_cost)
    bugs = _known_mistakes(loop)
    for place, same in enumerate(ways):
        explained = _fitting_mistakes(bugs, observations, same, until)
        if not explained and loop is None:
            measured = ((bug, bug.verifier) for bug in parametrized_suspects(observations))
            explained = _fitting_mistakes(measured, observations, same, until, most=1)
        if explained:
            return tuple(replace(diagnosis, apart=place > 0) for diagnosis in explained)
    sound = [o for o in observations if not any(isinstance(out, Failure) for out in o.probs)]
    if 0 < len(sound) < len(observations):
        explained = _fitting_mistakes(bugs, sound, ways[0], until)
        if explained:
            return tuple(replace(diagnosis, partly=True) for diagnosis in explained)
    wrong = [seen for seen in observations if seen.is_off(SINGLE)]
    shows = wrong or [seen for seen in observations if seen.impossible is not None]
    if loop is not None and shows and (len(ways) > 1 or not wrong):
        few = [seen for seen in [*shows, *observations] if _cost(seen) <= STEPS]
        near = few if _cost(shows[0]) <= STEPS else []
        return (
            _fitting_mistakes(_mistakes_across_steps(loop), near, ways[0], until)
            or _fitting_mistakes(_step_mistakes(loop), near, ways[0], until)
            or _diagnose_by_draws(loop, wrong, observations, until)
        )
    if loop is not None or len(ways) == 1 or not wrong or _cost(wrong[0]) > PAIRS:
        return _diagnose_after_sampling(loop, wrong, until)
    pairs = [(bug, bug.verifier) for bug in _pairs()]
    return _fitting_mistakes(pairs, [wrong[0], *observations], ways[0], until)


def _hidden(observations: Sequence[Observation], loop: Runner | None) -> bool:
    """Whether failures of other rows hide the texts of the audited row."""
    several = loop is not None and isinstance(loop.adapter, loops)
    outcomes = (outcome for seen in observations for outcome in seen.probs)
    return several and any(isinstance(outcome, Failure) for outcome in outcomes)


def _known_mistakes(loop: Runner | None) -> list[tuple[KnownBug, Adapter]]:
    """List the known mistakes to compare with; for a loop, only mistakes of loops."""
    return [
        (bug, verifier)
        for bug in KNOWN_BUGS
        if bug not in {*PROCESSED, *ENDINGS, *ROWS, *EARLIER}
        and (loop is None or bug.verifier.loops)
        for verifier in (_ways_to_end(bug.verifier) if loop else (bug.verifier,))
    ]


@cache
def _ways_to_end(verifier: Adapter) -> tuple[Adapter, ...]:
    """Return a loop that drafts less near the limit of tokens, and the same loop that cuts."""
    cutting = (replace(verifier, cut=True),) if type(verifier) is Loop else ()
    return (verifier, *cutting)


def _mistakes_across_steps(loop: Runner) -> list[tuple[KnownBug, Adapter]]:
    """Make loops with each mistake across steps, which cut the text at the end or draft less."""
    adapter = loop.adapter
    return [
        (bug, in_loop(READS[bug.name], cut, adapter.max_tokens, adapter.end, adapter.stop))
        for bug in KNOWN_BUGS
        for cut in (False, True)
        if bug.name in READS and adapter.processor is None
    ]


def _step_mistakes(loop: Runner) -> list[tuple[KnownBug, Adapter]]:
    """Repeat each mistake of a single step in loops that draft less at the end, or cut the end."""
    drafts = (False,) if loop.adapter.processor is None else (True, False)
    return [
        (bug, _in_loop(bug.verifier, loop.adapter, cut, draft))
        for bug in KNOWN_BUGS
        for draft in drafts
        for cut in (False, True)
        if not (bug.verifier.loops or bug.verifier.several or bug in SIZED)
    ]


def nearest(
    observations: Sequence[Observation], loop: Runner | None = None, until: float = math.inf
) -> Nearest | None:
    """Return the known mistake nearest to the observations with the largest deviations.

    Return None if no run returned tokens.  Raises `TimeIsUpError` after the time `until` of
    `time.monotonic`.
    """
    cheap = [o for o in observations if o.sequences and o.is_off(SINGLE) and _cost(o) <= STEPS]
    telling = sorted(cheap, key=lambda seen: -float(seen.tv_distance))[:FEW]
    wrong = total(float(seen.tv_distance) for seen in telling)
    least, found = wrong / NEAR, None
    for bug, verifier in _known_mistakes(None) if loop is None else _step_mistakes(loop):
        check_time(until, "known mistakes take")
        off = _summed_distance(verifier, telling, least)
        if off < least:
            least, found = off, bug
    if found is None:
        return None
    return Nearest(_as_diagnosis(found), least / len(telling), wrong / len(telling))


def _summed_distance(adapter: Adapter, telling: Sequence[Observation], limit: float) -> float:
    """Sum the distances of a mistake from the observations; infinite if it does not apply."""
    total = 0.0
    for seen in telling:
        known = _observe_bug(adapter, seen.instance) if adapter.supports(seen.instance) else None
        if known is None or total >= limit:
            return math.inf
        total += _tv_between(seen, known)
    return total


def _tv_between(seen: Observation, known: Observation) -> float:
    length = max(seen.length, known.length)
    return float(distance(seen.continued(length), known.continued(length)))


def _diagnose_by_draws(
    loop: Runner, wrong: Sequence[Observation], observations: Sequence[Observation], until: float
) -> tuple[Diagnosis, ...]:
    """Name the mistake of a loop that its tokens or its draws reveal."""
    if wrong:
        return _named(SECOND_SAMPLE, samples_twice(wrong) or draws_twice(loop, wrong, until))
    return _named(AT_ZERO, accepts_at_zero(loop, observations, until))


def _diagnose_after_sampling(
    loop: Runner | None, wrong: Sequence[Observation], until: float
) -> tuple[Diagnosis, ...]:
    """Name the mistake of a sampled loop that a few runs with recorded draws reveal."""
    if loop is None or not wrong or not loop.adapter.uses_global_rng:
        return ()
    recorded = Runner(loop.adapter, InterceptedRng())
    return _named(SECOND_SAMPLE, draws_twice(recorded, wrong, until))


def _named(name: str, shown: bool) -> tuple[Diagnosis, ...]:
    """Return the known mistake of this name, if it was shown."""
    return tuple(_as_diagnosis(bug) for bug in KNOWN_BUGS if shown and bug.name == name)


def _cost(seen: Observation) -> int:
    """Estimate the cost of observing a mistake on an instance."""
    return (seen.pieces or seen.runs) * seen.instance.vocabulary**2 * seen.instance.gamma


@cache
def _pairs() -> tuple[KnownBug, ...]:
    """Combine pairs of mistakes in different steps."""
    pairs = []
    for one, other in itertools.combinations((ACCEPTANCE, RESIDUAL, BONUS, RANDOMNESS), 2):
        for a, b in itertools.product(one, other):
            if (verifier := both(a.verifier, b.verifier)) is not None:
                mistake, summary = f"{a.mistake}, and {b.mistake}", f"{a.summary} {b.summary}"
                pairs.append(KnownBug(verifier, mistake, summary, a.threads + b.threads))
    return tuple(pairs)


def _fitting_mistakes(
    bugs: Iterable[tuple[KnownBug, Adapter]],
    observations: Sequence[Observation],
    same: Same,
    until: float,
    most: int | None = None,
) -> tuple[Diagnosis, ...]:
    fitting = (bug for bug, verifier in bugs if _explains(verifier, observations, same, until))
    named = {bug.name: _as_diagnosis(bug) for bug in itertools.islice(fitting, most)}
    return tuple(named.values())


def _as_diagnosis(bug: KnownBug) -> Diagnosis:
    return Diagnosis(bug.name, bug.mistake, bug.summary, tuple(bug.threads))


def _in_loop(verifier: Adapter, loop: Adapter, cut: bool, drafts: bool) -> Adapter:
    """Repeat a verifier of one step as a loop may do."""
    return _repeated(verifier, cut, loop.max_tokens, loop.end, loop.stop, loop.processor, drafts)


@lru_cache(maxsize=1024)
def _repeated(verifier: Adapter, *options: Any) -> Adapter:
    return Repeated(verifier, *options)


def _diagnose_directly(
    observations: Sequence[Observation], loop: Runner | None
) -> tuple[Diagnosis, ...]:
    """Name a mistake without comparison: at the end of texts, or in the use of a processor."""
    named = () if loop is None else _diagnose_by_rows(observations)
    if loop is not None and (named := named or _diagnose_by_ends(observations)):
        return named
    use = wrong_use(observations)
    return tuple(_as_diagnosis(bug) for bug in KNOWN_BUGS if bug.name == use)


def _diagnose_by_rows(observations: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Name the mistake of a batch that most runs show by a token or a text that no row can have.

    Such a text proves the mistake, no matter what the other outputs are.
    """
    known = {bug.name: bug for bug in ROWS}
    off = [seen for seen in observations if seen.deviates(CLOSE)]
    if off and all(map(_dependent_twins, off)):
        return (_as_diagnosis(known[DEPENDENT]),)
    shown: Counter[str] = Counter()
    for seen in observations:
        for outcome, probability in seen.probs.items():
            mistake = outcome.mistake if isinstance(outcome, Failure) else ""
            if mistake in known and probability > ISOLATED:
                shown[mistake] += float(probability)  # type: ignore[assignment]
    # Any other mistake explains why a text changes with the other rows.
    causes = {name: p for name, p in shown.items() if name != DEPENDENT} or shown
    most = max(causes, key=causes.__getitem__, default=None)
    return () if most is None else (_as_diagnosis(known[most]),)


def _dependent_twins(seen: Observation) -> bool:
    """Whether each of two texts of one prompt has the right distribution by itself."""
    target = seen.instance.target
    if not isinstance(target, TwinRows) or seen.counts is not None:
        return False
    each = seen.length // 2
    right = sequence_distribution(target.single, seen.instance.prompt, each)
    for half in (slice(each), slice(each, None)):
        found: dict[Path, Any] = {}
        for text, probability in seen.sequences.items():
            found[text[half]] = found.get(text[half], 0) + probability
        if float(distance(found, right)) > seen.error + CLOSE:
            return False
    return True


def _diagnose_by_ends(observations: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Name mistakes at the end of a text, if they alone explain the deviation.

    Then all failures are such mistakes, and no other output is too frequent.
    """
    names: dict[str, float] = {}
    for seen in observations:
        for outcome, probability in seen.probs.items():
            if isinstance(outcome, Failure):
                if not outcome.mistake:
                    return ()
                names[outcome.mistake] = names.get(outcome.mistake, 0) + float(probability)
        allowed = SAMPLED if seen.counts is not None else seen.error + CLOSE
        more = (float(p - seen.target.get(path, 0)) for path, p in seen.sequences.items())
        if sum(each for each in more if each > 0) > allowed:
            return ()
    named = {bug.name: bug for bug in KNOWN_BUGS if bug.name in names}
    ranked = sorted(named, key=lambda name: -names[name])
    return tuple(_as_diagnosis(named[name]) for name in ranked)


def _explains(
    adapter: Adapter, observations: Sequence[Observation], same: Same, until: float
) -> bool:
    """Whether a mistake, wherever it applies, has the observed distributions and a deviation."""
    shows, isolated = False, not any(seen.is_off(SINGLE) for seen in observations)
    for seen in observations:
        if not adapter.supports(seen.instance):
            continue
        check_time(until, "known mistakes take")
        known = _observe_bug(adapter, seen.instance)
        if known is None:
            continue
        if not same(seen, known):
            return False
        shows = shows or known.tv_distance > 0 or (isolated and known.impossible is not None)
    return shows


@lru_cache(maxsize=16384)
def _observe_bug(adapter: Adapter, instance: Instance) -> Observation | None:
    """Observe a known bug; cached, because audits share most instances."""
    try:
        return observe_by_paths(Runner(adapter), instance)
    except (UnsuitedError, ProblemTooLargeError):
        return None
