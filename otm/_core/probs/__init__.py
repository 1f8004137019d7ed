"""Distributions over tokens: checked, dense or sparse, sampled from, and drawn as pictures.

Not here: joint distributions of drafts (`otm.drafts`).
"""
