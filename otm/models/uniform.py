"""The model that knows nothing: every token is as likely as any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from otm._core.arithmetic import read_only
from otm._core.numbers import as_vocabulary
from otm.models.stateless import StatelessModel


class UniformModel(StatelessModel):
    """The uniform law after every context, the weakest drafter that there is.

    It drafts tokens at random, "which guarantees some improvement (although very small) for all
    models" ([leviathan2023]_, section 3.6).

    Parameters
    ----------
    vocabulary : int
        Number of tokens, from 1 to 2^24.

    Raises
    ------
    InvalidParameterError
        If it is no such number.

    References
    ----------
    .. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via
       Speculative Decoding", ICML 2023.

    Examples
    --------
    >>> UniformModel(4).probs((2, 0)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = as_vocabulary(vocabulary)
        self._law = read_only(np.full(self.vocabulary, 1 / self.vocabulary))

    def probs(self, context: tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the distribution of the token that follows a context: array [V]."""
        return self._law
