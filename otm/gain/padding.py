"""Padding in files of scores: columns that are no tokens, and rows that are no positions.

Models round their vocabulary up, and arrays of different lengths are filled up.  Such columns and
rows would count: a logit of 0 is a likely token, and a row of zeros a position where every draft is
accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.distribution import sum_tolerance
from otm.errors import InvalidDistributionError, InvalidInputError

MOST_CUT = 1e-4
"""Most mass of a row that columns beyond the vocabulary may have."""

FEW_ZEROS = 8
"""Fewer zeros in the last columns of a block may be logits."""


@dataclass(frozen=True)
class Padding:
    """How many tokens the rows of a file have, where its reader was told."""

    vocabulary: int | None
    begins_with_zeros: bool = False  # whether the first row of the file is zero everywhere

    def check(self, rows: npt.NDArray[Any], kind: str, name: str, first: int) -> None:
        """Refuse consecutive rows [R, V], the first of this number, that are padded.

        That is by columns of NaN or by zeros; zeros as probabilities are right.
        """
        with np.errstate(invalid="ignore"):  # NaN of damaged files
            tokens = rows[:, : self.vocabulary]
            where = f"rows {first} to {first + len(rows) - 1} of {name}"
            if np.isnan(tokens[0]).any():
                missing = np.asarray(np.isnan(tokens).all(axis=0))
                if missing.any() and not missing.all():
                    raise InvalidInputError(
                        f"{where} are NaN in {columns_in_words(missing)}; {advice_on(missing)}"
                    )
            if kind != "probabilities" and tokens.shape[1] > 1:
                self._check_zeros(tokens, kind, name, where, first)

    def _check_zeros(
        self, tokens: npt.NDArray[Any], kind: str, name: str, where: str, first: int
    ) -> None:
        """Refuse rows of zeros beside others, and last columns of zeros, as in `check`."""
        full = tokens.any(axis=1)
        if self.begins_with_zeros and not full.any():  # a file of uniform distributions
            return
        if not full.all():
            raise InvalidInputError(
                f"row {first + int(full.argmin())} of {name} is zero everywhere, as rows are that "
                f"fill an array up; as {kind} it would count as a position where all tokens are "
                "equally likely: leave such rows out of both files, or write another constant if "
                "they are"
            )
        if self.vocabulary is not None or tokens[:, -1].any() or are_probabilities(tokens[0]):
            return
        used = np.flatnonzero(tokens.any(axis=0))
        zero = np.arange(tokens.shape[1]) > used[-1]
        if len(tokens) * np.count_nonzero(zero) >= FEW_ZEROS:
            raise InvalidInputError(
                f"{where} are zero in {columns_in_words(zero)}, which would be likely tokens as "
                f"{kind}; {advice_on(zero)}; if they are tokens, --vocabulary {zero.size} "
                f"(vocabulary={zero.size})"
            )

    def without_padding(self, scores: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
        """Return a row with what is NaN, or all zero, beyond the vocabulary as impossible."""
        if self.vocabulary:
            beyond = scores[self.vocabulary :]
            empty = np.isnan(beyond) if beyond.any() else np.ones(beyond.size, dtype=np.bool_)
            beyond[empty] = 0 if kind == "probabilities" else -np.inf
        return scores

    def fit(self, logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Cut a row of logits to the vocabulary, or fill it up with −∞."""
        n = self.vocabulary
        if n is None or n == logits.size:
            return logits
        if n > logits.size:
            return np.append(logits, np.full(n - logits.size, -np.inf))
        with np.errstate(invalid="ignore"):  # rows that have no softmax are refused behind this
            weights = np.exp(logits - logits.max())
            cut = float(weights[n:].sum() / weights.sum())
        if logits[n:].max() == np.inf:
            cut = 1.0
        if cut > MOST_CUT:
            raise InvalidDistributionError(
                f"the columns from {n} on have {cut:.2g} of the mass, more than {MOST_CUT:g}, and "
                f"are no padding then; give the number of tokens, or cut them off yourself"
            )
        return logits[:n]


def are_probabilities(scores: npt.NDArray[Any]) -> bool:
    """Whether a row of scores lies in [0, 1] and sums to one, as logits of three tokens do not."""
    if scores.size < 3 or not (scores.min() >= 0 and scores.max() <= 1):
        return False
    total = scores.sum(dtype=np.float64)
    return bool(abs(total - 1) <= sum_tolerance("float16", scores.size))


def columns_in_words(chosen: npt.NDArray[np.bool_]) -> str:
    """Name columns: "columns 3 to 5", or the first of those that are apart."""
    places = np.flatnonzero(chosen)
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == places.size:
        return f"column {first}" if first == last else f"columns {first} to {last}"
    more = f" and {places.size - 5:,} more" if places.size > 5 else ""
    return f"columns {', '.join(map(str, places[:5].tolist()))}{more}"


def advice_on(chosen: npt.NDArray[np.bool_]) -> str:
    """Say what to do about columns that are no tokens."""
    n = int(chosen.argmax())
    if n and chosen[n:].all():
        return (
            "if they only fill the vocabulary up, say how many tokens there are: --vocabulary "
            f"{n} (vocabulary={n})"
        )
    return "write −inf there, or 0 in probabilities, if these tokens are never sampled"
