"""Slots and swaps between levels as Triton kernels: the decisions of `otm.kernels.torch.levels`."""

from __future__ import annotations

from functools import partial

from otm.kernels.triton.multi_draft import verify_chains

verify = partial(verify_chains, by_levels=True)
"""Verify K chains, selecting among the drafts of a position by the levels of their ratios."""
