"""What verifiers return, as tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from otm._core.tensors import to_host
from otm.decoding.reading import Path

PADDING = -1


def as_tokens(result: Any) -> Path:
    """Read the tokens [n] of a list, an array or a tensor; −1 at the end is padding.

    Of a tuple (tokens, number accepted) one token more than accepted counts.  Anything else is
    returned as it is: the audit reports it.
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
