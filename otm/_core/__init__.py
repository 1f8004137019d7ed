"""Shared private modules: arithmetic, checks, probabilities, text, files.

Users import nothing from here.  `otm.coupling` and `otm.kernels` export what authors of rules and
kernels need.
"""
