"""Code that several rules share: probabilities, rows, draws and launches of kernels.

The package includes `one_chain`, the Triton kernels for one chain, which `chain` and `block` share.

Not here: code that only one rule uses, which is in the rule's folder.
"""
