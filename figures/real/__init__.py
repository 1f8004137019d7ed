"""Figures of real language models: tokens per step, tokens per second, and one step of a text.

`python -m benchmarks.real` measures them; these modules read its records.
"""
