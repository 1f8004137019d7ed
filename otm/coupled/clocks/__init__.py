"""Exponential clocks that drafts and output share, and selection of the smallest clock time.

Decoding with these clocks is in `otm.coupled.rounds` and `otm.coupled.device_rounds`.
"""
