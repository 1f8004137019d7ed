"""Block verification as Triton kernels, with the same decisions as `otm.kernels.block.torch`."""

from __future__ import annotations

from functools import partial

from otm.kernels.common.one_chain import verify_chain

verify = partial(verify_chain, by_block=True)
"""Accept the longest prefix of the drafts that passes its test, and draw the next token."""
