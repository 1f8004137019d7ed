"""Measurements of real language models: tokens a step, tokens per second, identical text.

The prompts are in `prompts.toml`; `make real` runs the stages and writes `results/real-*.json`.
"""
