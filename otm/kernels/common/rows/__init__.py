"""Rows as engines hold them: packed, as logits, or listed by their tokens.

Not here: which row belongs to which draft (`otm.kernels.layout`).
"""
