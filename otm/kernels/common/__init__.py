"""Steps that the kernels of several rules share: probabilities, rows, draws and launches.

Not here: what one rule alone does, which is in the folder of the rule.
"""
