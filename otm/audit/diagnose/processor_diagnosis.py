"""Recognize wrong uses of a logits processor in a loop, from the distribution of each token.

Loops draft in different ways, so the same mistake has different output distributions.  But after
each prefix, the next token of a wrong loop follows a mixture of a few rows: the processed row, the
unprocessed row, and rows that are processed with shorter histories.  The weights depend on how
often a step ends before the token; the rows show the mistake.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otm.audit.adapters.base import Failure
from otm.audit.adapters.processed import ProcessedModel
from otm.audit.observe.observation import Observation
from otm.decoding.reading import Path

Row = npt.NDArray[np.float64]

CLOSE = 1e-6
"""Tolerance of a probability, in addition to the observation's error."""

UNCLEAR = 0.01
"""Rows with a larger tolerance are ignored: their prefixes are too rare."""


FEWEST = 4
"""Smallest number of pairs of models that must show a mistake: a few pairs fit several mistakes."""


@dataclass(frozen=True, eq=False)
class Token:
    """Distribution of the token after a prefix, and the rows that it may come from."""

    # Row of the output, and row of a correct loop.
    output: Row
    processed: Row
    # Target row without the processor, and draft rows without and with it.
    raw: Row
    drafts: tuple[Row, Row]
    # Target rows processed with each shorter history, from the prompt on.
    stale: tuple[Row, ...]
    tolerance: float
    # Number of output tokens before this one, and smallest number of drafts of a first step.
    place: int
    drafted: int

    def is_near(self, row: Row) -> bool:
        """Whether the row of the output equals this row, within the tolerance."""
        return bool(abs(self.output - row).max() <= self.tolerance)

    @property
    def is_wrong(self) -> bool:
        """Whether the row of the output differs from the processed row."""
        return not self.is_near(self.processed)

    def is_mixture(self, *rows: Row) -> bool:
        """Whether the output is a mixture of some rows and the processed row."""
        corners = [*rows, self.processed]
        for size in range(1, min(len(corners), self.output.size) + 1):
            for chosen in itertools.combinations(corners, size):
                # The last equation says that the weights sum to 1.
                columns = np.vstack([np.array(chosen).T, np.ones(size)])
                weights = np.linalg.lstsq(columns, np.append(self.output, 1), rcond=None)[0]
                off = abs(columns @ weights - np.append(self.output, 1)).max()
                if off <= self.tolerance and weights.min() >= -self.tolerance:
                    return True
        return False

    def tested_raw(self, draft: Row) -> Row:
        """Return the output if the raw row tests drafts, and the processed row replaces them."""
        accepted = np.minimum(self.raw, draft)
        rest = np.maximum(self.processed - draft, 0)
        rest = rest if rest.any() else self.processed
        row: Row = accepted + (1 - accepted.sum()) * rest / rest.sum()
        return row


def _dropped(tokens: Sequence[Token]) -> bool:
    return all(token.is_near(token.raw) for token in tokens)


def _argmax(tokens: Sequence[Token]) -> bool:
    """Whether each token is certain and is a most probable one; rounding decides ties."""
    for token in tokens:
        chosen = token.output.argmax()
        tied = token.processed[chosen] >= token.processed.max() - CLOSE
        if not tied or token.output[chosen] < 1 - token.tolerance:
            return False
    return True


def _bonus_alone(tokens: Sequence[Token]) -> bool:
    """Whether the first drafts have raw rows; the target may sample one token before them."""
    mixed = all(token.is_mixture(token.raw) for token in tokens if token.is_wrong)
    return mixed and any(
        all(t.is_near(t.raw) for t in tokens if sampled <= t.place < t.drafted + sampled)
        and not any(t.is_wrong for t in tokens if t.place < sampled)
        for sampled in (0, 1)
    )


def _first_alone(tokens: Sequence[Token]) -> bool:
    return all(t.place > 0 and t.is_mixture(t.raw) for t in tokens if t.is_wrong)


def _once_a_step(tokens: Sequence[Token]) -> bool:
    return all(t.place > 0 and t.is_mixture(*t.stale) for t in tokens if t.is_wrong)


def _tested_raw(tokens: Sequence[Token]) -> bool:
    wrong = [token for token in tokens if token.is_wrong]
    for kind in (0, 1):
        rows = [token.tested_raw(token.drafts[kind]) for token in wrong]
        pairs = list(zip(wrong, rows, strict=True))
        if all(t.is_mixture(row) for t, row in pairs) and any(t.is_near(row) for t, row in pairs):
            return True
    return False


TESTS: dict[str, Callable[[Sequence[Token]], bool]] = {
    "processor dropped": _dropped,
    "filter, then argmax": _argmax,
    "processor on the bonus token alone": _bonus_alone,
    "processor at the first position alone": _first_alone,
    # This mixture has more rows, and may contain those of the mistakes above.
    "processor applied once a step": _once_a_step,
    "processor missing in the test of drafts": _tested_raw,
}
"""Known mistakes by name, each with the predicate that recognizes it; the first match counts."""


def wrong_use(observations: Sequence[Observation]) -> str | None:
    """Name the known mistake that all tokens of all observations show, or return None."""
    by_pair = [list(_tokens(seen)) for seen in observations]
    if sum(any(token.is_wrong for token in tokens) for tokens in by_pair) < FEWEST:
        return None
    tokens = [token for of_pair in by_pair for token in of_pair]
    return next((name for name, holds in TESTS.items() if holds(tokens)), None)


def _tokens(seen: Observation) -> Iterator[Token]:
    """Yield the tokens of a processed target, except after rare prefixes and after ends."""
    instance, target = seen.instance, seen.instance.target
    if not isinstance(target, ProcessedModel) or any(isinstance(o, Failure) for o in seen.probs):
        return
    if seen.counts is not None:
        # Frequencies of a few thousand runs are too rough to distinguish the mixtures.
        return
    drafted = min(*(instance.gammas or (instance.gamma,)), seen.length - 1)
    start = len(instance.prompt)
    for here in seen.prefixes():
        tolerance = CLOSE + seen.error / float(here.probability)
        context: Path = instance.prompt + here.prefix
        if tolerance > UNCLEAR or target.has_ended(context):
            continue
        draft = target.of(instance.draft)
        histories = [context[:end] for end in range(start, len(context))]
        yield Token(
            output=_floats(here.output_probs),
            processed=_floats(here.target_probs),
            raw=_floats(target.raw.probs(context)),
            drafts=(_floats(draft.raw.probs(context)), _floats(draft.probs(context))),
            stale=tuple(_floats(target.after(context, history)) for history in histories),
            tolerance=tolerance,
            place=len(here.prefix),
            drafted=drafted,
        )


def _floats(row: npt.NDArray[np.generic]) -> Row:
    return row.astype(np.float64)
