"""Chain verification as Triton kernels, with the same decisions as `otm.kernels.chain.torch`."""

from __future__ import annotations

from functools import partial

from otm.kernels.common.one_chain import verify_chain

verify = partial(verify_chain, by_block=False)
"""Accept drafts up to the first rejection, and draw the next token."""
