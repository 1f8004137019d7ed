"""Tokens grouped and ordered by their ratio of target to draft probability, exactly.

Not here: what rules make of the order (`otm.optimum`, `otm.coupling`).
"""
