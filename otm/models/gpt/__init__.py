"""Byte-level GPT models: the network, its files, the shipped weights and the training program.

N-gram models, which also work on bytes, are in `otm.models.ngram`.
"""
