"""Tokens of two vocabularies: spelled, matched by name, and translated.

Not here: drafters between vocabularies (`otm.decoding.drafters.strings`).
"""
