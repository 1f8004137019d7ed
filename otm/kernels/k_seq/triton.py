"""k-Seq on a grid as Triton kernels, with the same decisions as `otm.kernels.k_seq.torch`."""

from __future__ import annotations

from functools import partial

from otm.kernels.multi_draft.triton import verify_chains

verify = partial(verify_chains, by_bins=False)
"""Verify K chains by k-Seq on the grid at each position."""
