"""Self-check on first use of a GPU: Triton's kernels must make the same decisions as torch.

Not here: test cases for trees and for couplings by clocks, which are next to their kernels.
"""
