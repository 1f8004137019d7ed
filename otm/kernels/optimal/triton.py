"""Optimal rule for bins as Triton kernels, with the decisions of `otm.kernels.optimal.torch`."""

from __future__ import annotations

from functools import partial

from otm.kernels.multi_draft.triton import verify_chains

verify = partial(verify_chains, by_bins=True)
"""Verify K chains by the optimal rule for bins at each position."""
