"""Drafters beside a draft model that drafts by itself ([leviathan2023]_, sections 3.6 and 6).

`PromptLookup` copies from the context, a `NonAutoregressiveDrafter` gives all laws at once, and an
`AcceleratedDrafter` is a draft model that a smaller one drafts for.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""
