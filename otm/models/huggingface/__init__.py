"""Causal and encoder–decoder models of Hugging Face transformers."""
