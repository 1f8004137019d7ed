"""Audit steps that an engine recorded in a file: the steps, the test and the report.

Not here: how to record steps (docs/audit.md).
"""
