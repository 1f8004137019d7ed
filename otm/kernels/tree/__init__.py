"""Verification of trees of drafts that are deterministic, or sampled without replacement.

Not here: verification of trees on the host by any rule (`otm.decoding.verifiers`).
"""
