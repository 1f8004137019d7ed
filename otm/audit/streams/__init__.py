"""Audits of tokens that cannot be sampled again: recorded steps, and answers of a server.

Not here: audits that run a verifier on chosen uniforms (`otm.audit.observe`).
"""
