"""Steps that kernels of several rules share: probabilities, rows, draws and launches.

Also the Triton kernels of one chain (`one_chain`), which `chain` and `block` share.

Not here: what one rule alone does, which is in the folder of the rule.
"""
