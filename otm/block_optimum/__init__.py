"""The exact optimum of block verification for several drafts, from a linear program.

The program has one variable for each node of the draft tree.  docs/theory/block.md describes the
program, its proof and its certificate.  `otm.solve_block` solves it and returns an
`otm.BlockSolution`.

Rules that verify blocks are in `otm.decoding.verifiers` and `otm.kernels`.
"""
