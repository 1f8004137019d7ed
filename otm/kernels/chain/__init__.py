"""Token-by-token verification of one chain of drafts, and its lossy sigmoid variant.

Not here: several chains (`otm.kernels.multi_draft`, `otm.kernels.walk_and_keep`).
"""
