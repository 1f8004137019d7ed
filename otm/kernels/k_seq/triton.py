"""k-Seq on a grid as Triton kernels: the decisions of `otm.kernels.k_seq.torch`."""

from __future__ import annotations

from functools import partial

from otm.kernels.multi_draft.triton import verify_chains

verify = partial(verify_chains, by_bins=False)
"""Verify K chains by k-Seq on the grid at each position."""
