"""The check, on first use of a GPU, that Triton's kernels decide as torch does.

Not here: the cases of trees and of clocks, which are beside their kernels.
"""
