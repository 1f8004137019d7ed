"""Audit steps that an engine recorded: the steps, the test and the report.

`generate` records the steps of transformers.  Not here: how to record others (docs/audit.md).
"""
