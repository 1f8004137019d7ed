"""The exact optimum of block verification for several drafts: a linear program over the nodes.

The program, its proof and its certificate are in docs/theory/block.md.  `otm.solve_block` solves
it; what it returns is an `otm.BlockSolution`.

Not here: rules that verify blocks (`otm.decoding.verifiers`, `otm.kernels`).
"""
