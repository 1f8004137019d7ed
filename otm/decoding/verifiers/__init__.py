"""Verifiers that accept drafts on the host, one method per file.

`by_rule` finds the verifier of a rule, or its kernel on a device.  Rules for a single token are in
`otm.coupling`, and verification on tensors is in `otm.kernels`.
"""
