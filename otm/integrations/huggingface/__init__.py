"""The `generate` method of Hugging Face transformers, with the drafts and verifiers of OTM."""

from otm.integrations.huggingface.plug import AssistedDecoding, plug

__all__ = ["AssistedDecoding", "plug"]
