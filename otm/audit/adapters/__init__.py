"""Adapters of the audit from what others have: plain functions, rules, libraries.

Those of plain functions are in `plain`; of libraries in `huggingface`, `vllm` and `flashinfer`,
which are loaded when one is asked for; of this project in `otm_verifiers`.
"""
