"""Causal and encoder–decoder models of Hugging Face transformers.

Not here: our loop inside its `generate` (`otm.integrations.huggingface`).
"""
