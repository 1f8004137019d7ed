"""SpecTr's recursion along several chains of drafts, for k-Seq and the optimal rule for bins.

Not here: the decision at one node (`otm.kernels.k_seq`, `otm.kernels.optimal`).
"""
