"""From logits to probabilities, and from probabilities to whole numbers that are added.

Not here: checks of what callers pass (`otm.kernels.checks`).
"""
