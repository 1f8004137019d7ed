"""Drafts and output from the same seed: list coupling, its clocks, coupled decoding, watermarks.

`decode_coupled` decodes a text that no drafter changes, `decode_watermarked` one that
`detect_watermark` recognises by a key.  `ListCoupling` is the rule for one token, exactly.
Not here: verification with randomness of its own (`otm.decoding`).
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
        WatermarkLaw,
        detect_watermark,
        watermark_laws,
    )
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "CoupledVerifier",
    "Detection",
    "ListCoupling",
    "WatermarkLaw",
    "WatermarkVerifier",
    "decode_coupled",
    "decode_watermarked",
    "detect_watermark",
    "watermark_keys",
    "watermark_laws",
]
