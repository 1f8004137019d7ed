"""Adapters of the audit from what others have: functions, rules, libraries.

The adapters of functions are classes that are called as functions: `functions` has what they share
and the verifier of one chain; `token_rules`, `chains`, `trees`, `batches`, `state_and_window` (a
state or a window) and `loops` have the others, and `choice` chooses among them.  Adapters of
libraries are in `huggingface`, `vllm` and `flashinfer`, which load the library when one is asked
for; those of this project in `otm_verifiers`.

Not here: what is observed of them (`otm.audit.observe`).
"""
