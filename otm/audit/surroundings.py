"""Where code of others is run: without warnings, and global generators as they were before."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def undisturbed(seed: int) -> Iterator[None]:
    """Seed the generators of Python, NumPy and torch (on the CPU), restore them; silence warnings.

    A verifier that draws for itself usually draws from these: the audit then repeats itself.  What
    it does after 0/0 shows in its output.
    """
    torch = sys.modules.get("torch")
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    of_torch = torch.get_rng_state() if torch is not None else None
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    if torch is not None:
        torch.default_generator.manual_seed(seed % 2**63)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(of_torch)
