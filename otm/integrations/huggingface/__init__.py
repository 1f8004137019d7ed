"""The `generate` method of Hugging Face transformers, with the drafters and verifiers of OTM.

Transformers models in OTM's own decoding loop are in `otm.models.huggingface`.
"""

from otm.integrations.huggingface.generate import AssistedDecoding
from otm.integrations.huggingface.patching import patch_generate

__all__ = ["AssistedDecoding", "patch_generate"]
