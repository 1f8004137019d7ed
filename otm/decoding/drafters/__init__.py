"""Drafters beside a draft model that drafts by itself ([leviathan2023]_, sections 3.6 and 6).

`PromptLookup` copies from the context, a `NonAutoregressiveDrafter` gives all laws at once, and an
`AcceleratedDrafter` is a draft model that a smaller one drafts for.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023.
"""

from otm.decoding.drafters.accelerated import AcceleratedDrafter
from otm.decoding.drafters.non_autoregressive import NonAutoregressiveDrafter, skip_gram_heads
from otm.decoding.drafters.prompt_lookup import PromptLookup

__all__ = ["AcceleratedDrafter", "NonAutoregressiveDrafter", "PromptLookup", "skip_gram_heads"]
