"""What proposes drafts: a language model, the context, heads; in chains or in trees.

Not here: how the children of a node are distributed (`otm.drafts`).
"""
