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
    """Seed the global generators of Python, NumPy and torch (on the CPU), and restore them after.

    A verifier that draws for itself mostly draws from these; the audit then repeats itself.
    Warnings are silenced: what a verifier does after 0/0 is seen in what it returns.

    Parameters
    ----------
    seed : int
        At least 0.
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
