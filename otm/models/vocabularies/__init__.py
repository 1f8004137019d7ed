"""Draft and target models with different vocabularies: spellings, shared tokens and translation.

Drafters that work between vocabularies are in `otm.decoding.drafters.strings`.
"""
