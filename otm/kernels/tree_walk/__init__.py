"""Walk and keep over trees of certain children and at most one drawn child a node.

Not here: several drawn children, token by token (`otm.kernels.tree`), or independent chains
(`otm.kernels.walk_and_keep`).
"""
