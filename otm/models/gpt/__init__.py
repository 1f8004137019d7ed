"""GPTs on bytes: the model, its files and shipped weights, and how they were trained.

Not here: other byte-level models, such as n-grams (`otm.models.ngram`).
"""
