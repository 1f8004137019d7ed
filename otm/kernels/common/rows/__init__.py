"""Conversion of engines' rows: packed rows, logits and sparse drafts.

Not here: which row belongs to which draft (`otm.kernels.layout`).
"""
