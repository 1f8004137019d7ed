"""Drafts from a target's hidden states: the layer, its model and files, and its training.

The target's side, which records the states, is `otm.models.huggingface.states`.  The weights of the
layers in this package are in `weights/`.
"""
