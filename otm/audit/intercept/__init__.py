"""Replace draws of a verifier from Python, NumPy and torch by the audit's uniforms.

Not here: the uniforms themselves, which `otm.testing.symbolic` splits at comparisons.
"""
