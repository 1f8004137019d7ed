"""The `generate` method of Hugging Face transformers, with the drafts and verifiers of OTM.

Not here: its models under our loop (`otm.models.huggingface`).
"""

from otm.integrations.huggingface.generate import AssistedDecoding
from otm.integrations.huggingface.patching import patch_generate

__all__ = ["AssistedDecoding", "patch_generate"]
