"""Adapters that let the audit run functions, rules and verifiers of other libraries.

Adapters of functions are classes: `chain(function)` makes an adapter.  `functions` has the shared
code and the adapter of a verifier of one chain.  `token_rules`, `chains`, `trees`, `batches`,
`state_and_window`, `loops` and `batched_loops` have the other adapters of functions.  `choice`
selects the adapter of a user's function.  `neighbours` has the other rows of a batch of prompts.
`huggingface`, `vllm` and `flashinfer` have the adapters of libraries; each imports its library when
an adapter is made.  `otm_verifiers` and `otm_trees` have the adapters of OTM's own
verifiers.  `tree_drafts` draws the trees of an audit.

Not here: how the audit observes an adapter (`otm.audit.observe`).
"""
