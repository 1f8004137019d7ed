"""Speculative decoding loops over a pair of models.  Empty in this version.

It will hold the draft–verify loops of Leviathan et al. (2023) and SpecTr (Sun et al., 2023).
"""
