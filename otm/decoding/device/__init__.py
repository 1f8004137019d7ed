"""Rounds that stay on the device of the models: sessions, drafts and verification by kernels.

Not here: the kernels (`otm.kernels`), and rounds on the host (`otm.decoding.rounds`).
"""
