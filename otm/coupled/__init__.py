"""Drafts and output from one seed: list coupling, shared clocks, coupled decoding, watermarks.

`decode_coupled` decodes a text that does not depend on the drafter.  `decode_watermarked` decodes a
text that `detect_watermark` recognises with a key.  `ListCoupling` is the exact rule for one token.
Verification with independent randomness is in `otm.decoding`.
"""

from typing import TYPE_CHECKING

from otm._core.lazy import lazy

if TYPE_CHECKING:
    from otm.coupled.decode import decode_coupled, decode_watermarked
    from otm.coupled.list_coupling import ListCoupling
    from otm.coupled.rounds import CoupledVerifier
    from otm.coupled.watermark import WatermarkVerifier, watermark_keys
    from otm.coupled.watermark_detection import (
        Detection,
        WatermarkStatistics,
        detect_watermark,
        watermark_statistics,
    )
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "CoupledVerifier",
    "Detection",
    "ListCoupling",
    "WatermarkStatistics",
    "WatermarkVerifier",
    "decode_coupled",
    "decode_watermarked",
    "detect_watermark",
    "watermark_keys",
    "watermark_statistics",
]
