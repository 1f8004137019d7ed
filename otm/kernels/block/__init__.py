"""Block verification of one chain of drafts.

Not here: traversal verification, which is block verification of trees on the host
(`otm.decoding.verifiers.block_traversal`).
"""
