"""Adapters of the audit from what others have: plain functions, rules, libraries.

Those of plain functions are in `plain` (one chain, one token, a loop), `several` (chains), `trees`,
`batches` and `calls` (a state or a window), and `kinds` chooses among them; of libraries in
`huggingface`, `vllm` and `flashinfer`, which are loaded when one is asked for; of this project in
`otm_verifiers`.
"""
