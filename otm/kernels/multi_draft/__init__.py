"""SpecTr's recursion along several chains of drafts, for k-Seq and the optimum of bins.

Not here: the decision at one node (`otm.kernels.k_seq`, `otm.kernels.optimal`).
"""
