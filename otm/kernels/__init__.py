"""Verification of drafts on tensors: tensors and uniforms in, decisions out.

- `definition`: chains of drafts as the papers write it, on NumPy arrays, exact on fractions;
- `reference`: the same decisions, batched, in torch on any device;
- `baseline`: the usual step-by-step version in torch, to measure against;
- `checks`: what they refuse.

Triton kernels with the signature of `reference` are to follow.
"""
