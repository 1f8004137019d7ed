"""Causal and encoder–decoder models of Hugging Face transformers.

Speculative decoding inside `generate` of transformers is in `otm.integrations.huggingface`.
"""
