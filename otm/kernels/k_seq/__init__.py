"""k-Seq at one node, with a division factor from a grid.

Not here: the recursion along several chains (`otm.kernels.multi_draft`).
"""
