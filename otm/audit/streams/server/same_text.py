"""Evidence that a server makes its lists after it draws the tokens.

Such a server passes every comparison of a token with its own list.  But the list of an earlier
request after the same text cannot depend on a later token.  So later tokens and later lists are
compared with the first list after the same text.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from otm._core.listed_tokens import is_unclear
from otm.audit.streams.server.answers import Completion
from otm.audit.streams.server.evidence import CLASSES, FAMILIES, Evidence, Floats, Group
from otm.audit.streams.server.laws import Law
from otm.decoding import SamplingParameters

STEADY = 0.05
"""Allowed TV between lists of a right server after the same text: batches round differently."""

LEAST = 48
"""Fewest comparisons with earlier lists in an audit that calls a server lossless."""

MOST_TEXTS = 2**17
"""Number of texts whose first lists are kept."""


class SameText:
    """Comparisons of lists and tokens with the first list after the same text."""

    def __init__(self, sizes: dict[str, int], drift: float) -> None:
        """Begin without texts; `sizes`: number of groups "prompt", "setting" and "place"."""
        self._drift = max(drift, STEADY)
        self.evidence = Evidence(sizes, drift=self._drift)
        self.tokens = 0  # those with an earlier list after the same text
        self._distances = 0.0
        self._shift: Floats = np.zeros((FAMILIES, CLASSES))
        self._texts: dict[tuple[Hashable, str], int] = {}
        self._first: dict[tuple[Hashable, SamplingParameters], Law] = {}

    @property
    def mean_distance(self) -> float:
        """Mean TV of a list from the first one after the same text."""
        return self._distances / max(self.tokens, 1)

    @property
    def shift(self) -> float:
        """TV between the mean of later lists and the mean of their first lists, in classes."""
        return float(np.abs(self._shift).sum(axis=1).max()) / 2 / max(self.tokens, 1)

    def add(
        self,
        prompt: int,
        parameters: SamplingParameters,
        answers: Sequence[Completion],
        laws: Sequence[Sequence[Law | None]],
        error: float = 0.0,
    ) -> None:
        """Compare tokens and lists of a block with the first lists after the same texts.

        Rounded lists may be off by `error` besides.
        """
        self.evidence.drift = self._drift + error
        rows: list[tuple[Floats, list[Group]]] = []
        for answer, each in zip(answers, laws, strict=True):
            text: Hashable = ("prompt", prompt)
            groups: list[Group] = [("prompt", prompt), ("setting", parameters)]
            for place, (token, law) in enumerate(zip(answer.tokens, each, strict=True)):
                first = self._first.get((text, parameters))
                if first is not None:
                    # whether the token counts is decided by the first list alone
                    if first.of(token) is not None:
                        rows.append((first.merged(token), [*groups, ("place", place)]))
                    if law is not None:
                        self._compare(first, law)
                elif law is not None:
                    self._first[text, parameters] = law
                if is_unclear(token):
                    break  # another token may have the same string
                known = self._texts.get((text, token))
                if known is None:
                    if len(self._texts) >= MOST_TEXTS:
                        break
                    known = self._texts[text, token] = len(self._texts)
                text = known
        self.evidence.add(rows)

    def _compare(self, first: Law, later: Law) -> None:
        self.tokens += 1
        if first is not later:
            self._distances += first.distance(later)
            self._shift += first.merged_here(later) - first.merged_probs
