"""Verification of trees of drafts: certain ones, or sampled without replacement.

Not here: trees on the host, by any rule (`otm.decoding.verifiers`).
"""
