"""Block verification of one chain of drafts.

Not here: block verification of a tree on the host (`otm.decoding.verifiers.block_traversal`).
"""
