"""The optimum of bins as Triton kernels: the decisions of `otm.kernels.torch.grid_optimal`."""

from __future__ import annotations

from functools import partial

from otm.kernels.triton.multi_draft import verify_chains

verify = partial(verify_chains, by_bins=True)
"""Verify K chains, selecting among the drafts of a position by the bins of their ratios."""
