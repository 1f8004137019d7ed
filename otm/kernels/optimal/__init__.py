"""The optimal rule for bins of the ratio of target to draft, at one node.

Not here: the recursion along several chains (`otm.kernels.multi_draft`).
"""
