"""Tokens grouped and sorted by their ratio of target to draft probability.

`otm.optimum` and `otm.coupling` have the optimum and the rules that use this order.
"""
