"""Drafters: they propose chains or trees from a language model, the context, or heads.

The joint distributions of the children of a node are in `otm.drafts`.
"""
