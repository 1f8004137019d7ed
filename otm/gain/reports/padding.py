"""Padding in files of scores: columns without a token, and rows without a position.

Models round the size of their vocabulary up, and shorter arrays are padded to a common length.
Padding would change the results: a token with logit 0 would be probable, and at a row of zeros
every draft would be accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.probs.distribution import sum_tolerance
from otm.errors import InvalidDistributionError, InvalidInputError

MOST_CUT = 1e-4
"""Largest allowed mass of a row in columns beyond the vocabulary."""

FEW_ZEROS = 8
"""Smallest number of zeros in final columns that counts as padding; fewer may be real logits."""


@dataclass(frozen=True)
class Padding:
    """Padding of a file's rows, with the number of tokens if the user gave it."""

    vocabulary: int | None
    # whether the first row of the file is zero everywhere
    begins_with_zeros: bool = False

    def check(self, rows: npt.NDArray[Any], kind: str, name: str, first: int) -> None:
        """Raise if consecutive rows [R, V] are padded; `first` is the index of the first row.

        Columns of NaN are padding. Zeros are padding unless the scores are probabilities.
        """
        # damaged files may contain NaN
        with np.errstate(invalid="ignore"):
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
        """Raise on rows of zeros among other rows, and on final columns of zeros."""
        full = tokens.any(axis=1)
        # such a file has uniform distributions
        if self.begins_with_zeros and not full.any():
            return
        if not full.all():
            raise InvalidInputError(
                f"row {first + int(full.argmin())} of {name} is zero everywhere, like padding; as "
                f"{kind} it would mean that all tokens are equally probable: leave such rows out "
                "of both files, or write another constant if the tokens are equally probable"
            )
        if self.vocabulary is not None or tokens[:, -1].any() or are_probabilities(tokens[0]):
            return
        used = np.flatnonzero(tokens.any(axis=0))
        zero = np.arange(tokens.shape[1]) > used[-1]
        if len(tokens) * np.count_nonzero(zero) >= FEW_ZEROS:
            raise InvalidInputError(
                f"{where} are zero in {columns_in_words(zero)}, like padding; as {kind} these "
                f"tokens would be probable: {advice_on(zero)}; if they are tokens, give "
                f"--vocabulary {zero.size} (vocabulary={zero.size})"
            )

    def without_padding(self, scores: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
        """Make tokens beyond the vocabulary impossible, if they are NaN or all zero."""
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
        # rows without a finite softmax raise an error later
        with np.errstate(invalid="ignore"):
            weights = np.exp(logits - logits.max())
            cut = float(weights[n:].sum() / weights.sum())
        if logits[n:].max() == np.inf:
            cut = 1.0
        if cut > MOST_CUT:
            raise InvalidDistributionError(
                f"the columns from {n} on have {cut:.2g} of the mass, more than {MOST_CUT:g}, so "
                "they are not padding; give the right number of tokens, or remove the columns"
            )
        return logits[:n]


def are_probabilities(scores: npt.NDArray[Any]) -> bool:
    """Whether a row of three scores or more lies in [0, 1] and sums to one."""
    if scores.size < 3 or not (scores.min() >= 0 and scores.max() <= 1):
        return False
    total = scores.sum(dtype=np.float64)
    return bool(abs(total - 1) <= sum_tolerance("float16", scores.size))


def columns_in_words(chosen: npt.NDArray[np.bool_]) -> str:
    """Write columns as "columns 3 to 5", or as a list of the first five if there are gaps."""
    places = np.flatnonzero(chosen)
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == places.size:
        return f"column {first}" if first == last else f"columns {first} to {last}"
    more = f" and {places.size - 5:,} more" if places.size > 5 else ""
    return f"columns {', '.join(map(str, places[:5].tolist()))}{more}"


def advice_on(chosen: npt.NDArray[np.bool_]) -> str:
    """Return advice about columns without tokens."""
    n = int(chosen.argmax())
    if n and chosen[n:].all():
        return (
            f"if they are padding, give the number of tokens with --vocabulary {n} (vocabulary={n})"
        )
    return "write −inf there (0 in probabilities) if these tokens are never sampled"
