"""Batched selection on tensors, in torch and Triton.  Empty in this version.

It will hold the rules of `otm.coupling` on the GPU, with the verification kernels of
Wagner et al. (2024).
"""
