"""Distributions over tokens: checked, dense or sparse, and sampled from.

Not here: joint distributions of drafts (`otm.drafts`).
"""
