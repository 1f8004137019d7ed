"""Walk and keep over several chains of drafts, by bins of the ratio.

Not here: walk and keep over trees on the host (`otm.decoding.verifiers.walk_and_keep`).
"""
