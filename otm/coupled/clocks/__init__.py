"""The smallest of the exponential clocks that drafts and output share, on every backend.

Decoding with these clocks is in `otm.coupled.rounds` and `otm.coupled.device_rounds`.
"""
