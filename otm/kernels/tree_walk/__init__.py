"""Walk and keep over trees of certain children and at most one drawn child a node.

With certain children only, the output has the distribution of target-only sampling.  With a drawn
child too, at least as many drafts are accepted as by the greedy rule, token by token.

Not here: several drawn children, token by token (`otm.kernels.tree`), or independent chains
(`otm.kernels.walk_and_keep`).
"""
