"""Draw one token from each of several laws, by inverse cumulative distribution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otm.arithmetic import Law
from otm.input_checks import Uniforms

__all__ = ["locate_in_rows"]


def locate_in_rows(weights: Law, uniforms: Uniforms) -> npt.NDArray[np.int64]:
    """Token that each uniform draws from the weights in its row.

    Equivalent to `InverseCdf.from_weights(row).locate(u)` for every row: a token of weight zero is
    never drawn.

    Parameters
    ----------
    weights : array [B, n]
        Numbers of at least zero, in every row at least one of them positive.
    uniforms : array [B]
        Numbers in [0, 1).

    Returns
    -------
    int array [B]

    Examples
    --------
    >>> locate_in_rows(np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0]]), np.array([0.0, 0.9]))
    array([1, 0])
    """
    cumulative = np.cumsum(weights, axis=1)
    points = uniforms * cumulative[:, -1]
    found = (cumulative <= points[:, None]).sum(axis=1).astype(np.int64)
    # u · total can round up to the total itself
    last = weights.shape[1] - 1 - (weights[:, ::-1] > 0).argmax(axis=1)
    tokens: npt.NDArray[np.int64] = np.minimum(found, last)
    return tokens
