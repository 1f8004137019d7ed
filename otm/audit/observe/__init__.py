"""Compute or estimate the output distribution of a verifier.

The methods are exact paths, breakpoints and Monte Carlo.  Not here: recorded steps and servers,
which cannot be run again (`otm.audit.streams`).
"""
