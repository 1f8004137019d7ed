"""The first of the exponential clocks that drafts and output share, on every backend.

Not here: what is decided by it (`otm.coupled.rounds`, `otm.coupled.device_rounds`).
"""
