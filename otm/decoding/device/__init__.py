"""Decoding steps that stay on the device of the models: sessions, drafts, verification by kernels.

The kernels are in `otm.kernels`, and decoding steps on the host are in `otm.decoding.rounds`.
"""
