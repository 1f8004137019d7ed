"""What verifiers return, as tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.tensors import to_host
from otm.decoding.reading import Path

PADDING = -1


def as_tokens(result: Any) -> Path:
    """Read tokens from a list, an array or a tensor, padded or with the number accepted.

    Parameters
    ----------
    result : array-like [n], or tuple of such and an integer
        Tokens, of which a −1 at the end and those before it are padding; or the tokens and how many
        drafts were accepted, so that one more of them counts.

    Returns
    -------
    tuple of int
        Or, where it is nothing of the kind, what was given: the audit then reports it.

    Examples
    --------
    >>> as_tokens(np.array([2, 0, -1, -1])), as_tokens(([2, 0, 1], 1)), as_tokens([5])
    ((2, 0), (2, 0), (5,))
    """
    if isinstance(result, tuple) and len(result) == 2 and np.ndim(to_host(result[0])) == 1:
        tokens, accepted = (np.asarray(to_host(part)) for part in result)
        if accepted.size != 1 or accepted.dtype.kind not in "iu":
            return result
        return tuple(tokens[: int(accepted.item()) + 1].tolist())
    array = np.asarray(to_host(result))
    if array.ndim != 1:
        return result  # type: ignore[no-any-return]
    tokens = array.tolist()
    while tokens and tokens[-1] == PADDING:
        tokens.pop()
    return tuple(tokens)
