"""What accepts drafts on the host, one verification a file.

`by_rule` finds the verification of a rule, or its kernel on a device.

Not here: rules for one token (`otm.coupling`), and verification on tensors (`otm.kernels`).
"""
