"""What accepts drafts on the host: one verification of chains or trees a file.

Not here: rules for one token (`otm.coupling`), and verification on tensors (`otm.kernels`).
"""
