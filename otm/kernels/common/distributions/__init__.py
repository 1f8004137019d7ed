"""Conversion of logits to probabilities, and of probabilities to integer masses.

Not here: checks of callers' arguments (`otm.kernels.checks`).
"""
